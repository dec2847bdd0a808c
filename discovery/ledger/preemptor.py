"""Who preempted a pod: the scheduler's Event on it, in the victim's namespace, written after the deletion.

Its reason is `Preempted`, its note `Preempted by pod UID on node NODE`, and up to Kubernetes 1.35 its `related` is the
preemptor. From 1.36 on the scheduler hands a type of its own to the recorder, which knows no such object and leaves
`related` out (`pkg/scheduler/framework/preemption/executor.go`, `podExecutorPreemptor.Obj`; client-go
`tools/events/event_recorder.go`), so that the pod has to be looked for.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_NOTE: Final = re.compile(r"Preempted by (?:[a-z]{1,64} )?(\S{1,320})(?: on node ([a-z0-9.-]{1,253}))?", re.ASCII)
_UNNAMED: Final = re.compile(
    r"uid:([0-9A-Za-z](?:[-0-9A-Za-z]{0,61}[0-9A-Za-z])?)(?: on node ([a-z0-9.-]{1,253}))?", re.ASCII
)
"""The UID is one that a label may have: it goes into a selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnnamedPreemptor:
    """A pod of which the UID is known, or a job."""

    uid: str
    node: str
    """On which the pod is to run; empty: Kueue took the GPU for it, or nobody knows."""

    @classmethod
    def of(cls, by: str) -> "UnnamedPreemptor | None":
        """What `WorkerLeaving.by` says of it; None: it has a name."""
        found = _UNNAMED.fullmatch(by)
        return cls(uid=found[1], node=found[2] or "") if found else None

    def named(self, pods: Callable[[str], Iterable[Mapping[str, Any]]]) -> str:
        """`NAMESPACE/NAME`; empty if it is not among them, or nobody knows the node.

        Args:
            pods: lists those that a field selector chooses: the pod waits for its node, or runs there.

        """
        for field in ("status.nominatedNodeName", "spec.nodeName") if self.node else ():
            for pod in pods(f"{field}={self.node}"):
                if pod["metadata"]["uid"] == self.uid:
                    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        return ""


def preemptor(event: Mapping[str, Any]) -> str:
    """What an Event says: `NAMESPACE/NAME`, `uid:UID on node NODE` or `uid:UID`; empty if it names nobody."""
    related = event.get("related") or {}
    if related.get("name"):
        return f"{related.get('namespace') or ''}/{related['name']}".lstrip("/")
    named = _NOTE.match(event.get("message") or "")
    if named is None:
        return ""
    if "/" in named[1]:
        return named[1]
    return f"uid:{named[1]}" + (f" on node {named[2]}" if named[2] else "")
