"""What a job is doing, in one word, and why that is believed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.client.report.missing_pods import is_operator_at_work, missing_launcher_words
from hvd_elastic.client.report.words.cause_words import placement_words, queue_words
from hvd_elastic.client.report.words.start_words import start_words
from hvd_elastic.client.report.words.time_words import duration_words
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.discovery.ledger.entries import JobEnded, LauncherEnded
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.rules.cluster_views import PodView, unix_seconds
from hvd_elastic.mpijob.contract import KUEUE_QUEUE, Exit, Role
from hvd_elastic.system.plain_words import count_words

STALE_SECONDS: Final = 90.0
"""The sidecar writes every half minute: it has missed three times."""


class JobState(StrEnum):
    """What a job is doing."""

    STARTING = "starting"
    """Nobody has trained yet."""
    TRAINING = "training"
    WAITING = "waiting"
    """It has trained, and now nobody does: too few workers are there, or the next launcher is awaited."""
    STALLED = "stalled"
    """Workers are in training, and no step gets done."""
    NO_REPORT = "unheard"
    """Its launcher runs, and nothing tells whether it trains: no ledger, or nothing new in it."""
    QUEUED = "queued"
    """A queue has not admitted it, or not as many of its workers as it takes to train."""
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    EXHAUSTED = "exhausted"
    """It has ended for want of workers or restarts, and not by a fault of the script."""
    FAILED = "failed"

    @property
    def exit_code(self) -> int:
        """The exit code of `status`. These numbers stay as they are."""
        return _EXIT_CODES[self]

    @property
    def is_final(self) -> bool:
        """Whether nothing comes after it."""
        return self in {JobState.SUCCEEDED, JobState.EXHAUSTED, JobState.FAILED}


_EXIT_CODES: Final = {
    JobState.TRAINING: 0,
    JobState.SUCCEEDED: 0,
    JobState.STARTING: 10,
    JobState.WAITING: 11,
    JobState.STALLED: 12,
    JobState.NO_REPORT: 13,
    JobState.QUEUED: 14,
    JobState.SUSPENDED: 15,
    JobState.FAILED: 20,
    JobState.EXHAUSTED: 21,
}

_EXHAUSTION: Final = {
    Exit.MIN_WORKERS_TIMEOUT: "fewer than its min workers were there for longer than its elastic timeout",
    Exit.RESET_LIMIT: "its reset limit was reached",
    Exit.ALL_WORKERS_LOST: "no process that held its state was left, and its restarts are used up",
}
_OF_ACTIVITY: Final = {
    Activity.STARTING: JobState.STARTING,
    Activity.TRAINING: JobState.TRAINING,
    Activity.WAITING: JobState.WAITING,
    Activity.STALLED: JobState.STALLED,
}


_BEFORE_TRAINING: Final = frozenset({Activity.STARTING, Activity.WAITING})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFinding:
    """A state, since when, and what else there is to say of it."""

    state: JobState
    since: float | None = None
    """Unix seconds; None: not known."""
    why: str = ""


def find_state(facts: JobFacts) -> StateFinding:
    """The state of a job, from its MPIJob, its ledger, what its sidecar last said, and its launchers."""
    return (
        _ended_by_operator(facts)
        or _held_back(facts)
        or _ended_by_ledger(facts)
        or _ended_by_launcher(facts)
        or _running(facts, facts.live)
        or _between_launchers(facts)
    )


def state_of_listed(job: Json, now: float) -> StateFinding:
    """The state from the MPIJob alone, as a list of a thousand shows it."""
    facts = JobFacts(job=job, now=now)
    live = facts.live
    if ended := _ended_by_operator(facts) or _held_back(facts):
        return ended
    if live and now - live.unix <= STALE_SECONDS and live.activity in _OF_ACTIVITY:
        is_queued = live.queued and live.activity in _BEFORE_TRAINING
        return StateFinding(state=JobState.QUEUED if is_queued else _OF_ACTIVITY[live.activity], since=live.since)
    if live is None and not true_condition(job, "Running"):
        return StateFinding(state=JobState.STARTING, since=unix_seconds(job["metadata"].get("creationTimestamp")))
    return StateFinding(state=JobState.NO_REPORT, since=live.unix if live else None)


def _ended_by_operator(facts: JobFacts) -> StateFinding | None:
    status = facts.job.get("status") or {}
    ended = unix_seconds(status.get("completionTime")) or None
    if succeeded := true_condition(facts.job, "Succeeded"):
        return StateFinding(state=JobState.SUCCEEDED, since=ended or unix_seconds(succeeded.get("lastTransitionTime")))
    # A worker that was evicted leaves Failed/MPIJobEvicted, without a completion time, on a job that goes on.
    failed = true_condition(facts.job, "Failed")
    return _failure(facts, ended, str(failed.get("message") or "")) if failed and ended else None


def _held_back(facts: JobFacts) -> StateFinding | None:
    if not ((facts.job.get("spec") or {}).get("runPolicy") or {}).get("suspend"):
        return None
    suspended = true_condition(facts.job, "Suspended") or {}
    since = unix_seconds(suspended.get("lastTransitionTime")) or None
    queue = (facts.job["metadata"].get("labels") or {}).get(KUEUE_QUEUE)
    if not queue:
        return StateFinding(state=JobState.SUSPENDED, since=since, why="hvd-elastic resume lets it go on")
    return StateFinding(state=JobState.QUEUED, since=since, why=_queue_words(queue, facts))


def _queue_words(queue: str, facts: JobFacts) -> str:
    """Where it stands, and why, in Kueue's own words."""
    if facts.workload_unread:
        return f"in queue {queue}, and Kueue cannot be asked why: {facts.workload_unread}"
    before = facts.queue_position
    place = queue if before is None else f"{queue}, {count_words(before, 'job')} before it"
    return queue_words(place, facts.workload)


def _waits_in_queue(facts: JobFacts, live: LiveStatus) -> StateFinding | None:
    """Whether its workers wait for quota one by one, and nobody trains meanwhile."""
    waiting = [pod for pod in facts.pods_of(Role.WORKER) if PodView.from_json(pod).gated]
    if not waiting or live.activity not in _BEFORE_TRAINING:
        return None
    wait = "wait" if len(waiting) > 1 else "waits"
    words = f"{count_words(len(waiting), 'worker')} {wait} in {queued_words(waiting[0], facts)}"
    return StateFinding(state=JobState.QUEUED, since=live.since, why=words)


def queued_words(pod: Json, facts: JobFacts) -> str:
    """Why a worker waits for quota, in Kueue's words."""
    queue = (pod["metadata"].get("labels") or {}).get(KUEUE_QUEUE)
    if not queue:
        return "a gate that somebody else set"
    if facts.workload_unread:
        return f"queue {queue}, and Kueue cannot be asked why: {facts.workload_unread}"
    if (uid := pod["metadata"]["uid"]) not in facts.pod_workloads:  # one of very many
        return f"queue {queue}"
    return queue_words(queue, facts.pod_workloads[uid])


def _ended_by_ledger(facts: JobFacts) -> StateFinding | None:
    """The sidecar knows of the end some seconds before the operator says so."""
    last = facts.ledger[-1] if facts.ledger else None
    if not isinstance(last, JobEnded):
        return None
    if last.succeeded:
        return StateFinding(state=JobState.SUCCEEDED, since=last.unix)
    return _failure(facts, last.unix, "")


def _ended_by_launcher(facts: JobFacts) -> StateFinding | None:
    """The Job controller knows of it before the operator, and the launcher's pod before both."""
    job = facts.launcher_job or {}
    if failed := true_condition(job, "Failed"):
        since = unix_seconds(failed.get("lastTransitionTime"))
        return _failure(facts, since, str(failed.get("message") or ""))
    succeeded = [pod for pod in facts.pods_of(Role.LAUNCHER) if (pod.get("status") or {}).get("phase") == "Succeeded"]
    if succeeded or true_condition(job, "Complete"):
        return StateFinding(state=JobState.SUCCEEDED)
    return None


def _failure(facts: JobFacts, since: float, said: str) -> StateFinding:
    code = _exit_code(facts)
    if code in _EXHAUSTION:
        return StateFinding(state=JobState.EXHAUSTED, since=since, why=_EXHAUSTION[Exit(code)])
    if code is not None:
        last = last_failed_launcher(facts)
        said = f"its launcher ended with {exit_words(code, last.reason if last and last.exit_code == code else '')}"
    return StateFinding(state=JobState.FAILED, since=since, why=said)


def last_failure(facts: JobFacts) -> str:
    """How the last launcher ended that failed by itself: `exit code 1: NameError: ...`; empty: none did."""
    last = last_failed_launcher(facts)
    return exit_words(last.exit_code, last.reason) if last else ""


def exit_words(code: int | None, reason: str) -> str:
    """`exit code 1: NameError: ...`; without a reason, its first half."""
    return f"exit code {code}: {reason}" if reason else f"exit code {code}"


def last_failed_launcher(facts: JobFacts) -> LauncherEnded | None:
    """The last one that failed by itself, as the ledger has it."""
    return next((one for one in _launcher_ends(facts) if one.exit_code), None)


def _launcher_ends(facts: JobFacts) -> Iterator[LauncherEnded]:
    """The last one first."""
    return (entry for entry in reversed(facts.ledger or ()) if isinstance(entry, LauncherEnded))


def _exit_code(facts: JobFacts) -> int | None:
    """Of the last launcher: the ledger's, else of the pod that ended last, else what its sidecar said at the end."""
    for entry in reversed(facts.ledger or ()):
        if isinstance(entry, JobEnded | LauncherEnded) and entry.exit_code is not None:
            return entry.exit_code
    endings = [
        (unix_seconds(ended.get("finishedAt")), int(ended["exitCode"]))
        for pod in facts.pods_of(Role.LAUNCHER)
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        if (ended := (container.get("state") or {}).get("terminated")) and ended.get("exitCode")
    ]
    if endings:
        return max(endings)[1]
    return facts.live.exit_code if facts.live else None


def _running(facts: JobFacts, live: LiveStatus | None) -> StateFinding | None:
    """What the sidecar says, if its launcher is there and its word is fresh."""
    if not any(_runs(launcher) for launcher in _launchers(facts)):
        return None
    if live is None:
        return StateFinding(state=JobState.NO_REPORT, why="its launcher runs, and has no ledger to tell what it does")
    age = facts.now - live.unix
    if live.activity is Activity.ENDED or (age > STALE_SECONDS and not is_operator_at_work(facts)):
        return StateFinding(
            state=JobState.NO_REPORT,
            since=live.unix,
            why=f"its launcher runs, and its sidecar was last heard {age:.0f} s ago: {live.activity} then",
        )
    if live.workers and not may_train(facts):
        told = (
            f"{count_words(live.workers, 'worker')} trained {duration_words(age)} ago, and no pod of them runs any more"
        )
        return StateFinding(state=JobState.WAITING, why=told)
    if waits := _waits_in_queue(facts, live):
        return waits
    return StateFinding(state=_OF_ACTIVITY[live.activity], since=live.since, why=_stall_words(live, facts.now))


def may_train(facts: JobFacts) -> list[str]:
    """The workers' pods that run, ready or not: a kubelet that begins again says for a moment that none is."""
    views = [PodView.from_json(pod) for pod in facts.pods_of(Role.WORKER)]
    return [view.name for view in views if view.phase == "Running" and not view.has_ended]


def _stall_words(live: LiveStatus, now: float) -> str:
    """What the ranks do while no step gets done, and for how long."""
    if not live.stall:
        return ""
    seconds = "" if live.stall_since is None else f", for {duration_words(now - live.stall_since)} now"
    return f"{live.stall}{seconds}"


def _between_launchers(facts: JobFacts) -> StateFinding:
    why = _launcher_words(facts)
    if _has_trained(facts):
        return StateFinding(state=JobState.WAITING, since=facts.live.unix if facts.live else None, why=why)
    created = unix_seconds(facts.job["metadata"].get("creationTimestamp"))
    return StateFinding(state=JobState.STARTING, since=created or None, why=why)


def _launcher_words(facts: JobFacts) -> str:
    """Why no launcher runs."""
    for pod in facts.pods_of(Role.LAUNCHER):
        view = PodView.from_json(pod)
        if not view.has_ended:
            if view.deleting_at is not None:
                return "its launcher ends"
            if not view.node:
                return f"its launcher is pending: {placement_words(pod, facts.nodes)}"
            why = start_words(pod, facts.events)
            return f"its launcher is starting: {why}" if why else "its launcher is starting"
    last, why = next(_launcher_ends(facts), None), missing_launcher_words(facts)
    if last is not None and last.exit_code:
        ended = f"its launcher ended with {exit_words(last.exit_code, last.reason)}"
        return f"{ended}; {why}" if why else ended
    return f"it has no launcher: {why}" if why else "it has no launcher"


def _has_trained(facts: JobFacts) -> bool:
    """The annotation BEGUN says only that a launcher had workers for its script."""
    return facts.live is not None and (facts.live.has_run or facts.live.activity is not Activity.STARTING)


def _launchers(facts: JobFacts) -> Sequence[PodView]:
    pods = [PodView.from_json(pod) for pod in facts.pods_of(Role.LAUNCHER)]
    return [pod for pod in pods if not pod.has_ended]


def _runs(launcher: PodView) -> bool:
    return launcher.phase == "Running" and launcher.deleting_at is None
