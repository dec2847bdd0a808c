"""What can go wrong between a caller and the API server: one class for each thing that a caller can act on.

Each message is one sentence. `error_of` makes it from what the API server answered (a `Status` of apimachinery).
"""

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from hvd_elastic.client.connection.people_roles import role_with
from hvd_elastic.mpijob.contract import Exit, HvdElasticError


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCause:
    """One reason of a refusal: a `StatusCause` of apimachinery."""

    reason: str
    """`FieldManagerConflict`, `FieldValueInvalid`, `FieldValueForbidden` ..."""
    field: str
    message: str


class RefusedError(ClusterError):
    """The API server refused the request for another reason, which it says."""

    def __init__(
        self, message: str, *, status: int = 0, causes: tuple[RefusalCause, ...] = (), retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status."""
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds
        """For how long the server asks to be left alone; 0: it does not."""

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be answered later: the server has too much to do, or fails.

        410 is the answer to a list whose next page was asked for too late.
        """
        return self.status in {HTTPStatus.GONE, HTTPStatus.TOO_MANY_REQUESTS} or self.status >= _FAILURES


class ConflictError(RefusedError):
    """The object is not as the request takes it to be: it exists, it has changed, or its fields are another's: 409."""


_FAILURES: Final = 500
"""HTTP statuses from here on are failures of the server."""
_SECONDS: Final = re.compile(r"\d{1,9}", re.ASCII)
"""Of Retry-After. It may be a date too, which no API server writes."""
_NO_RIGHT: Final = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"(?P<where> in the namespace)?'
)
"""What the API server's RBAC says (`ForbiddenStatusError` and `forbiddenMessage` in apiserver's `responsewriters`)."""


def error_of(
    status: int, text: bytes, *, method: str, path: str, server: str, retry_after: str | None = None
) -> ClusterError:
    """The error for an answer of HTTP `status` (400 and above) with this text. `retry_after`: the header's value."""
    answer = _status(text)
    said = str(answer.get("message") or text.decode(errors="replace")[:200] or HTTPStatus(status).phrase)
    said = " ".join(said.split())
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return CredentialsError(
                f"{server} does not accept these credentials ({said}): log in again, or choose another --context"
            )
        case HTTPStatus.FORBIDDEN:
            return ForbiddenError(said + _grant(said))
        case HTTPStatus.NOT_FOUND:
            return NotFoundError(f"{said} ({path})")
    made = ConflictError if status == HTTPStatus.CONFLICT else RefusedError
    return made(
        f"{method} {path}: HTTP {status}: {said}",
        status=status,
        causes=_causes(answer),
        retry_after_seconds=float(retry_after) if retry_after and _SECONDS.fullmatch(retry_after) else 0.0,
    )


def _grant(said: str) -> str:
    """The rule of a Role that would grant what is lacking; empty if the refusal is not one of rights."""
    lacks = _NO_RIGHT.search(said)
    if lacks is None:
        return ""
    role = "Role" if lacks["where"] else "ClusterRole"
    rule = {"apiGroups": [lacks["group"]], "resources": [lacks["resource"]], "verbs": [lacks["verb"]]}
    ours = role_with(group=lacks["group"], resource=lacks["resource"], verb=lacks["verb"])
    kit = f", and so does {ours} of hvd-elastic platform-kit to all who have {ours.rpartition('-')[2]}" if ours else ""
    return f": a {role} with the rule {json.dumps(rule)} would grant it{kit}"


def _status(text: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _causes(answer: dict[str, Any]) -> tuple[RefusalCause, ...]:
    return tuple(
        RefusalCause(reason=one.get("reason", ""), field=one.get("field", ""), message=one.get("message", ""))
        for one in (answer.get("details") or {}).get("causes") or ()
    )
