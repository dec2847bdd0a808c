"""Kubeconfig files give the same settings whether they are read here or by the `kubernetes` package."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import kubernetes
import pytest

from hvd_elastic.client.connection.cluster_errors import NotConfiguredError
from hvd_elastic.client.connection.kubeconfig import kubeconfig_paths, read_kubeconfig
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.login_lookup import discovery_access, log_in
from hvd_elastic.client.connection.login_plugins import plugin_login

SERVER = "https://10.0.0.1:6443"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(path: Path, cluster: dict[str, Any], user: dict[str, Any], *, current: str = "here", **context: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {
        "current-context": current,
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **context}}],
    }
    path.write_text(json.dumps(config))
    return path


def read_here(*paths: Path, context: str | None = None) -> Login:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", os.pathsep.join(map(str, paths)))
        return log_in(context)


def read_by_the_package(path: Path) -> dict[str, Any]:
    """What the package's own loader makes of a file, in the words of `settings`."""
    made = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(config_file=str(path), client_configuration=made)
    contexts, _ = kubernetes.config.list_kube_config_contexts(config_file=str(path))
    files = {
        "certificate_authority": made.ssl_ca_cert,
        "client_certificate": made.cert_file,
        "client_key": made.key_file,
    }
    return {
        "server": made.host,
        "namespace": contexts[0]["context"]["namespace"],
        "tls_server_name": made.tls_server_name or "",
        "insecure": not made.verify_ssl,
        "authorization": made.auth_settings().get("BearerToken", {}).get("value", ""),
        **{name: Path(file).read_text() if file else "" for name, file in files.items()},
    }


def settings(login: Login) -> dict[str, Any]:
    values = {name: getattr(login, name) for name in Login.__dataclass_fields__}
    return {**values, "authorization": login.authorization()}


CLUSTERS: dict[str, dict[str, Any]] = {
    "authority in a file": {"certificate-authority": "ca.crt"},
    "authority as data": {"certificate-authority-data": base64_of("authority as data")},
    "another name": {"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"},
    "insecure": {"insecure-skip-tls-verify": True},
}
USERS: dict[str, dict[str, Any]] = {
    "nobody": {},
    "token": {"token": "secret"},
    "tokenFile": {"tokenFile": "token"},
    "certificate files": {"client-certificate": "user.crt", "client-key": "keys/user.key"},
    "certificate data": {
        "client-certificate-data": base64_of("certificate as data"),
        "client-key-data": base64_of("key as data"),
    },
    "data goes before files": {
        "client-certificate-data": base64_of("certificate as data"),
        "client-certificate": "user.crt",
        "client-key": "keys/user.key",
    },
    "password": {"username": "ann", "password": "pass:word"},
    "token and certificate": {"token": "secret", "client-certificate": "user.crt", "client-key": "keys/user.key"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    for name in ("ca.crt", "user.crt", "keys/user.key", "token"):
        (tmp_path / name).write_text(f"content of {name}")
    return tmp_path


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_both_readers_give_the_same_settings(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> None:
    path = write(folder / "config", cluster, user, namespace="team")
    expected = read_by_the_package(path)
    for login in (read_here(path), plugin_login(read_kubeconfig([path]).choose(None), [path])):
        assert {name: value for name, value in settings(login).items() if name in expected} == expected


def test_settings_are_those_of_the_file(folder: Path) -> None:
    path = write(folder / "config", CLUSTERS["another name"], USERS["certificate files"], namespace="team")
    login = read_here(path)
    assert (login.server, login.namespace, login.tls_server_name) == (SERVER, "team", "kubernetes")
    assert login.certificate_authority == "content of ca.crt"
    assert (login.client_certificate, login.client_key) == ("content of user.crt", "content of keys/user.key")
    assert "content of keys" not in repr(login)


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("https://proxy.example/k8s/clusters/c-1/", ("proxy.example", 443, "/k8s/clusters/c-1")),
        ("https://[fd00::1]:6443", ("fd00::1", 6443, "")),
        ("http://localhost", ("localhost", 80, "")),
    ],
)
def test_discovery_logs_in_as_people_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, server: str, address: tuple[str, int, str]
) -> None:
    path = write(folder / "config", {"server": server}, {"tokenFile": "token"}, namespace="team")
    monkeypatch.setenv("KUBECONFIG", str(path))
    access, namespace = discovery_access()
    assert (access.host, access.port, access.prefix) == address
    assert (access.tls is not None) is server.startswith("https:")
    (folder / "token").write_text("renewed\n")
    assert (access.token(), namespace) == ("renewed", "team")


def test_what_only_kubectl_and_we_read(folder: Path) -> None:
    user = {"token": "secret", "as": "ann", "as-uid": "7", "as-groups": ["one", "two"]}
    login = read_here(write(folder / "config", {"proxy-url": "http://proxy:3128"}, user))
    assert login.proxy == "http://proxy:3128"
    assert login.impersonation == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "one"),
        ("Impersonate-Group", "two"),
    )


def test_a_token_that_is_renewed_is_read_again(folder: Path) -> None:
    login = read_here(write(folder / "config", {}, {"tokenFile": "token"}))
    (folder / "token").write_text("the next one\n")
    assert login.authorization() == "Bearer the next one"


def test_of_several_files_the_first_one_counts(folder: Path) -> None:
    """As in client-go's `ClientConfigLoadingRules`: of an entry and of the current context alike."""
    first = write(folder / "a" / "config", {"certificate-authority": "ca.crt"}, {"token": "first"}, namespace="one")
    (folder / "a" / "ca.crt").write_text("the authority of a")
    second = write(folder / "b" / "config", {}, {"token": "second", "as": "ann"}, current="else", namespace="two")
    by_the_package = plugin_login(read_kubeconfig([first, second]).choose(None), [first, second])
    for login in (read_here(first, folder / "absent", second), by_the_package):
        assert login.namespace == "one"
        assert login.certificate_authority == "the authority of a"
        assert login.authorization() == "Bearer first"
        assert login.impersonation == ()


def test_a_program_that_logs_in_is_run_by_the_package(folder: Path) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from the program"},
    }
    (folder / "answer").write_text(json.dumps(answer))
    program = {"apiVersion": answer["apiVersion"], "command": "cat", "args": [str(folder / "answer")]}
    cluster = {"certificate-authority": "ca.crt", "proxy-url": "http://proxy:3128"}
    login = read_here(write(folder / "config", cluster, {"exec": program, "as": "ann"}, namespace="team"))
    assert login.authorization() == "Bearer from the program"
    assert (login.namespace, login.proxy) == ("team", "http://proxy:3128")
    assert login.certificate_authority == "content of ca.crt"
    assert login.impersonation == (("Impersonate-User", "ann"),)


def test_a_program_that_fails_is_named(folder: Path) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}
    with pytest.raises(NotConfiguredError, match="user of context 'here' cannot log in: exec: process returned 1"):
        read_here(write(folder / "config", {}, {"exec": program}))


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"certificate-authority": "absent.crt"}, {}, "certificate-authority of 'c': .*absent.crt: No such file"),
        ({}, {"client-key-data": "%"}, "client-key-data of 'u' is not base64"),
        ({"server": ""}, {}, "names the cluster 'c', which has no server"),
    ],
)
def test_what_is_not_usable_is_named(folder: Path, cluster: dict[str, Any], user: dict[str, Any], said: str) -> None:
    with pytest.raises(NotConfiguredError, match=said):
        read_here(write(folder / "config", cluster, user))


def test_a_context_that_is_not_there_is_told_with_those_that_are(folder: Path) -> None:
    with pytest.raises(NotConfiguredError, match=r"no context 'heer' \(contexts: here\)"):
        read_here(write(folder / "config", {}, {}), context="heer")


def test_where_kubeconfigs_are() -> None:
    assert kubeconfig_paths({}) == (Path.home() / ".kube/config",)
    assert kubeconfig_paths({"KUBECONFIG": "/a::/b"}) == (Path("/a"), Path("/b"))
