"""Who preempted a worker, by the Events and pods of the job's own namespace."""

import contextlib
import logging
from collections.abc import Callable
from http import HTTPStatus

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer, ApiStatusError
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.ledger.preemptor import UnnamedPreemptor, preemptor
from hvd_elastic.discovery.sidecar.resource_watcher import REFUSED

log = logging.getLogger(__name__)


class PreemptorLookup:
    """Asks for the Events of one pod at a time. Not thread-safe."""

    def __init__(self, server: ApiServer, place: MPIJobPlace, *, clock: Callable[[], float]) -> None:
        """`clock` must not jump."""
        self._server, self._clock = server, clock
        self._events, self._pods = f"{place.core}/events", f"{place.core}/pods"
        self._refusals = 0
        """In a row: jobs that an older version generated may not list Events."""
        self.next_try = 0.0
        """When Events may be asked for again."""

    def find(self, uid: str) -> str:
        """Who preempted the pod, as `WorkerLeaving.by`; empty if nobody says so yet. Raises ApiError."""
        if self._clock() < self.next_try:
            return ""
        query = {"fieldSelector": f"involvedObject.uid={uid},reason=Preempted", "limit": "5"}
        try:
            events = self._server.get(self._events, query)["items"]
        except ApiStatusError as error:
            if error.status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise
            self._note_refusal(error)
            return ""
        if self._refusals:
            self._refusals = 0
            log.info("Events may be listed again")
        by = next(filter(None, map(preemptor, events)), "")
        unnamed = UnnamedPreemptor.of(by)
        return self._named(unnamed) or by if unnamed else by

    def _named(self, unnamed: UnnamedPreemptor) -> str:
        """Its name, if it is one of this namespace. Who may see others asks for them: `status` and `events`."""
        with contextlib.suppress(ApiError):
            return unnamed.named(lambda selector: self._server.get(self._pods, {"fieldSelector": selector})["items"])
        return ""

    def _note_refusal(self, error: ApiStatusError) -> None:
        if not self._refusals:
            log.info("who preempts workers is not known, which is tried again every few minutes: %s", error)
        self._refusals += 1
        self.next_try = self._clock() + REFUSED.ceiling(self._refusals)
