"""The ledger of a job: what has happened to it, one JSON object a line, in the order in which it became known.

The sidecar writes it and every later launcher's sidecar goes on with it. It outlives pods and launchers, so `status`,
`events` and `cost` tell the truth after them. Each line is one of the classes below; `kind` names it. A reader skips
kinds and keys that it does not know, so that an old program reads a new ledger.

Times are Unix seconds of the cluster's clock where the API server gives one (a pod's binding, its end), else of the
launcher's pod.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, Final

from hvd_elastic.discovery.ledger.packed_lines import MANY, packed, packed_world, unpacked_run, unpacked_world
from hvd_elastic.system.untrusted_values import UNREADABLE, json_object, typed_fields


class Departure(StrEnum):
    """Why a worker pod has gone."""

    PREEMPTED = "preempted"
    """The scheduler gave its GPU to a pod of a higher priority, or Kueue gave its quota to another queue."""
    EVICTED = "evicted"
    """Through the eviction API, or by its kubelet."""
    NODE_LOST = "node-lost"
    DRAINED = "drained"
    """Its node is emptied: a spot interruption, an autoscaler, a shutdown."""
    SCALED_DOWN = "scaled-down"
    SUSPENDED = "suspended"
    """The job was suspended, or has ended."""
    SLOW = "slow"
    """Its rank was slow, and the job asks for another worker then."""
    FAILED = "failed"
    """Its container has ended by itself."""
    DELETED = "deleted"
    """Somebody deleted it, and nothing says why."""


class Slowness(StrEnum):
    """In what a slow rank is slow."""

    COMPUTING = "computing"
    LOADING = "loading"
    UNKNOWN = "computing or loading"
    """The script loads by itself, and nothing tells the one from the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherStarted:
    """A launcher's sidecar has begun its work."""

    kind: ClassVar[str] = "launcher-started"
    unix: float
    pod: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherEnded:
    """A launcher's pod has ended, or is gone."""

    kind: ClassVar[str] = "launcher-ended"
    unix: float
    pod: str
    uid: str
    exit_code: int | None = None
    """None: it was taken away, and counts no restart."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBound:
    """A worker pod has a node: from now on its GPUs are the job's."""

    kind: ClassVar[str] = "worker-bound"
    unix: float
    pod: str
    uid: str
    node: str
    gpus: int = 0
    machine: str = ""
    """The node's instance type; empty if nodes may not be read."""
    spot: bool | None = None
    """None if nodes may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLeaving:
    """It is known that a worker pod goes; its GPUs are the job's until WorkerGone."""

    kind: ClassVar[str] = "worker-leaving"
    unix: float
    pod: str
    uid: str
    why: Departure
    by: str = ""
    """Of PREEMPTED: `NAMESPACE/NAME` of the pod that took its GPU; if the name is not known, `uid:UID on node NODE`."""
    detail: str = ""
    """The words of whoever took it: a taint's key, a pod's reason, an exit code."""
    queue: str = ""
    """Of PREEMPTED by Kueue: the ClusterQueue that took its quota; `by` has the UID of the pod or job in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGone:
    """A worker pod holds its GPUs no longer. Its WorkerLeaving says why."""

    kind: ClassVar[str] = "worker-gone"
    unix: float
    pod: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldChanged:
    """Training goes on with another set of workers."""

    kind: ClassVar[str] = "world-changed"
    unix: float
    """When the new world ran its first step, or was first seen."""
    workers: tuple[str, ...]
    """Pods that train, rank 0's first; empty: nobody trains."""
    step: int = -1
    """The last step that is done; -1: not known."""
    pause_seconds: float | None = None
    """How long training stood still; None: not known, or the first world."""
    repeated_steps: int = 0
    """Steps that are done once more, because the world before lost them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcessLost:
    """A training process has ended or hung, and its pod stays."""

    kind: ClassVar[str] = "worker-process-lost"
    unix: float
    pod: str
    uid: str
    detail: str = ""
    """`killed`, `hung`, an exit code in words; empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStalled:
    """Ranks have waited in a collective operation for longer than their limit (ENV_STALL_SECONDS)."""

    kind: ClassVar[str] = "ranks-stalled"
    unix: float
    """When the first of them began to wait."""
    words: str
    """Which rank waits in which operation, and what the others do."""
    step: int = -1
    """The last step that is done; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallEnded:
    """No rank waits that long any more. A change of the world, or the launcher's end, ends a stall without it."""

    kind: ClassVar[str] = "stall-ended"
    unix: float
    """When that was seen."""
    seconds: float
    """Since RanksStalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSlow:
    """A rank takes longer than the others for its own part of a step, and all wait for it."""

    kind: ClassVar[str] = "rank-slow"
    unix: float
    """Since when."""
    pod: str
    uid: str
    rank: int
    slowness: Slowness
    times: float
    """How many times as long as the others it takes until it waits for them."""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSlowEnded:
    """It does so no more. A change of the world, or the launcher's end, ends it without this entry."""

    kind: ClassVar[str] = "rank-slow-ended"
    unix: float
    """When that was seen."""
    pod: str
    uid: str
    rank: int
    seconds: float
    """Since RankSlow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedChanged:
    """The number of workers that are asked for."""

    kind: ClassVar[str] = "wanted-changed"
    unix: float
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The launcher has ended for good."""

    kind: ClassVar[str] = "job-ended"
    unix: float
    succeeded: bool
    exit_code: int | None = None
    step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLost:
    """Entries before this one were lost with the ledger's ConfigMap: the sums count from here on."""

    kind: ClassVar[str] = "record-lost"
    unix: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSums:
    """What is added up over a ledger. GPU-seconds are GPUs times seconds."""

    gpu_seconds: dict[str, float] = field(default_factory=dict)
    """Those that the job held, by `MACHINE|spot`, `MACHINE|on-demand` or `MACHINE|unknown`."""
    lent_gpu_seconds: float = 0.0
    """Between a worker's preemption and the binding of the one in its place, or the job's end."""
    stalled_gpu_seconds: float = 0.0
    """Pauses of resizes, times the GPUs held then."""
    idle_gpu_seconds: float = 0.0
    """Of workers that did not train while others did: surplus ones, and those that start or leave."""
    training_seconds: float = 0.0
    """In which somebody trained, pauses included."""
    pause_seconds: float = 0.0
    repeated_steps: int = 0
    resizes: int = 0
    """Worlds after the first one."""
    preemptions: int = 0
    launchers: int = 0
    step: int = -1
    """The last step that an entry tells; -1: none does."""
    counts_since: float | None = None
    """Unix seconds of the last RecordLost; None: nothing was lost, and the sums are those of the job's whole life."""

    @property
    def held_gpu_seconds(self) -> float:
        return sum(self.gpu_seconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(LedgerSums):
    """The sums over all earlier entries, in their place: the first line of a ledger that was shortened.

    What has not ended at `unix` (a worker that holds GPUs, a wait for one that was preempted, a world) stands behind
    it as an entry of its own, with its own time, and is counted in full from `unix` on. `account.summed_up` makes both.
    """

    kind: ClassVar[str] = "totals"
    unix: float
    began: float
    """When the first launcher started."""
    entries: int = 0
    """How many were summed up."""
    carried: int = 0
    """How many entries behind this one are those that had not ended."""


Entry = (
    LauncherStarted
    | LauncherEnded
    | WorkerBound
    | WorkerLeaving
    | WorkerGone
    | WorldChanged
    | WorkerProcessLost
    | RanksStalled
    | StallEnded
    | RankSlow
    | RankSlowEnded
    | WantedChanged
    | JobEnded
    | RecordLost
    | Totals
)

_CLASSES: Final[dict[str, type[Any]]] = {made.kind: made for made in Entry.__args__}


_TOGETHER: Final = frozenset({WorkerBound.kind, WorkerLeaving.kind, WorkerGone.kind})
"""Kinds of which a large job has as many at a time as it has workers."""
_MAX_NAMES: Final = 8_000_000
"""Workers in all worlds of a ledger, after which it is read no further: that of a job has less in MOST_BYTES."""


def to_line(entry: Entry) -> str:
    """One line of JSON with its newline. Fields that have their default are left out."""
    return _text(_document(entry))


def to_text(entries: Iterable[Entry]) -> str:
    """Lines of all these; those of many workers that were bound, leave or are gone together are one."""
    return "".join(map(_text, packed(map(_document, entries), kinds=_TOGETHER)))


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":")) + "\n"


def _document(entry: Entry) -> Mapping[str, Any]:
    known = ((each.name, getattr(entry, each.name), each.default) for each in fields(entry))
    document = {"kind": entry.kind, **{name: value for name, value, default in known if value != default}}
    return packed_world(document) if isinstance(entry, WorldChanged) else document


def from_lines(lines: Iterable[str]) -> Iterator[Entry]:
    """The entries of a ledger. A line that is torn, of an unknown kind, or has a value of a wrong type, is left out."""
    names = _MAX_NAMES
    for line in lines:
        try:
            document = json_object(line)
            found = [_entry(each) for each in (unpacked_run(document) if document["kind"] == MANY else [document])]
        except UNREADABLE:
            continue
        yield from found
        names -= sum(len(entry.workers) for entry in found if isinstance(entry, WorldChanged))
        if names < 0:
            return


def _entry(document: Mapping[str, Any]) -> Entry:
    made = _CLASSES[document["kind"]]
    entry: Entry = made(**typed_fields(made, unpacked_world(document) if made is WorldChanged else document))
    return entry
