"""HE5xx: who gives way to whom, and what queues and gangs make of it."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.lint.document.edit import Set
from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

_DEFAULT_VALUES: Final = {"inference-pc": 100_000_000, "preserved-pc": 90_000_000, "preemptible-pc": 80_000_001}
"""What `hvd-elastic priorityclasses` prints; for streams that do not hold the classes."""
_HIGHEST: Final = 1_000_000_000
_AUTOSCALER_CUTOFF: Final = -10
_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"


def _class_name(pod: View) -> View:
    return pod.get("priorityClassName")


def _value(job: LintedJob, name: str | None) -> int | None:
    """The class's value: as the stream says, else as ours of that name, else unknown."""
    if name is None:
        return None
    found = job.companions.named("PriorityClass", name)
    return found.get("value").number if found.exists else _DEFAULT_VALUES.get(name)


def _class(name: str, value: int, extra: str = "preemptionPolicy: Never") -> str:
    head = f"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}"
    return f"{head}\nvalue: {value}\n{extra}"


@rule(
    "HE501",
    "workers-without-class",
    Severity.WARNING,
    why="They have the cluster's default priority, mostly 0, as other pods have: the scheduler takes nothing from "
    "them for inference, or takes them before everything else, by chance of what the cluster's default is.",
    fix="Give the workers a class below inference's: `preemptible-pc` (`hvd-elastic priorityclasses` prints the "
    "three).",
    at=At.WORKER_POD,
    bad="spec: {priorityClassName: null}",
    good="spec: {priorityClassName: preemptible-pc}",
)
def workers_without_class(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic workers with no PriorityClass."""
    spec = job.worker.pod.spec
    if job.elastic and spec.exists and not _class_name(spec).exists:
        yield hit(_class_name(spec), "the workers have no PriorityClass")


@rule(
    "HE502",
    "launcher-not-above-workers",
    Severity.ERROR,
    why="When the launcher dies the whole job ends. With the workers' class or a lower one, or with none, the "
    "scheduler may take it first. `preemptionPolicy: Never` does not protect it: it only keeps a pod from "
    "preempting others.",
    fix="Give the launcher a class between the workers' and inference's: `preserved-pc`.",
    at=At.LAUNCHER_POD,
    bad="spec: {priorityClassName: preemptible-pc}",
    good="spec: {priorityClassName: preserved-pc}",
)
def launcher_not_above_workers(job: LintedJob) -> Iterator[Hit]:
    """Compares the launcher's PriorityClass with the workers'."""
    launcher, worker = _class_name(job.launcher.pod.spec), _class_name(job.worker.pod.spec)
    if not job.elastic or not worker.text or not job.launcher.pod.spec.exists:
        return
    mine, theirs = _value(job, launcher.text), _value(job, worker.text)
    if not launcher.text:
        yield hit(launcher, f"the launcher has no class, the workers have {worker.text}")
    elif launcher.text == worker.text:
        yield hit(launcher, "the launcher has the workers' class")
    elif mine is not None and theirs is not None and mine <= theirs:
        yield hit(launcher, f"{launcher.text} ({mine}) is not above the workers' {worker.text} ({theirs})")


@rule(
    "HE503",
    "training-preempts",
    Severity.WARNING,
    why="`preemptionPolicy` is PreemptLowerPriority unless set: a worker that comes back then takes GPUs from other "
    "jobs of lower priority, and two elastic jobs with different classes push each other about. A sponge only "
    "takes what is idle.",
    fix="Set `preemptionPolicy: Never` on the classes that training uses.",
    at=At.STREAM,
    bad=_class("preemptible-pc", 80_000_001, "preemptionPolicy: PreemptLowerPriority"),
    good=_class("preemptible-pc", 80_000_001),
)
def training_preempts(job: LintedJob) -> Iterator[Hit]:
    """Finds classes of the job's pods that preempt others."""
    for replica in (job.launcher, job.worker):
        name = _class_name(replica.pod.spec)
        found = job.companions.named("PriorityClass", name.text)
        if job.elastic and found.exists and found.get("preemptionPolicy").value != "Never":
            yield hit(name, f"pods of {name.text} preempt pods of lower priority")


@rule(
    "HE504",
    "bad-priority-class",
    Severity.ERROR,
    why="Values above 1000000000 and names that begin with `system-` are Kubernetes' own and refused. Pods below -10 "
    "are ignored by the Cluster Autoscaler: no node is ever added for them. As `globalDefault` a training class "
    "becomes that of every pod without one, inference included.",
    fix="Take values such as `hvd-elastic priorityclasses` prints, and no globalDefault.",
    at=At.STREAM,
    bad=_class("preemptible-pc", -20),
    good=_class("preemptible-pc", 80_000_001),
)
def bad_priority_class(job: LintedJob) -> Iterator[Hit]:
    """Checks the PriorityClasses of the stream that the job uses: bounds, names, default."""
    for name in {view.text: view for view in (_class_name(r.pod.spec) for r in (job.launcher, job.worker))}.values():
        found = job.companions.named("PriorityClass", name.text)
        value = found.get("value").number
        if name.text and name.text.startswith("system-"):
            yield hit(name, "`system-` classes are for Kubernetes' own pods")
        if value is not None and value > _HIGHEST:
            yield hit(name, f"{name.text} is {value}, above {_HIGHEST}")
        if value is not None and value < _AUTOSCALER_CUTOFF:
            yield hit(name, f"{name.text} is {value}, below the Cluster Autoscaler's cutoff of {_AUTOSCALER_CUTOFF}")
        if found.get("globalDefault").value is True:
            yield hit(name, f"{name.text} is the default of every pod without a class")


def _queued(job: LintedJob) -> View:
    return job.view.get("metadata", "labels", _KUEUE_QUEUE)


@rule(
    "HE505",
    "queue-takes-launcher-priority",
    Severity.WARNING,
    why="Kueue takes a job's priority from schedulingPolicy, then from the launcher, then from the workers: the "
    "launcher's high class then lifts the whole job over others in the queue.",
    fix="Set `runPolicy.schedulingPolicy.priorityClass` to the workers' class.",
    at=At.JOB,
    bad="""
metadata: {labels: {kueue.x-k8s.io/queue-name: team}}
spec: {runPolicy: {schedulingPolicy: {priorityClass: null}}}
""",
    good="""
metadata: {labels: {kueue.x-k8s.io/queue-name: team}}
spec: {runPolicy: {schedulingPolicy: {priorityClass: preemptible-pc}}}
""",
)
def queue_takes_launcher_priority(job: LintedJob) -> Iterator[Hit]:
    """Finds jobs in a Kueue queue without `schedulingPolicy.priorityClass`."""
    field = job.spec.get("runPolicy", "schedulingPolicy", "priorityClass")
    worker = _class_name(job.worker.pod.spec)
    launcher = _class_name(job.launcher.pod.spec)
    workload = job.view.get("metadata", "labels", "kueue.x-k8s.io/priority-class")
    if (
        _queued(job).exists
        and not field.exists
        and not workload.exists
        and launcher.text
        and launcher.text != worker.text
    ):
        edits = (Set(field.path, worker.text),) if worker.text else ()
        yield hit(field, f"the whole job queues with the launcher's class {launcher.text}", *edits)


@rule(
    "HE506",
    "gang-of-all",
    Severity.WARNING,
    why="Where the operator makes a PodGroup (Volcano, scheduler-plugins), its minMember is workers + 1 unless set: "
    "the gang waits for the maximum, and an elastic job never starts small. Without gang scheduling the field has "
    "no effect.",
    fix="Set `runPolicy.schedulingPolicy.minAvailable` to the minimum of workers + 1.",
    at=At.JOB,
    bad="spec: {runPolicy: {schedulingPolicy: {minAvailable: null}}}",
    good="spec: {runPolicy: {schedulingPolicy: {minAvailable: 2}}}",
)
def gang_of_all(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic jobs without `schedulingPolicy.minAvailable`."""
    field = job.spec.get("runPolicy", "schedulingPolicy", "minAvailable")
    if job.elastic and not field.exists:
        wanted = _gang(job)
        edits = (Set(field.path, wanted),) if wanted else ()
        yield hit(field, "a gang would wait for every worker", *edits)


@rule(
    "HE507",
    "gang-not-minimum",
    Severity.WARNING,
    why="Above it, the gang waits for workers that training does not need; below it, pods are started that cannot "
    "train yet and hold their GPUs.",
    fix="Set it to the minimum of workers + 1, for the launcher.",
    at=At.JOB,
    bad="spec: {runPolicy: {schedulingPolicy: {minAvailable: 9}}}",
    good="spec: {runPolicy: {schedulingPolicy: {minAvailable: 2}}}",
)
def gang_not_minimum(job: LintedJob) -> Iterator[Hit]:
    """Compares `schedulingPolicy.minAvailable` with the minimum of workers + 1."""
    field = job.spec.get("runPolicy", "schedulingPolicy", "minAvailable")
    wanted = _gang(job)
    if job.elastic and wanted and field.number is not None and field.number != wanted:
        yield hit(field, f"the minimum of workers + 1 is {wanted}", Set(field.path, wanted))


def _gang(job: LintedJob) -> int | None:
    """Pods that the job needs to train: the launcher, and as many workers as `--min-np` takes."""
    low, slots = job.min_np, job.host_slots
    if low is None or not slots or low < 1 or slots < 1:
        return None
    return -(-low // slots) + 1
