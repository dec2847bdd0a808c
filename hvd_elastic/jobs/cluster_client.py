"""The API server, reached as kubectl reaches it: contexts, every way to log in, in-cluster accounts, impersonation.

It is built on the `kubernetes` package, whose import takes about a second: only verbs that need a cluster import it.
Objects are plain JSON, as the API server writes them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NoReturn

from hvd_elastic.mpijob.contract import Exit, HvdElasticError

Json = dict[str, Any]

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
PAGE_SIZE: Final = 500
"""Objects per page of a list: what kubectl asks for (`--chunk-size`)."""


class ClusterError(HvdElasticError):
    """The cluster could not be asked, or it refused."""


class NotConfiguredError(ClusterError):
    """No cluster is configured here."""

    exit_code = Exit.BAD_INPUT


class UnreachableError(ClusterError):
    """The API server does not answer."""


class CredentialsError(ClusterError):
    """The API server does not know who asks: HTTP 401."""


class ForbiddenError(ClusterError):
    """The caller may not do this: HTTP 403."""


class NotFoundError(ClusterError):
    """There is no such object, or no such kind: HTTP 404."""


class RefusedError(ClusterError):
    """The API server refused the request for another reason, which it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server answered."""

    body: Json
    time: datetime | None
    """The server's clock, whole seconds, UTC."""


class ClusterClient:
    """One caller at one API server."""

    def __init__(self, api: Any, *, namespace: str) -> None:
        self._api = api
        self.namespace = namespace
        """The context's namespace, or the pod's."""

    @classmethod
    def connect(
        cls, *, context: str | None = None, namespace: str | None = None, impersonate: str | None = None
    ) -> "ClusterClient":
        """Log in: in a pod with its own account, unless a context is named; else as the kubeconfig says.

        Sends nothing. Raises NotConfiguredError if no cluster is configured, or the `kubernetes` package is missing.
        """
        from hvd_elastic.jobs.login import log_in

        api, default_namespace = log_in(context)
        if impersonate:
            api.set_default_header("Impersonate-User", impersonate)
        return cls(api, namespace=namespace or default_namespace)

    def get(self, path: str, **query: str) -> Json:
        """One object, or one answer of another kind (`/version`). Raises ClusterError."""
        return self.ask("GET", path, query=query).body

    def list(self, path: str, **query: str) -> Iterator[Json]:
        """The objects of a list, page by page. Raises ClusterError."""
        going_on = ""
        while True:
            page = {"limit": str(PAGE_SIZE), **query, **({"continue": going_on} if going_on else {})}
            answer = self.get(path, **page)
            yield from answer["items"]
            going_on = answer["metadata"].get("continue", "")
            if not going_on:
                return

    def create(self, path: str, body: Json, **query: str) -> Json:
        """A new object, or a question that is asked as one (`SelfSubjectAccessReview`). Raises ClusterError."""
        return self.ask("POST", path, body=body, query=query).body

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Any request. Raises ClusterError: one sentence that says what was asked and why it failed."""
        import urllib3
        from kubernetes.client.exceptions import ApiException

        headers = {"Accept": "application/json", **({"Content-Type": content_type} if body is not None else {})}
        try:
            response = self._api.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
            )
            text = response.read()
        except ApiException as error:
            self._raise(error, method, path)
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(f"{self._server} does not answer: {_root_cause(error)}") from error
        date = response.headers.get("Date")
        return Answer(body=json.loads(text), time=parsedate_to_datetime(date) if date else None)

    def stream(self, path: str, query: Mapping[str, str], *, silence_seconds: float | None = None) -> Iterator[bytes]:
        """The lines of a watch or of a log as they come, without their line breaks.

        Ends when the server ends the answer, or closes the connection; a line that was not whole then is left out.
        Raises ClusterError before the first line; UnreachableError if nothing comes for `silence_seconds` (None: waits
        for ever).
        """
        import urllib3
        from kubernetes.client.exceptions import ApiException

        try:
            response = self._api.call_api(
                path,
                "GET",
                query_params=list(query.items()),
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=(CONNECT_SECONDS, silence_seconds),
            )
        except ApiException as error:
            self._raise(error, "GET", path)
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(f"{self._server} does not answer: {_root_cause(error)}") from error
        try:
            yield from _lines(response)
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(f"{self._server} does not answer: {_root_cause(error)}") from error
        finally:
            response.close()

    @property
    def _server(self) -> str:
        return str(self._api.configuration.host)

    def _raise(self, error: Any, method: str, path: str) -> NoReturn:
        said = _message(error)
        match error.status:
            case 401:
                raise CredentialsError(
                    f"{self._server} does not accept these credentials ({said}): "
                    "log in again, or choose another --context"
                ) from error
            case 403:
                raise ForbiddenError(said) from error
            case 404:
                raise NotFoundError(f"{said} ({path})") from error
            case 0:
                raise UnreachableError(f"{self._server} does not answer: {said}") from error
            case status:
                raise RefusedError(f"{method} {path}: HTTP {status}: {said}") from error


def _lines(response: Any) -> Iterator[bytes]:
    from urllib3.exceptions import ProtocolError

    rest = b""
    try:
        for piece in response.stream():
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
    except ProtocolError:
        return  # The connection was closed in the middle of a line, or of a chunk.
    if rest:
        yield rest


def _message(error: Any) -> str:
    """What the API server's Status says; the start of anything else."""
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.body or error.reason or "")[:200]


def _root_cause(error: BaseException) -> str:
    """The innermost error: urllib3 wraps it several times."""
    while inner := getattr(error, "reason", None) or error.__cause__:
        if not isinstance(inner, BaseException):
            return str(inner)
        error = inner
    return str(error)
