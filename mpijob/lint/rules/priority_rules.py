"""HE5xx: PriorityClasses, queues and gang scheduling."""

import re
from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.contract import KUEUE_QUEUE, LABEL_FLOOR
from hvd_elastic.mpijob.lint.document.manifest_edit import SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation
from hvd_elastic.priorityclasses import DEFAULTS
from hvd_elastic.system.untrusted_values import decimal_count

_DEFAULT_VALUES: Final = {one.name: one.value for one in DEFAULTS}
"""The values that `hvd-elastic priorityclasses` prints, used if the stream does not have the classes."""
_INFERENCE: Final = max(_DEFAULT_VALUES.values())
_HIGHEST: Final = 1_000_000_000
_GANG_EVICTION: Final = re.compile(r"\bgang(preempt|reclaim)\b", re.IGNORECASE)
"""Actions of Volcano 1.16 that evict a job as a bundle (its `pkg/scheduler/actions/gangpreempt`)."""
_AUTOSCALER_CUTOFF: Final = -10


def _class_name(pod: ManifestView) -> ManifestView:
    return pod.get("priorityClassName")


def _value(job: LintedJob, name: str | None) -> int | None:
    """The value of the class: from the stream, else that of hvd-elastic's class of that name, else None."""
    if name is None:
        return None
    found = job.related_objects.named("PriorityClass", name)
    return found.get("value").number if found.exists else _DEFAULT_VALUES.get(name)


def _class(name: str, value: int, extra: str = "preemptionPolicy: Never") -> str:
    head = f"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}"
    return f"{head}\nvalue: {value}\n{extra}"


@rule(
    "HE501",
    "workers-without-class",
    Severity.WARNING,
    why="Without a class the workers have the cluster's default priority, usually 0, like other pods. It depends on "
    "that default whether the scheduler takes nothing from them for inference, or takes them before everything else.",
    fix="Give the workers a class below that of inference: `preemptible-pc` (`hvd-elastic priorityclasses` prints it).",
    part=ManifestPart.WORKER_POD,
    bad="spec: {priorityClassName: null}",
    good="spec: {priorityClassName: preemptible-pc}",
)
def workers_without_class(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic workers without a PriorityClass."""
    spec = job.worker.pod.spec
    if job.elastic and spec.exists and not _class_name(spec).exists:
        yield violation(_class_name(spec), "the workers have no PriorityClass")


@rule(
    "HE502",
    "launcher-not-above-workers",
    Severity.ERROR,
    why="When the launcher dies, the whole job ends. If its class is not above the workers', or it has none, the "
    "scheduler may preempt it first. `preemptionPolicy: Never` does not protect it: it only keeps a pod from "
    "preempting others.",
    fix="Give the launcher a class between those of the workers and of inference: `preserved-pc`.",
    part=ManifestPart.LAUNCHER_POD,
    bad="spec: {priorityClassName: preemptible-pc}",
    good="spec: {priorityClassName: preserved-pc}",
)
def launcher_not_above_workers(job: LintedJob) -> Iterator[Violation]:
    """Compares the launcher's PriorityClass with the workers'."""
    launcher, worker = _class_name(job.launcher.pod.spec), _class_name(job.worker.pod.spec)
    if not job.elastic or not worker.text or not job.launcher.pod.spec.exists:
        return
    launcher_value, worker_value = _value(job, launcher.text), _value(job, worker.text)
    if not launcher.text:
        yield violation(launcher, f"the launcher has no PriorityClass; the workers have {worker.text}")
    elif launcher.text == worker.text:
        yield violation(launcher, "the launcher has the same class as the workers")
    elif launcher_value is not None and worker_value is not None and launcher_value <= worker_value:
        yield violation(
            launcher, f"{launcher.text} ({launcher_value}) is not above the workers' {worker.text} ({worker_value})"
        )


@rule(
    "HE503",
    "training-preempts",
    Severity.WARNING,
    why="`preemptionPolicy` is PreemptLowerPriority by default: a returning worker then takes GPUs from other jobs of "
    "lower priority, and two elastic jobs of different classes keep displacing each other. An elastic job should only "
    "take what is idle.",
    fix="Set `preemptionPolicy: Never` on the classes that training uses.",
    part=ManifestPart.RELATED_OBJECT,
    bad=_class("preemptible-pc", 80_000_001, "preemptionPolicy: PreemptLowerPriority"),
    good=_class("preemptible-pc", 80_000_001),
)
def training_preempts(job: LintedJob) -> Iterator[Violation]:
    """Finds PriorityClasses of the job's pods that preempt other pods."""
    for replica in (job.launcher, job.worker):
        name = _class_name(replica.pod.spec)
        found = job.related_objects.named("PriorityClass", name.text)
        if job.elastic and found.exists and found.get("preemptionPolicy").value != "Never":
            yield violation(name, f"pods of {name.text} preempt pods of lower priority")


@rule(
    "HE504",
    "bad-priority-class",
    Severity.ERROR,
    why="Kubernetes rejects values above 1000000000 and names that begin with `system-`, which it reserves for "
    "itself. The Cluster Autoscaler ignores pods below -10: it never adds a node for them. With `globalDefault` a "
    "training class applies to every pod without a class, including inference.",
    fix="Use values such as those that `hvd-elastic priorityclasses` prints, without globalDefault.",
    part=ManifestPart.RELATED_OBJECT,
    bad=_class("preemptible-pc", -20),
    good=_class("preemptible-pc", 80_000_001),
)
def bad_priority_class(job: LintedJob) -> Iterator[Violation]:
    """Checks the PriorityClasses that the job uses, if the files include them: value, name and globalDefault."""
    for name in {view.text: view for view in (_class_name(r.pod.spec) for r in (job.launcher, job.worker))}.values():
        found = job.related_objects.named("PriorityClass", name.text)
        value = found.get("value").number
        if name.text and name.text.startswith("system-"):
            yield violation(name, "`system-` classes are for Kubernetes' own pods")
        if value is not None and value > _HIGHEST:
            yield violation(name, f"{name.text} is {value}, above {_HIGHEST}")
        if value is not None and value < _AUTOSCALER_CUTOFF:
            yield violation(
                name, f"{name.text} is {value}, below the Cluster Autoscaler's cutoff of {_AUTOSCALER_CUTOFF}"
            )
        if found.get("globalDefault").value is True:
            yield violation(name, f"{name.text} is the default of every pod without a class")


def _queued(job: LintedJob) -> ManifestView:
    return job.view.get("metadata", "labels", KUEUE_QUEUE)


@rule(
    "HE505",
    "queue-takes-launcher-priority",
    Severity.WARNING,
    why="Kueue takes a job's priority from schedulingPolicy, else from the launcher, else from the workers. The "
    "launcher's high class then lifts the whole job above others in the queue.",
    fix="Set `runPolicy.schedulingPolicy.priorityClass` to the workers' class.",
    part=ManifestPart.JOB,
    bad="""
metadata: {labels: {kueue.x-k8s.io/queue-name: team}}
spec: {runPolicy: {schedulingPolicy: {priorityClass: null}}}
""",
    good="""
metadata: {labels: {kueue.x-k8s.io/queue-name: team}}
spec: {runPolicy: {schedulingPolicy: {priorityClass: preemptible-pc}}}
""",
)
def queue_takes_launcher_priority(job: LintedJob) -> Iterator[Violation]:
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
        edits = (SetValue(field.path, worker.text),) if worker.text else ()
        yield violation(field, f"the whole job is queued with the launcher's class {launcher.text}", *edits)


@rule(
    "HE506",
    "gang-of-all",
    Severity.WARNING,
    why="If the operator creates a PodGroup (Volcano, scheduler-plugins), its minMember defaults to workers + 1: the "
    "gang waits for the maximum, and an elastic job never starts small. Without gang scheduling the field has no "
    "effect.",
    fix="Set `runPolicy.schedulingPolicy.minAvailable` to the minimum number of workers + 1.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {schedulingPolicy: {minAvailable: null}}}",
    good="spec: {runPolicy: {schedulingPolicy: {minAvailable: 2}}}",
)
def gang_of_all(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs without `schedulingPolicy.minAvailable`."""
    field = job.spec.get("runPolicy", "schedulingPolicy", "minAvailable")
    if job.elastic and not field.exists:
        wanted = _gang(job)
        edits = (SetValue(field.path, wanted),) if wanted else ()
        yield violation(field, "a gang would wait for every worker", *edits)


@rule(
    "HE507",
    "gang-not-minimum",
    Severity.WARNING,
    why="If `minAvailable` is above the minimum number of workers + 1, the gang waits for workers that training does "
    "not need. If it is below, pods are started that cannot train yet and hold their GPUs.",
    fix="Set `minAvailable` to the minimum number of workers + 1, for the launcher.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {schedulingPolicy: {minAvailable: 9}}}",
    good="spec: {runPolicy: {schedulingPolicy: {minAvailable: 2}}}",
)
def gang_not_minimum(job: LintedJob) -> Iterator[Violation]:
    """Compares `schedulingPolicy.minAvailable` with the minimum number of workers + 1."""
    field = job.spec.get("runPolicy", "schedulingPolicy", "minAvailable")
    wanted = _gang(job)
    if job.elastic and wanted and field.number is not None and field.number != wanted:
        yield violation(field, f"the minimum number of workers + 1 is {wanted}", SetValue(field.path, wanted))


@rule(
    "HE508",
    "gang-waits-for-launcher",
    Severity.ERROR,
    keeps_from_starting=True,
    # mpi-operator 0.8.2, pkg/controller/podgroup.go, calculateMinAvailable; issue 608.
    why="A gang scheduler places no pod until as many as `minAvailable` exist, which is workers + 1 if it is not set. "
    "With WaitForWorkersReady the launcher is only created once the workers are Ready: each waits for the other "
    "indefinitely (mpi-operator issue 608).",
    fix="Set `runPolicy.schedulingPolicy.minAvailable` to the number of workers, or use AtStartup.",
    part=ManifestPart.JOB,
    bad="""
spec:
  launcherCreationPolicy: WaitForWorkersReady
  runPolicy: {schedulingPolicy: {queue: team, minAvailable: null}}
  mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: launcher, command: [mpirun], args: [./a]}]}}}}
""",
    good="""
spec:
  launcherCreationPolicy: WaitForWorkersReady
  runPolicy: {schedulingPolicy: {queue: team, minAvailable: 8}}
  mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: launcher, command: [mpirun], args: [./a]}]}}}}
""",
)
def gang_waits_for_launcher(job: LintedJob) -> Iterator[Violation]:
    """Finds static jobs whose gang is larger than the workers that exist before the launcher does."""
    policy = job.spec.get("runPolicy", "schedulingPolicy")
    pods = (job.launcher.pod.spec, job.worker.pod.spec)
    gang = bool(policy.value) or any(pod.get("schedulerName").text not in (None, "default-scheduler") for pod in pods)
    waits = job.spec.get("launcherCreationPolicy").value == "WaitForWorkersReady"
    workers, field = job.worker.replicas, policy.get("minAvailable")
    if job.elastic or not waits or not gang or not workers:  # HE309 is about elastic jobs
        return
    if not field.exists or (field.number is not None and field.number > workers):
        yield violation(
            field,
            f"a gang of {field.number or workers + 1} pods, of which {workers} can exist before it is placed",
            SetValue(field.path, workers),
        )


@rule(
    "HE509",
    "group-taken-whole",
    Severity.WARNING,
    why="A group that is disrupted as one loses all of its workers where one would do. A PodGroup of Kubernetes 1.37 "
    "with `disruptionMode: {all: {}}` is preempted whole, and so is a job by Volcano's actions gangpreempt and "
    "gangreclaim, once its surplus above minAvailable is not enough.",
    fix="Leave `disruptionMode` out, which means `single`. In Volcano use `preempt` and `reclaim`, or set "
    "`allowWholeBundle: false` for both actions.",
    part=ManifestPart.RELATED_OBJECT,
    bad="""
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: fashion}
spec: {disruptionMode: {all: {}}}
""",
    good="""
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: fashion}
spec: {disruptionMode: {single: {}}}
""",
)
def group_taken_whole(job: LintedJob) -> Iterator[Violation]:
    """Finds PodGroups of the job that are disrupted as one, and Volcano's actions that evict jobs so."""
    if not job.elastic:
        return
    pods = (job.launcher.pod.spec, job.worker.pod.spec)
    named = {job.name, *(pod.get("schedulingGroup", "podGroupName").text for pod in pods)}
    for group in job.related_objects.of_kind("PodGroup", namespace=job.namespace):
        name = group.get("metadata", "name").text
        if name in named and group.get("spec", "disruptionMode", "all").exists:
            yield violation(job.view.get("metadata", "name"), f"PodGroup {name!r} is disrupted as a whole")
    if all(pod.get("schedulerName").text != "volcano" for pod in pods):
        return
    for config in job.related_objects.of_kind("ConfigMap"):
        texts = [text for _, view in config.get("data").pairs() if (text := view.text)]
        if any(_GANG_EVICTION.search(text) and "allowWholeBundle: false" not in text for text in texts):
            name = config.get("metadata", "name").text
            yield violation(pods[1].get("schedulerName"), f"Volcano as {name!r} has it evicts a job as a whole")


@rule(
    "HE510",
    "floor-not-kept",
    Severity.ERROR,
    why="The label `hvd-elastic.dev/floor` says how many of the first workers inference may not preempt. The platform "
    "kit's policy refuses a pod whose label is not a number. If the launcher's class is below inference, it goes "
    "before them, and the whole job with it.",
    fix="Have `hvd-elastic generate` write both, from `workers.floor`.",
    part=ManifestPart.JOB,
    bad="""
spec:
  mpiReplicaSpecs:
    Worker: {template: {metadata: {labels: {hvd-elastic.dev/floor: "2"}}}}
""",
    good="""
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {priorityClassName: floor-pc}}}
    Worker: {template: {metadata: {labels: {hvd-elastic.dev/floor: "2"}}}}
""",
)
def floor_not_kept(job: LintedJob) -> Iterator[Violation]:
    """Checks the label of a floor, and the launcher's class beside it."""
    label = job.worker.pod.template.get("metadata", "labels", LABEL_FLOOR)
    if not label.exists:
        return
    if decimal_count(label.text) is None:
        yield violation(label, "is not a number of workers: the policy refuses every worker")
    launcher = _class_name(job.launcher.pod.spec)
    value = _value(job, launcher.text)
    if value is not None and value < _INFERENCE:
        yield violation(launcher, f"{launcher.text} ({value}) is below inference, which takes the launcher first")


def _gang(job: LintedJob) -> int | None:
    """Number of pods that the job needs to train: the launcher, and enough workers for `--min-np`."""
    low, slots = job.min_np, job.host_slots
    if low is None or not slots or low < 1 or slots < 1:
        return None
    return -(-low // slots) + 1
