"""Credentials and authorities that change while somebody waits, each with a server that drops the old ones."""

import json
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.client.connection import session
from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    CredentialsError,
    Read,
    UnreachableError,
)
from testbed.kube.certificates import Authority
from testbed.kube_api import NODES, KubeApi, Request, Status

LOG = "/api/v1/namespaces/default/pods/p/log"


def write(path: Path, user: dict[str, Any], **cluster: Any) -> None:
    config = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}, {"name": "other", "user": {"token": "other"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "there", "context": {"cluster": "c", "user": "other"}},
        ],
    }
    path.write_text(json.dumps(config))


class Program:
    """A program that logs in: it answers what a file says, and notes each call."""

    def __init__(self, folder: Path) -> None:
        self._answer, self._calls = folder / "answer", folder / "calls"
        self._calls.touch()
        self.user = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "sh",
                "args": ["-c", f"echo >> {self._calls}; cat {self._answer}"],
            }
        }

    def grants(self, **status: str) -> None:
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        self._answer.write_text(json.dumps(answer))

    def fails(self) -> None:
        self._answer.unlink()

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().splitlines())


def accept(api: KubeApi, token: str) -> None:
    """From now on no other token is accepted."""

    def fault(request: Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {token}":
            raise Status(401)

    api.fault = fault


@pytest.fixture
def program(api: KubeApi, kubeconfig: Path, tmp_path: Path) -> Program:
    """Of the current context."""
    made = Program(tmp_path)
    made.grants(token="first")
    write(kubeconfig, made.user, server=f"http://127.0.0.1:{api.port}")
    accept(api, "first")
    return made


def test_a_token_without_an_expiry_is_asked_for_again(api: KubeApi, program: Program) -> None:
    api.streams[LOG] = lambda _request: iter([b"line\n"])
    client = ClusterClient.connect()
    other = client.within("elsewhere")
    assert client.get(NODES)["items"] == []
    program.grants(token="second")
    accept(api, "second")
    assert list(client.stream(LOG, {})) == [b"line"]
    assert client.gather([Read(path=NODES)] * 8) == [client.get(NODES)] * 8
    assert other.get(NODES)["items"] == []
    assert (program.calls, client.namespace, other.namespace) == (2, "team", "elsewhere")


def test_several_that_are_refused_together_log_in_once(api: KubeApi, program: Program) -> None:
    client = ClusterClient.connect()
    program.grants(token="second")
    accept(api, "second")
    assert all(isinstance(answer, dict) for answer in client.gather([Read(path=NODES)] * 8))
    assert program.calls == 2


def test_whoever_stays_refused_does_not_log_in_at_each_request(api: KubeApi, program: Program) -> None:
    client = ClusterClient.connect()
    accept(api, "second")
    for _ in range(3):
        with pytest.raises(CredentialsError, match="does not accept these credentials"):
            client.get(NODES)
    assert program.calls == 2


def test_what_the_program_says_is_told(program: Program, api: KubeApi) -> None:
    client = ClusterClient.connect()
    program.fails()
    accept(api, "second")
    with pytest.raises(CredentialsError, match=r"does not accept this login any more: .*cannot log in: exec: process"):
        client.get(NODES)


def test_another_current_context_is_not_meant(api: KubeApi, kubeconfig: Path, program: Program) -> None:
    client = ClusterClient.connect(impersonate="ann")
    config = json.loads(kubeconfig.read_text())
    kubeconfig.write_text(json.dumps({**config, "current-context": "there"}))
    program.grants(token="second")
    accept(api, "second")
    assert client.get(NODES)["items"] == []
    assert api.requests[-1].headers["Impersonate-User"] == "ann"


def tls_of(authority: Authority, *, asks_clients: bool = False) -> ssl.SSLContext:
    server = authority.issue("server", "server", answers_to=["127.0.0.1"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.root)
    tls.verify_mode = ssl.CERT_OPTIONAL if asks_clients else ssl.CERT_NONE
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # an API server is written in Go, which is not as strict
    tls.load_cert_chain(server.certificate, server.key)
    return tls


def restart(api: KubeApi, tls: ssl.SSLContext) -> None:
    api.stop()
    api.tls = tls
    api.start()


def test_a_client_certificate_of_a_program_is_renewed(api: KubeApi, kubeconfig: Path, tmp_path: Path) -> None:
    authority, program = Authority.create(tmp_path / "keys"), Program(tmp_path)

    def grant(name: str) -> None:
        pair = authority.issue(name, name)
        certificate, key = pair.certificate.read_text(), pair.key.read_text()
        program.grants(clientCertificateData=certificate, clientKeyData=key)

    restart(api, tls_of(authority, asks_clients=True))
    server = {"server": f"https://127.0.0.1:{api.port}", "certificate-authority": str(authority.root)}
    write(kubeconfig, program.user, **server)
    grant("ann-1")
    client = ClusterClient.connect()
    assert client.get(NODES)["items"] == []
    grant("ann-2")

    def expired(request: Request) -> None:
        if request.certified != "ann-2":
            raise Status(401)

    api.fault = expired
    assert client.get(NODES)["items"] == []
    assert program.calls == 2


@pytest.fixture
def account(api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a pod's service account."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("secret")
    (folder / "namespace").write_text("ops")
    for where in ("login", "login_lookup"):
        monkeypatch.setattr(f"hvd_elastic.client.connection.{where}.SERVICE_ACCOUNT", folder)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    return folder


def test_a_pod_reads_an_authority_that_has_changed(
    api: KubeApi, account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Authority.create(tmp_path / "old"), Authority.create(tmp_path / "new")
    restart(api, tls_of(old))
    shutil.copy(old.root, account / "ca.crt")
    client = ClusterClient.connect()
    assert client.get(NODES)["items"] == []
    restart(api, tls_of(new))
    with pytest.raises(UnreachableError, match="certificate"):
        client.get(NODES)  # the kubelet has not brought the new one yet
    shutil.copy(new.root, account / "ca.crt")
    with pytest.raises(UnreachableError, match="certificate"):
        client.get(NODES)
    monkeypatch.setattr(session, "RENEW_SECONDS", 0.0)
    assert client.get(NODES)["items"] == []


def test_a_connection_that_breaks_is_no_reason_to_log_in_anew(api: KubeApi, program: Program) -> None:
    client = ClusterClient.connect()
    api.stop()
    with pytest.raises(UnreachableError):
        client.get(NODES)
    assert program.calls == 1
