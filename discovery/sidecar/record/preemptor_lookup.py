"""Who preempted a worker: the scheduler's Event on it.

kube-scheduler 1.34 writes it after the deletion, in the victim's namespace (`pkg/scheduler/framework/preemption/
preemption.go`): reason `Preempted`, note `Preempted by pod UID on node NODE`, and the preemptor as `related`
(`client-go/tools/events/event_recorder.go`), which the core API shows as well. The note names a UID only.
"""

import logging
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from hvd_elastic.discovery.kube.api_server import ApiServer, ApiStatusError
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.sidecar.resource_watcher import REFUSED

log = logging.getLogger(__name__)

_NOTE: Final = re.compile(r"Preempted by (?:pod )?(\S+)")


class PreemptorLookup:
    """Asks for the Events of one pod at a time. Not thread-safe."""

    def __init__(self, server: ApiServer, place: MPIJobPlace, *, clock: Callable[[], float]) -> None:
        """`clock` must not jump."""
        self._server, self._clock = server, clock
        self._path = f"{place.core}/events"
        self._refusals = 0
        """In a row: jobs that an older version generated may not list Events."""
        self.next_try = 0.0
        """When Events may be asked for again."""

    def find(self, uid: str) -> str:
        """Who preempted the pod: `NAMESPACE/NAME` or `uid:UID`; empty if nobody says so yet. Raises ApiError."""
        if self._clock() < self.next_try:
            return ""
        query = {"fieldSelector": f"involvedObject.uid={uid},reason=Preempted", "limit": "5"}
        try:
            events = self._server.get(self._path, query)["items"]
        except ApiStatusError as error:
            if error.status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise
            self._note_refusal(error)
            return ""
        if self._refusals:
            self._refusals = 0
            log.info("Events may be listed again")
        return next(filter(None, map(preemptor, events)), "")

    def _note_refusal(self, error: ApiStatusError) -> None:
        if not self._refusals:
            log.info("who preempts workers is not known, which is tried again every few minutes: %s", error)
        self._refusals += 1
        self.next_try = self._clock() + REFUSED.ceiling(self._refusals)


def preemptor(event: Mapping[str, Any]) -> str:
    """The preemptor that an Event names, as `NAMESPACE/NAME` or `uid:UID`; empty if it names none."""
    related = event.get("related") or {}
    if related.get("name"):
        return f"{related.get('namespace') or ''}/{related['name']}".lstrip("/")
    named = _NOTE.match(event.get("message") or "")
    if named is None:
        return ""
    return named[1] if "/" in named[1] else f"uid:{named[1]}"
