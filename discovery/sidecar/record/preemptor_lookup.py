"""Who preempted a worker: the scheduler's Event on it.

kube-scheduler 1.34 writes it after the deletion, in the victim's namespace (`pkg/scheduler/framework/preemption/
preemption.go`): reason `Preempted`, note `Preempted by pod UID on node NODE`, and the preemptor as `related`
(`client-go/tools/events/event_recorder.go`), which the core API shows as well. The note names a UID only.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from hvd_elastic.discovery.kube.api_server import ApiServer, ApiStatusError
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace

_NOTE: Final = re.compile(r"Preempted by (?:pod )?(\S+)")


class PreemptorLookup:
    """Asks for the Events of one pod at a time. Not thread-safe."""

    def __init__(self, server: ApiServer, place: MPIJobPlace) -> None:
        self._server = server
        self._path = f"{place.core}/events"
        self.is_allowed = True
        """Whether Events may be listed: not in jobs that an older version generated."""

    def find(self, uid: str) -> str:
        """Who preempted the pod: `NAMESPACE/NAME` or `uid:UID`; empty if nobody says so yet. Raises ApiError."""
        query = {"fieldSelector": f"involvedObject.uid={uid},reason=Preempted", "limit": "5"}
        try:
            events = self._server.get(self._path, query)["items"]
        except ApiStatusError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            self.is_allowed = False
            return ""
        return next(filter(None, map(preemptor, events)), "")


def preemptor(event: Mapping[str, Any]) -> str:
    """The preemptor that an Event names, as `NAMESPACE/NAME` or `uid:UID`; empty if it names none."""
    related = event.get("related") or {}
    if related.get("name"):
        return f"{related.get('namespace') or ''}/{related['name']}".lstrip("/")
    named = _NOTE.match(event.get("message") or "")
    if named is None:
        return ""
    return named[1] if "/" in named[1] else f"uid:{named[1]}"
