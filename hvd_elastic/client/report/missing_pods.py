"""Why a pod that is asked for is not there: what those who make it said last, or that they make nothing.

The MPI Operator makes the workers and the launcher's Job, and the Job controller makes the launcher. Each says in an
Event why it cannot: a quota, a limit, an admission policy. One that is away says nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.client.report.words.cause_words import scheduler_words
from hvd_elastic.client.report.words.time_words import clock_words, duration_words, event_time
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.discovery.ledger.entries import LauncherEnded, WantedChanged, WorkerBound, WorkerGone
from hvd_elastic.discovery.rules.cluster_views import JobView, PodView, unix_seconds
from hvd_elastic.discovery.rules.operator_lag import (
    HELD_SECONDS,
    LATE_SECONDS,
    OperatorWork,
    last_sign,
    operator_work,
)
from hvd_elastic.discovery.rules.restart_budget import LauncherJobView, backoff_limit, own_failures
from hvd_elastic.mpijob.contract import Role

_USUAL_SECONDS: Final = 10.0
"""Both make a pod within two seconds. After so long it is said that they have not."""

_REFUSALS: Final = frozenset({"MPIJobFailed", "ErrResourceExists", "ValidationError", "FailedCreate"})
"""Reasons of the Events that say why no pod was made (mpi-operator 0.8.2, `pkg/controller/mpi_job_controller.go`;
Kubernetes 1.34, `pkg/controller/controller_utils.go`). Each may be left out for five minutes while it stays true: the
client's spam filter lets 25 of one object through, then one in five minutes (client-go, `tools/record`)."""
_FIRST_PAUSE_SECONDS: Final = 10.0
_LONGEST_PAUSE_SECONDS: Final = 600.0
"""Between the end of a Job's pod and the next one (Kubernetes 1.34, `pkg/controller/job/job_controller.go`,
`DefaultJobPodFailureBackOff`, `MaxJobPodFailureBackOff`; `backoff_utils.go`)."""
_BEGINNINGS: Final = ("worker pod created failed: ", "launcher pod created failed: ", "Error creating: ")
"""What their messages begin with, and the sentence says."""


def missing_worker_words(facts: JobFacts, name: str, left: float) -> str:
    """Why the operator has not made this worker; empty: it may come at once.

    `left`: when the last pod of this name left, in Unix seconds; 0: there was none. The operator makes workers in the
    order of their indexes, and none after the first that it cannot make.
    """
    if true_condition(facts.job, "Suspended"):  # still held for it by the operator; nobody asks for it any more
        return "the operator has not made it since the job was resumed"
    since = max(_began(facts), left, _wanted_since(facts, name))
    return _last_refusal(facts, facts.name, name, since, "the operator") or _silence(facts, since)


def missing_launcher_words(facts: JobFacts) -> str:
    """Why nobody has made a launcher; empty: it may come at once."""
    job = facts.launcher_job
    if job is None:
        spoke = facts.live.unix if facts.live else 0.0  # in the launcher's pod
        since = max((_began(facts), spoke, *_launcher_ends(facts)))
        return _last_refusal(facts, facts.name, "", since, "the operator") or _silence(facts, since)
    if (job.get("spec") or {}).get("suspend"):
        return "the operator has not resumed it since the job was resumed"
    ends = _launcher_ends(facts)
    since = max((unix_seconds(job["metadata"].get("creationTimestamp")), *ends))
    refusal = _last_refusal(facts, f"{facts.name}-launcher", "", since, "the Job controller")
    return refusal or _next_try(facts, job, ends)


def operator_words(facts: JobFacts) -> str:
    """That the operator leaves the job alone, since when, and what helps; empty: it does not, or says why."""
    work, since = _operator_work(facts)
    if not work.pods or facts.now - since < LATE_SECONDS or was_refused(facts.events, facts.name, since=since):
        return ""
    return (
        f"the MPI Operator has made and deleted nothing since {clock_words(since, facts.now)}, though {work.words}. "
        "After an error it waits up to 1,000 s: kubectl rollout restart deployment mpi-operator -n mpi-operator "
        "ends that"
    )


def is_operator_at_work(facts: JobFacts) -> bool:
    """Whether the operator makes or deletes workers, or notes them: meanwhile the live status waits."""
    work, since = _operator_work(facts)
    return bool(work) and facts.now - since < HELD_SECONDS


def _operator_work(facts: JobFacts) -> tuple[OperatorWork, float]:
    """What it has to do, and when that last changed, in Unix seconds."""
    pods = [*facts.pods_of(Role.WORKER), *facts.unlabelled]
    work = operator_work(JobView.from_json(facts.job), [PodView.from_json(pod) for pod in pods])
    missing = set(facts.missing_workers)
    gone = (entry.unix for entry in facts.ledger or () if isinstance(entry, WorkerGone) and entry.pod in missing)
    return work, max((last_sign(facts.job, pods), *gone))


def _launcher_ends(facts: JobFacts) -> list[float]:
    """When launchers have ended, in Unix seconds."""
    pods = (PodView.from_json(pod).ended_at for pod in facts.pods_of(Role.LAUNCHER))
    told = (entry.unix for entry in facts.ledger or () if isinstance(entry, LauncherEnded))
    return [*filter(None, pods), *told]


def _next_try(facts: JobFacts, job: Json, ends: Sequence[float]) -> str:
    """When the Job controller makes the next launcher: its pause doubles with each that has ended in whatever way."""
    views = [PodView.from_json(pod) for pod in facts.pods_of(Role.LAUNCHER)]
    if own_failures(views) > backoff_limit((facts.job.get("spec") or {}).get("runPolicy")):
        return "no other follows: its restarts are used up"
    failed = max(LauncherJobView.from_json(job).failed, sum(view.phase == "Failed" for view in views))
    if not failed or not ends:
        return ""
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(failed - 1, 10), _LONGEST_PAUSE_SECONDS)
    left = max(ends) + pause - facts.now
    return f"the next comes in {duration_words(left)}" if left > 0 else "the next is due"


def _began(facts: JobFacts) -> float:
    """When the operator began to make pods of this job: it notes it anew when the job is resumed."""
    started = (facts.job.get("status") or {}).get("startTime")
    return unix_seconds(started or facts.job["metadata"].get("creationTimestamp"))


def _wanted_since(facts: JobFacts, name: str) -> float:
    """Since when another pod of this name is wanted, as far as the ledger knows; 0: it does not say."""
    since, is_there = 0.0, False
    for entry in facts.ledger or ():
        if isinstance(entry, WantedChanged):
            since = entry.unix
        elif isinstance(entry, WorkerBound | WorkerGone) and entry.pod == name:
            since, is_there = entry.unix, isinstance(entry, WorkerBound)
    # Nobody has told of its end: it was there when the sidecar last spoke.
    return max(since, facts.live.unix) if is_there and facts.live else since


def was_refused(events: Iterable[Json], about: str, *, since: float) -> bool:
    """Whether one of these Events says why no pod was made, and is not older. `about`: the name of who is told of."""
    return bool(_refusals(events, about, since))


def _refusals(events: Iterable[Json], about: str, since: float) -> list[Json]:
    return [
        event
        for event in events
        if event.get("reason") in _REFUSALS
        and event["involvedObject"].get("name") == about
        and event_time(event) >= since
    ]


def _last_refusal(facts: JobFacts, about: str, pod: str, since: float, teller: str) -> str:
    """The last one of these Events that is not older than the want."""
    if not (refusals := _refusals(facts.events, about, since)):
        return ""
    last = max(refusals, key=event_time)
    said = str(last.get("message") or "")
    for beginning in (*_BEGINNINGS, f'pods "{pod}" is forbidden: '):
        said = said.removeprefix(beginning)
    age = duration_words(facts.now - event_time(last))
    return f"{teller} could not make it {age} ago: {scheduler_words(said)}"


def _silence(facts: JobFacts, since: float) -> str:
    seconds = facts.now - since
    return f"the operator has made nothing for {duration_words(seconds)}" if seconds > _USUAL_SECONDS else ""
