"""The truth about one job, as one value: what `status` shows and what its Python function returns."""

from dataclasses import dataclass

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json
from hvd_elastic.client.job_lookup import description_of
from hvd_elastic.client.report.job_facts import JobFactReader, JobFacts
from hvd_elastic.client.report.job_state import JobState, find_state, last_failure, may_train
from hvd_elastic.client.report.missing_pods import operator_words
from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.client.report.stage_status import StageStatus, stage_status
from hvd_elastic.client.report.words.time_words import clock_words, date_words, duration_words
from hvd_elastic.client.report.worker_status import WorkerPodState, WorkerStatus, worker_statuses
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.discovery.kube.node_exclusion import excluded_nodes
from hvd_elastic.discovery.ledger.account import JobAccount, fold, machine_key
from hvd_elastic.discovery.ledger.entries import RankSlow
from hvd_elastic.discovery.ledger.history.slow_rank_history import slow_now
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.discovery.ledger.record_gap import has_gap
from hvd_elastic.discovery.rules.cluster_views import PodView, unix_seconds
from hvd_elastic.discovery.rules.restart_budget import backoff_limit, own_failures
from hvd_elastic.mpijob.contract import ANNOTATION_WANTED_WORKERS, LABEL_FLOOR, LEDGER_SUFFIX, Role
from hvd_elastic.system.plain_words import count_words
from hvd_elastic.system.untrusted_values import decimal_count, whole_number

_WAY_OUT = "Its sidecar writes it again; `hvd-elastic submit` makes it where it may not"
_GOES_ON = "the MPIJob says Failed/MPIJobEvicted because a worker was evicted: the job goes on"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What is known of a job. None, and a step of -1: not known. Counters are over the job's life."""

    name: str
    namespace: str
    state: JobState
    since: float | None
    """Unix seconds since which it is in this state."""
    why: str
    """Why it is in this state, where that says more."""
    now: float
    """Unix seconds of the API server's clock when this was read."""
    size: int
    """How many workers train."""
    min_workers: int
    max_workers: int
    wanted: int
    floor: int = 0
    """Workers that inference is not to preempt."""
    workers: tuple[WorkerStatus, ...] = ()
    step: int = -1
    steps_per_second: float | None = None
    loss: float | None = None
    heartbeat_age_seconds: float | None = None
    """How old the last step was when the sidecar last spoke of it; None: nobody trains."""
    figures_age_seconds: float | None = None
    """How long ago step, speed and loss were true; None: not known."""
    word_age_seconds: float | None = None
    """How long ago the sidecar last spoke."""
    durable_step: int = -1
    durable_age_seconds: float | None = None
    """Since the last durable checkpoint."""
    save_error: str = ""
    """Why nothing gets durable; empty: nothing says that it does not, or nobody trains."""
    rejected: str = ""
    """The newest checkpoint, and why training did not begin with it; empty: it did, or there was none."""
    slow: tuple[RankSlow, ...] = ()
    """The ranks for which the others wait, by number; empty: none is much slower, or nobody trains."""
    samples: str = ""
    """What the certificate of samples proved at the end of the last epoch; empty: no epoch has ended, or no word."""
    resizes: int = 0
    pause_seconds: float = 0.0
    """How long training stood still in all its resizes."""
    repeated_steps: int = 0
    preemptions: int = 0
    restarts_used: int = 0
    restarts: int = 0
    """How many launchers may follow one that failed by itself. Those that were taken away do not count."""
    last_failure: str = ""
    """How the last launcher ended that failed by itself; empty: none did."""
    has_ledger: bool = False
    counts_since: float | None = None
    """Unix seconds since which the counters count, because their record was lost; None: since the job began."""
    stage: StageStatus | None = None
    """The data set that training waits for; None: it waits for none."""
    autoscaler: ScalingNote | None = None
    """The last change by `hvd-elastic autoscale`; None: there was none."""
    notes: tuple[str, ...] = ()
    """What one might take amiss, and what somebody has changed by hand."""


def status(cluster: ClusterClient, name: str, namespace: str | None = None) -> JobStatus:
    """Read a job and say the truth about it. Raises UnknownJobError, ForeignJobError or another ClusterError."""
    return job_status(JobFactReader(cluster).read(name, namespace or cluster.namespace))


def job_status(facts: JobFacts) -> JobStatus:
    """What these facts say."""
    found, live, slow = find_state(facts), facts.live, slow_now(facts.ledger or ())
    workers = worker_statuses(facts, trains=found.state in {JobState.TRAINING, JobState.STALLED}, slow=slow)
    account = account_of(facts)
    lowest, highest = worker_bounds(facts.job)
    training = found.state is JobState.TRAINING
    return JobStatus(
        name=facts.name,
        namespace=facts.namespace,
        state=found.state,
        since=found.since,
        why=found.why,
        now=facts.now,
        size=_size(facts, workers) if training else 0,
        min_workers=lowest,
        max_workers=highest,
        wanted=_wanted(facts.job),
        floor=_floor(facts.job),
        workers=workers,
        step=_last_step(account, live, found.state),
        steps_per_second=live.steps_per_second if live and training else None,
        loss=live.loss if live else None,
        heartbeat_age_seconds=live.unix - live.stepped if live and live.stepped and training else None,
        figures_age_seconds=facts.now - live.stepped if live and live.stepped else None,
        word_age_seconds=facts.now - live.unix if live else None,
        durable_step=live.durable_step if live else -1,
        durable_age_seconds=facts.now - live.durable if live and live.durable else None,
        save_error=live.save_error if live and not found.state.is_final else "",
        rejected=live.rejected if live else "",
        slow=slow if training else (),
        samples=live.samples if live else "",
        resizes=account.resizes,
        pause_seconds=account.pause_seconds,
        repeated_steps=account.repeated_steps,
        preemptions=account.preemptions,
        restarts_used=_restarts_used(facts),
        restarts=_restarts(facts),
        last_failure=last_failure(facts),
        has_ledger=facts.ledger is not None,
        counts_since=account.counts_since,
        stage=None if found.state.is_final else stage_status(facts.stage),
        autoscaler=ScalingNote.of_job(facts.job),
        notes=_notes(facts, found.state),
    )


def account_of(facts: JobFacts) -> JobAccount:
    """The job's sums: those of its ledger, or as its sidecar last told them where that is gone or lacks entries."""
    if facts.live and lacks_ledger(facts):
        return _account_of(facts.live)
    return fold(facts.ledger or (), settled_at(facts))


def lacks_ledger(facts: JobFacts) -> bool:
    """Whether the ledger is gone, or lacks entries that it had."""
    return facts.ledger is None or has_gap(facts.ledger, facts.live)


def settled_at(facts: JobFacts) -> float:
    """The time up to which the job's sums count: now, unless it has ended, or holds nothing while it is suspended."""
    status = facts.job.get("status") or {}
    if ended := status.get("completionTime"):
        return unix_seconds(ended)
    suspended = true_condition(facts.job, "Suspended")
    if suspended and not facts.pods_of(Role.WORKER):
        return unix_seconds(suspended.get("lastTransitionTime")) or facts.now
    return facts.now


def worker_bounds(job: Json) -> tuple[int, int]:
    """Min and max workers of the job's description."""
    description = description_of(job)
    workers = description.get("workers", {})
    if description and isinstance(workers, dict):
        # What equals its default is left out of it: `start` is min by default, and `max` is start.
        lowest = whole_number(workers.get("min", 1))
        highest = whole_number(workers.get("max", workers.get("start", lowest)))
        if lowest is not None and highest is not None:
            return lowest, highest
    return 1, _replicas(job)


def _replicas(job: Json) -> int:
    return int(((job.get("spec") or {}).get("mpiReplicaSpecs", {}).get("Worker") or {}).get("replicas") or 0)


def _replicas_words(facts: JobFacts) -> str:
    """What is amiss with a number of replicas that `scale` would not have set."""
    lowest, highest = worker_bounds(facts.job)
    replicas, way_out = _replicas(facts.job), f"hvd-elastic scale {facts.name} N sets another"
    if replicas == 0:
        return f"the MPIJob asks for 0 workers: the operator refuses that, and makes and deletes nothing; {way_out}"
    if replicas > highest:
        return f"the MPIJob asks for {count_words(replicas, 'worker')}: no more than {highest} train; {way_out}"
    if replicas < lowest:
        return f"the MPIJob asks for {count_words(replicas, 'worker')}: fewer than {lowest} do not train; {way_out}"
    return ""


def _size(facts: JobFacts, workers: tuple[WorkerStatus, ...]) -> int:
    """As the sidecar last told it, but never more than there are pods that may train."""
    if facts.live is None:
        return sum(worker.state is WorkerPodState.TRAINING for worker in workers)
    return min(facts.live.workers, len(may_train(facts)))


def _wanted(job: Json) -> int:
    said = decimal_count((job["metadata"].get("annotations") or {}).get(ANNOTATION_WANTED_WORKERS))
    return _replicas(job) if said is None else said


def _floor(job: Json) -> int:
    worker = ((job.get("spec") or {}).get("mpiReplicaSpecs") or {}).get("Worker") or {}
    template = worker.get("template") or {}
    return decimal_count(((template.get("metadata") or {}).get("labels") or {}).get(LABEL_FLOOR)) or 0


def _last_step(account: JobAccount, live: LiveStatus | None, state: JobState) -> int:
    """The ledger tells it at each change, the sidecar's last word in between."""
    spoken = live.step if live else -1
    first, second = (account.step, spoken) if state.is_final else (spoken, account.step)
    return first if first >= 0 else second


def _account_of(live: LiveStatus) -> JobAccount:
    """The sums that the sidecar last told. It does not tell on which machines GPUs were held."""
    return JobAccount(
        step=live.step,
        resizes=live.resizes,
        pause_seconds=live.pause_seconds,
        repeated_steps=live.repeated_steps,
        preemptions=live.preemptions,
        launchers=live.launchers,
        gpu_seconds={machine_key("", spot=None): live.gpu_seconds} if live.gpu_seconds else {},
        lent_gpu_seconds=live.lent_gpu_seconds,
        training_seconds=live.training_seconds,
        counts_since=live.counts_since,
    )


def _restarts(facts: JobFacts) -> int:
    return backoff_limit((facts.job.get("spec") or {}).get("runPolicy"))


def _restarts_used(facts: JobFacts) -> int:
    """One for each launcher that failed by itself, but for the last one of a job whose restarts are used up.

    Their pods stay, and the sidecar forgives the Job all others.
    """
    failures = own_failures(PodView.from_json(pod) for pod in facts.pods_of(Role.LAUNCHER))
    return min(failures, _restarts(facts))


def _notes(facts: JobFacts, state: JobState) -> tuple[str, ...]:
    failed, notes = true_condition(facts.job, "Failed"), []
    if failed and failed.get("reason") == "MPIJobEvicted" and not state.is_final:
        notes.append(_GOES_ON)
    if not state.is_final and (amiss := _replicas_words(facts)):
        notes.append(amiss)
    if not state.is_final and (alone := operator_words(facts)):
        notes.append(alone)
    if not state.is_final and (excluded := excluded_nodes(facts.job)):
        until = " and ".join(f"{node} until {date_words(time)}" for node, time in excluded.items())
        notes.append(f"new workers keep off {until}: one was slow there")
    if (since := account_of(facts).counts_since) is not None:
        notes.append(
            f"what was recorded before {clock_words(since, facts.now)} is lost: the counters count from then on"
        )
    if facts.live and not facts.unreadable and lacks_ledger(facts):
        fault = "is gone" if facts.ledger is None else "lacks entries that it had"
        age = duration_words(facts.now - facts.live.unix)
        notes.append(
            f"its ledger, ConfigMap {facts.name}{LEDGER_SUFFIX}, {fault}: counters as of {age} ago. {_WAY_OUT}"
        )
    elif facts.ledger is None and not facts.unreadable:
        notes.append("this job has no ledger: only what its pods and Events tell is known (generate it anew)")
    return (*notes, *facts.unreadable)
