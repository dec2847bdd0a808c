"""Kubeconfig files, read as kubectl reads them (client-go, `tools/clientcmd`), without the `kubernetes` package.

Importing that package takes most of a second. It is still needed where another program logs in (`login_plugins`).
"""

import base64
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hvd_elastic.client.connection.cluster_errors import NotConfiguredError
from hvd_elastic.client.connection.login import Login
from hvd_elastic.mpijob.yaml_input.yaml_composer import UnreadableError, read_value

DEFAULT_PATH: Final = Path("~/.kube/config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A cluster, a user or a context of one file."""

    name: str
    values: Mapping[str, Any] = field(repr=False)
    folder: Path
    """Relative paths in it begin here."""

    def text(self, key: str) -> str:
        """The value of a key; empty if it is absent."""
        return str(self.values.get(key) or "")

    def file(self, key: str) -> Path | None:
        """The file that a key names."""
        name = self.text(key)
        return self.folder / name if name else None

    def pem(self, key: str) -> str:
        """The content of KEY-data, else of the file KEY; empty if neither is there. Raises NotConfiguredError."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode("".join(data.split()), validate=True).decode("ascii", errors="ignore")
            except ValueError as error:
                raise NotConfiguredError(f"{key}-data of {self.name!r} is not base64") from error
        path = self.file(key)
        return "" if path is None else _text_of(path, f"{key} of {self.name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenContext:
    """A context with its cluster and its user."""

    name: str
    namespace: str
    cluster: Entry
    user: Entry

    @property
    def needs_plugin(self) -> bool:
        """Whether another program logs in. A token that is written down goes before `exec`, as in kubectl."""
        has_token = self.user.text("token") or self.user.text("tokenFile")
        return "auth-provider" in self.user.values or ("exec" in self.user.values and not has_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """Several files as one: of each name the first file's entry counts, and so does the first current context."""

    clusters: Mapping[str, Entry]
    users: Mapping[str, Entry]
    contexts: Mapping[str, Entry]
    current_context: str

    def choose(self, context: str | None) -> ChosenContext:
        """The context of this name, or the current one. Raises NotConfiguredError."""
        name = context or self.current_context
        if not name:
            raise NotConfiguredError("the kubeconfig has no current-context")
        if name not in self.contexts:
            known = ", ".join(self.contexts) or "none"
            raise NotConfiguredError(f"there is no context {name!r} (contexts: {known})")
        entry = self.contexts[name]
        cluster, user = entry.text("cluster"), entry.text("user")
        if cluster not in self.clusters or not self.clusters[cluster].text("server"):
            raise NotConfiguredError(f"the context {name!r} names the cluster {cluster!r}, which has no server")
        if user and user not in self.users:
            raise NotConfiguredError(f"the context {name!r} names the user {user!r}, who is not in the kubeconfig")
        return ChosenContext(
            name=name,
            namespace=entry.text("namespace") or "default",
            cluster=self.clusters[cluster],
            user=self.users.get(user) or Entry(name="", values={}, folder=Path()),
        )


def kubeconfig_paths(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The files of KUBECONFIG (`:` between them), or kubectl's default."""
    named = tuple(Path(one).expanduser() for one in environ.get("KUBECONFIG", "").split(os.pathsep) if one)
    return named or (DEFAULT_PATH.expanduser(),)


def read_kubeconfig(paths: Iterable[Path]) -> Kubeconfig:
    """These files as one. A file that does not exist counts as empty. Raises NotConfiguredError."""
    clusters, users, contexts = dict[str, Entry](), dict[str, Entry](), dict[str, Entry]()
    found, current = False, ""
    for path in paths:
        if not path.exists():
            continue
        document, found = _document(path), True
        for key, entries in (("cluster", clusters), ("user", users), ("context", contexts)):
            for name, values in _entries(document, key, path):
                entries.setdefault(name, Entry(name=name, values=values, folder=path.absolute().parent))
        current = current or str(document.get("current-context") or "")
    if not found:
        raise NotConfiguredError("there is no kubeconfig")
    return Kubeconfig(clusters=clusters, users=users, contexts=contexts, current_context=current)


def login_of(chosen: ChosenContext) -> Login:
    """How this context's user logs in, unless that `needs_plugin`. Raises NotConfiguredError."""
    return Login(
        **settings_of(chosen),
        client_certificate=chosen.user.pem("client-certificate"),
        client_key=chosen.user.pem("client-key"),
        authorization=_authorization(chosen.user),
    )


def settings_of(chosen: ChosenContext) -> dict[str, Any]:
    """The fields of a Login that do not depend on how the user logs in."""
    cluster, user = chosen.cluster, chosen.user
    return {
        "server": cluster.text("server").rstrip("/"),
        "context": chosen.name,
        "namespace": chosen.namespace,
        "certificate_authority": cluster.pem("certificate-authority"),
        "tls_server_name": cluster.text("tls-server-name"),
        "insecure": cluster.values.get("insecure-skip-tls-verify") is True,
        "proxy": cluster.text("proxy-url"),
        "impersonation": (
            *((header, user.text(key)) for key, header in _IMPERSONATION.items() if user.text(key)),
            *(("Impersonate-Group", str(group)) for group in user.values.get("as-groups") or ()),
        ),
    }


_IMPERSONATION: Final = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid"}


def _authorization(user: Entry) -> Callable[[], str]:
    """A file's token is read for each request: whoever renews it replaces the file."""
    if path := user.file("tokenFile"):
        return lambda: f"Bearer {_text_of(path, f'tokenFile of {user.name!r}').strip()}"
    header = ""
    if token := user.text("token"):
        header = f"Bearer {token}"
    elif user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}"
        header = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return lambda: header


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = read_value(_text_of(path, "kubeconfig"))
    except UnreadableError as error:
        raise NotConfiguredError(f"{path} cannot be read: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise NotConfiguredError(f"{path} is not a kubeconfig")
    return document


def _entries(document: Mapping[str, Any], key: str, path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    try:
        return [(str(one["name"]), one.get(key) or {}) for one in document.get(f"{key}s") or ()]
    except (TypeError, KeyError, AttributeError) as error:
        raise NotConfiguredError(f"{path}: {key}s are not a list of names with a {key} each") from error


def _text_of(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="ignore")
    except OSError as error:
        raise NotConfiguredError(f"{what}: {path}: {error.strerror}") from error
