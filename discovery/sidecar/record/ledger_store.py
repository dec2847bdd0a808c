"""The ConfigMap in which a job's ledger is kept: read once, then written by one request for each batch of entries.

What is in memory is the truth, and the ConfigMap its copy. A copy that is gone is made again, and one that somebody
has changed is written over. Only this job's other sidecar may add to it: two run at a time while a launcher is being
replaced. Each write names the version that it follows (`metadata.resourceVersion`: the API server answers 409 if there
is another one by now; Kubernetes 1.34, `apiserver/pkg/registry/generic/registry/store.go`), so none overwrites the
other's, and the one whose launcher began earlier stops.

It is made again by server-side apply, for which the API server asks for the right to `create` this one name: the name
of the path is in `createAuthorizerAttributes` (Kubernetes 1.34, `apiserver/pkg/endpoints/handlers/patch.go`). A Role
cannot limit a POST to a name, so a POST stays forbidden.
"""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer, ApiStatusError
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.ledger.bounded_ledger import BoundedLedger
from hvd_elastic.discovery.ledger.entries import Entry
from hvd_elastic.discovery.ledger.record_gap import bridged
from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, LABEL_PART_OF, LEDGER_KEY, LEDGER_SUFFIX, MANAGED_BY

Json = Mapping[str, Any]
_Answer = TypeVar("_Answer")

_ANOTHER: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
_FOR_NOW: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS})


class LedgerRefusedError(ApiError):
    """The API server does not let the ledger be kept: there is no right to it, or it is not what it should be."""


class LedgerTakenOverError(ApiError):
    """A later launcher's sidecar writes the ledger by now."""


class LedgerStore:
    """One job's ledger. Not thread-safe."""

    def __init__(
        self,
        server: ApiServer,
        place: MPIJobPlace,
        *,
        launcher_uid: str,
        is_launcher: Callable[[str], bool],
        on_trouble: Callable[[str], None],
    ) -> None:
        """What it must know of the job.

        Args:
            server: where it is.
            place: of the MPIJob.
            launcher_uid: of the launcher beside which this writes.
            is_launcher: whether a pod of this UID is a launcher of the job; may raise ApiError.
            on_trouble: is told, in a sentence, that the ConfigMap was not as it was written.
        """
        self.ledger = BoundedLedger()
        self.name = f"{place.job}{LEDGER_SUFFIX}"
        self.has_job = True
        """Whether the MPIJob is there. None is made for one that is gone."""
        self._server, self._place, self._launcher_uid = server, place, launcher_uid
        self._is_launcher, self._on_trouble = is_launcher, on_trouble
        self._path = f"{place.core}/configmaps/{self.name}"
        self._job_uid = self._version = ""
        self._owners: list[Json] = []
        self._is_whole = False
        """Whether the ConfigMap has what `ledger` has, as far as it is known."""

    @property
    def was_found(self) -> bool:
        """Whether the ConfigMap was read once. Until then `append` must find it, and joins what is in memory to it."""
        return bool(self._version)

    def read(self, job_uid: str) -> None:
        """Read, or make, the ledger of this MPIJob; that of an earlier one of its name is void. Raises ApiError."""
        self._job_uid = job_uid
        self._take(self._find())

    def append(self, entries: Sequence[Entry]) -> None:
        """Write `entries` behind the others.

        Raises LedgerRefusedError if they are kept in memory only; another ApiError if they are not, and may be
        appended again.
        """
        if not self._version:  # they go on from what could not be read yet, as all that is in memory does
            self.ledger, entries = self._with(entries), ()
        try:
            if not self._write(longer := self._with(entries)):
                self._write(longer := self._with(entries), again=True)
        except LedgerRefusedError:
            self.ledger, self._is_whole = self._with(entries), False
            raise
        self.ledger = longer

    def check(self) -> None:
        """See whether the ConfigMap is as it was written, and write it again if not. Raises ApiError."""
        if self._version_there() != self._version:
            self._take(self._find())
        if not self._is_whole and not self._write(self.ledger):
            self._write(self.ledger, again=True)

    def _with(self, entries: Sequence[Entry]) -> BoundedLedger:
        return self.ledger.append(self.ledger.without_known(entries))

    def _write(self, ledger: BoundedLedger, *, again: bool = False) -> bool:
        """Write it all. False, unless `again`: the ConfigMap was not the one that was seen last, and is known now."""
        if not self._version:
            self._take(self._find())
            return False
        change = {
            "metadata": {"resourceVersion": self._version, "ownerReferences": self._owners},
            "data": {LEDGER_KEY: ledger.text},
        }
        try:
            written = self._ask(lambda: self._server.patch(self._path, change))
        except ApiStatusError as error:
            if again or error.status not in _ANOTHER:
                raise
            self._take(self._find())
            return False
        self._version, self._is_whole = written["metadata"]["resourceVersion"], True
        return True

    def _version_there(self) -> str:
        try:
            return self._ask(lambda: self._server.version(self._path))
        except ApiStatusError:
            return "none"

    def _find(self) -> Json:
        """The ConfigMap, which is made if there is none."""
        try:
            return self._ask(lambda: self._server.get(self._path))
        except ApiStatusError as error:
            if not self.has_job:
                raise LedgerRefusedError(str(error)) from error
        meta = {
            "name": self.name,
            "namespace": self._place.namespace,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_PART_OF: self._place.job},
            "ownerReferences": [self._place.reference(self._job_uid)],
        }
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        return self._ask(lambda: self._server.apply(self._path, made))

    def _ask(self, request: Callable[[], _Answer]) -> _Answer:
        """Raises ApiStatusError only where the ConfigMap is gone, or another one."""
        try:
            return request()
        except ApiStatusError as error:
            if error.status in _ANOTHER:
                raise
            is_for_now = error.status in _FOR_NOW or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            raise (ApiError if is_for_now else LedgerRefusedError)(str(error)) from error

    def _take(self, found: Json) -> None:
        """Go on from what is there if it has all that is known; else what is known is to be written again."""
        meta = found["metadata"]
        owners = meta.get("ownerReferences") or []
        jobs = [each for each in owners if (each["kind"], each["name"]) == ("MPIJob", self._place.job)]
        is_ours = all(each["uid"] == self._job_uid for each in jobs)
        there = BoundedLedger.from_text((found.get("data") or {}).get(LEDGER_KEY) or "" if is_ours else "")
        self._make_way(there.latest_launcher)
        # What was kept in memory while it could not be read is newer than what stands there.
        unread = () if self._version else self.ledger.entries
        found_ledger = there.append(there.without_known(bridged(there.entries, unread)))
        if found_ledger.continues(self.ledger):
            self.ledger = found_ledger
        else:
            fault = "was changed by somebody else" if there.entries else "was gone, or emptied"
            self._on_trouble(f"the ledger, ConfigMap {self.name}, {fault}: it is written again from memory")
        self._is_whole = self.ledger.text == there.text
        self._owners = [*(each for each in owners if each not in jobs), self._place.reference(self._job_uid)]
        self._version = meta["resourceVersion"]

    def _make_way(self, latest: str) -> None:
        """Raise LedgerTakenOverError if the ledger tells of a later launcher, which is there."""
        has_begun = self.ledger.latest_launcher == self._launcher_uid
        if has_begun and latest not in {"", *self.ledger.launchers} and self._is_launcher(latest):
            raise LedgerTakenOverError("a later launcher's sidecar writes the ledger by now")
