"""What a rehearsal has seen, and what is made of it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from hvd_elastic.client.doctor.diagnosis import Diagnosis, Verdict, error, ok, warning
from hvd_elastic.client.logs.log_line import LogLine

_STEP: Final = re.compile(r"rehearsal step (\d+) size (\d+)")
_SLOW_SECONDS: Final = 30.0
"""As long as the grace of workers: an inference pod that waits longer has waited for one that was killed."""

_MOST_TROUBLES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStep:
    """A step that the training has told."""

    number: int
    size: int
    """Processes that did it together."""
    unix: float
    """By the clock of the launcher's node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRecord:
    """Times are seconds by the caller's clock. None: it did not happen while it was waited for."""

    workers: int
    started: float | None = None
    """From the job's making until all of its workers trained."""
    ran: float | None = None
    """From the inference pod's making until it ran."""
    left: float | None = None
    """Until the worker in its place was gone."""
    victim: str = ""
    """That worker."""
    shrank: float | None = None
    """Until fewer workers trained on."""
    grew: float | None = None
    """From the inference pod's deletion until all workers trained again."""
    steps: Sequence[ToldStep] = ()
    trouble: str = ""
    """What stood in the way, in the cluster's words."""


def told_steps(lines: Iterable[LogLine]) -> Sequence[ToldStep]:
    """The steps in a job's log."""
    matches = ((line, _STEP.fullmatch(line.text)) for line in lines)
    return [
        ToldStep(number=int(match[1]), size=int(match[2]), unix=datetime.fromisoformat(line.time).timestamp())
        for line, match in matches
        if match
    ]


def trouble_of(pods: Iterable[Mapping[str, Any]]) -> str:
    """Why the pods of a rehearsal do not run, in the scheduler's and the kubelets' words; empty if all do."""
    pods = list(pods)
    if not pods:
        return "no pod was made: the MPI Operator does not run, or a queue holds the job back"
    troubles = [f"{pod['metadata']['name']} {why}" for pod in pods if (why := _trouble(pod))]
    return "; ".join(troubles[:_MOST_TROUBLES])


def _trouble(pod: Mapping[str, Any]) -> str:
    status = pod["status"]
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    if (scheduled := conditions.get("PodScheduled", {})).get("status") == "False":
        return f"is not placed: {scheduled.get('message', '')}"
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for waiting in ((one.get("state") or {}).get("waiting") for one in states):
        if waiting and waiting.get("reason") != "PodInitializing":
            return f"waits: {waiting.get('reason', '')} {waiting.get('message', '')}".rstrip()
    if status.get("phase") == "Failed":
        return f"has failed: {status.get('reason') or 'look at its log'}"
    return "is not Ready" if conditions.get("Ready", {}).get("status") == "False" else ""


def judge(record: RehearsalRecord) -> Sequence[Diagnosis]:
    """One verdict for each promise, in order. What could not be tried is left out."""
    return [Diagnosis(check=f"rehearsal-{name}", verdict=verdict) for name, verdict in _verdicts(record)]


def _verdicts(record: RehearsalRecord) -> Iterator[tuple[str, Verdict]]:
    trouble = f": {record.trouble}" if record.trouble else ""
    if record.started is None:
        yield "start", error(f"the job did not train with {record.workers} workers{trouble}", "hvd-elastic doctor")
        return
    yield "start", ok(f"{record.workers} workers trained after {record.started:.1f} s")
    if record.ran is None:
        fix = "compare the classes' values (hvd-elastic doctor); look at the scheduler's log"
        yield "preemption", error(f"the inference pod did not get its GPU{trouble}", fix)
        return
    yield "preemption", _preemption(record)
    yield "training", _training(record, trouble)
    yield "steps", _steps(record.steps)
    if record.grew is None:
        fix = "look at the events of the worker that is not there, and at the queue if one admits jobs"
        yield "growth", error(f"the job did not grow back to {record.workers} workers{trouble}", fix)
    else:
        yield "growth", ok(f"{record.workers} workers trained {record.grew:.1f} s after inference had gone")


def _preemption(record: RehearsalRecord) -> Verdict:
    left = "" if record.left is None else f"; {record.victim} was gone after {record.left:.1f} s"
    evidence = f"an inference pod ran {record.ran:.1f} s after it was asked for{left}"
    if record.ran is not None and record.ran > _SLOW_SECONDS:
        return warning(evidence, "kubectl get events: a slow image pull, a slow device plugin, or a worker that hung")
    return ok(evidence)


def _training(record: RehearsalRecord, trouble: str) -> Verdict:
    if record.shrank is None:
        return error(
            f"training did not go on with fewer workers{trouble}",
            "rehearse again, and read hvd-elastic logs rehearsal -f meanwhile",
        )
    pause = longest_pause(record.steps)
    return ok(f"it went on with fewer workers after {record.shrank:.1f} s, and stood still for {pause:.2f} s at most")


def _steps(steps: Sequence[ToldStep]) -> Verdict:
    repeated = len(steps) - len({step.number for step in steps})
    last = max((step.number for step in steps), default=0)
    evidence = f"{repeated} of {last} steps were done again"
    return (
        warning(evidence, "a worker was killed before it could leave: look at its grace") if repeated else ok(evidence)
    )


def longest_pause(steps: Sequence[ToldStep]) -> float:
    """Seconds between two steps where the number of processes changes; 0 if it never does."""
    return max(
        (after.unix - before.unix for before, after in pairwise(steps) if after.size != before.size), default=0.0
    )
