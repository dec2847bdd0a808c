"""Why a pod that is asked for is not there: what those who make it said last, or that they make nothing.

The MPI Operator makes the workers and the launcher's Job, and the Job controller makes the launcher. Each says in an
Event why it cannot: a quota, a limit, an admission policy. One that is away says nothing.
"""

from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.client.report.words.cause_words import scheduler_words
from hvd_elastic.client.report.words.time_words import duration_words, event_time
from hvd_elastic.discovery.ledger.entries import Entry, LauncherEnded, WantedChanged, WorkerGone
from hvd_elastic.discovery.rules.cluster_views import unix_seconds

USUAL_SECONDS: Final = 10.0
"""Both make a pod within two seconds. After so long it is said that they have not."""

_REFUSALS: Final = frozenset({"MPIJobFailed", "ErrResourceExists", "ValidationError", "FailedCreate"})
"""Reasons of the Events that say why no pod was made (mpi-operator 0.8.2, `pkg/controller/mpi_job_controller.go`;
Kubernetes 1.34, `pkg/controller/controller_utils.go`). Each may be left out for five minutes while it stays true: the
client's spam filter lets 25 of one object through, then one in five minutes (client-go, `tools/record`)."""
_BEGINNINGS: Final = ("worker pod created failed: ", "launcher pod created failed: ", "Error creating: ")
"""What their messages begin with, and the sentence says."""


def missing_worker_words(facts: JobFacts, name: str, left: float) -> str:
    """Why the operator has not made this worker; empty: it may come at once.

    `left`: when the last pod of this name left, in Unix seconds; 0: there was none. The operator makes workers in the
    order of their indexes, and none after the first that it cannot make.
    """
    if _is_suspended(facts.job.get("status") or {}):
        return "the operator has not made it since the job was resumed"
    told = (entry.unix for entry in facts.ledger or () if _is_want(entry, name))
    since = max((_began(facts), left, *told))
    return _last_refusal(facts, facts.name, name, since, "the operator") or _silence(facts, since)


def missing_launcher_words(facts: JobFacts) -> str:
    """Why nobody has made a launcher; empty: it may come at once."""
    job = facts.launcher_job
    if job is None:
        ends = (entry.unix for entry in facts.ledger or () if isinstance(entry, LauncherEnded))
        since = max((_began(facts), *ends))
        return _last_refusal(facts, facts.name, "", since, "the operator") or _silence(facts, since)
    if (job.get("spec") or {}).get("suspend"):
        return "the operator has not resumed it since the job was resumed"
    since = unix_seconds(job["metadata"].get("creationTimestamp"))
    return _last_refusal(facts, f"{facts.name}-launcher", "", since, "the Job controller")


def _began(facts: JobFacts) -> float:
    """When the operator began to make pods of this job: it notes it anew when the job is resumed."""
    started = (facts.job.get("status") or {}).get("startTime")
    return unix_seconds(started or facts.job["metadata"].get("creationTimestamp"))


def _is_want(entry: Entry, name: str) -> bool:
    return isinstance(entry, WantedChanged) or (isinstance(entry, WorkerGone) and entry.pod == name)


def _is_suspended(status: Json) -> bool:
    """Whether the operator still holds the job for suspended, which nobody asks for any more."""
    conditions = status.get("conditions") or ()
    return any(one["type"] == "Suspended" and one.get("status") == "True" for one in conditions)


def _last_refusal(facts: JobFacts, about: str, pod: str, since: float, teller: str) -> str:
    """The last one of these Events that is not older than the want."""
    refusals = [
        event
        for event in facts.events
        if event.get("reason") in _REFUSALS
        and event["involvedObject"].get("name") == about
        and event_time(event) >= since
    ]
    if not refusals:
        return ""
    last = max(refusals, key=event_time)
    said = str(last.get("message") or "")
    for beginning in (*_BEGINNINGS, f'pods "{pod}" is forbidden: '):
        said = said.removeprefix(beginning)
    age = duration_words(facts.now - event_time(last))
    return f"{teller} could not make it {age} ago: {scheduler_words(said)}"


def _silence(facts: JobFacts, since: float) -> str:
    seconds = facts.now - since
    return f"the operator has made nothing for {duration_words(seconds)}" if seconds > USUAL_SECONDS else ""
