"""HE15x: numbers of processes, slots and workers that fit each other."""

from collections.abc import Iterator

from hvd_elastic.mpijob.lint.model.argv import add_flag
from hvd_elastic.mpijob.lint.model.horovodrun_flags import Launcher
from hvd_elastic.mpijob.lint.model.host_script import prints_no_slots
from hvd_elastic.mpijob.lint.model.linted_job import GPU_RESOURCES, LintedJob, Version
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

_BASE = "--network-interface, eth0, --host-discovery-script, /run/hvd-elastic/discover-hosts, python, train.py]"


def _flag_hit(job: LintedJob, name: str, message: str) -> Hit:
    """A hit on a flag's value, or on the launcher's name where it is not written."""
    flag = job.call.flags.get(name)
    if flag and flag.values:
        return Hit(path=flag.values[0].path, value=flag.text, message=message)
    head = job.call.head[-1]
    return Hit(path=head.path, value=head.text, message=message)


@rule(
    "HE151",
    "process-bounds",
    Severity.ERROR,
    why="With other orders the job waits for processes that it will not start, or ends at the first resize.",
    fix="`--min-np` is the size training can live with, `-np` the one the first step waits for, `--max-np` the most "
    "it uses.",
    at=At.LAUNCHER,
    bad=f'command: [horovodrun, -np, "2", --min-np, "3", --max-np, "8", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def process_bounds(job: LintedJob) -> Iterator[Hit]:
    """Checks that 1 <= `--min-np` <= `-np` <= `--max-np`."""
    start, low, high = (job.call.number(name) for name in ("-np", "--min-np", "--max-np"))
    if start is not None and start < 1:
        yield _flag_hit(job, "-np", "at least one process must start")
    if low is not None and low < 1:
        yield _flag_hit(job, "--min-np", "at least one process must remain")
    if low is not None and start is not None and low > start:
        yield _flag_hit(job, "--min-np", f"--min-np {low} is above -np {start}")
    if high is not None and start is not None and high < start:
        yield _flag_hit(job, "--max-np", f"--max-np {high} is below -np {start}")


@rule(
    "HE152",
    "never-starts",
    Severity.ERROR,
    why="The launcher waits for `-np` processes until `--elastic-timeout` (600 s) and then fails, holding its workers "
    "meanwhile.",
    fix="Raise the worker replicas or the slots, or lower `-np` and `--min-np`. For elastic jobs set the replicas to "
    "the maximum: the scheduler then soaks idle capacity up by itself.",
    at=At.LAUNCHER,
    bad=f'command: [horovodrun, -np, "64", --min-np, "1", --max-np, "64", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def never_starts(job: LintedJob) -> Iterator[Hit]:
    """Finds jobs whose workers have fewer slots than the first step, or the minimum, waits for."""
    capacity = job.capacity
    for name in ("-np", "--min-np"):
        number = job.call.number(name)
        if job.elastic and capacity is not None and number is not None and number > capacity:
            yield _flag_hit(
                job, name, f"{job.worker.replicas} workers x {job.host_slots} slots are only {capacity} processes"
            )


@rule(
    "HE153",
    "max-above-capacity",
    Severity.WARNING,
    why="No such size can be reached: the operator makes no more worker pods than `replicas`, and an MPIJob has no "
    "scale subresource that something could raise (mpi-operator issue 336).",
    fix="Set the worker replicas to `--max-np` / slots.",
    at=At.LAUNCHER,
    bad=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "64", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def max_above_capacity(job: LintedJob) -> Iterator[Hit]:
    """Finds `--max-np` above worker replicas x slots."""
    capacity, high = job.capacity, job.call.number("--max-np")
    if job.elastic and capacity is not None and high is not None and high > capacity:
        message = f"{job.worker.replicas} workers x {job.host_slots} slots are only {capacity} processes"
        yield _flag_hit(job, "--max-np", message)


@rule(
    "HE154",
    "no-min-np",
    Severity.WARNING,
    why="It is `-np` then: the job cannot shrink below its first size. A preemption makes it stand still until the "
    "worker is back, and fail after `--elastic-timeout`.",
    fix="Set `--min-np`; 1 is right for most preemptible training.",
    at=At.LAUNCHER,
    bad=f'command: [horovodrun, -np, "2", --max-np, "8", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def no_min_np(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic jobs without `--min-np`."""
    if job.elastic and "--min-np" not in job.call.flags and (job.call.number("-np") or 1) > 1:
        yield _flag_hit(job, "-np", "without --min-np the job stands still as soon as one worker is preempted")


@rule(
    "HE155",
    "no-max-np",
    Severity.WARNING,
    why="It is unbounded in Horovod's code, whatever its documentation says: the world grows to whatever discovery "
    "prints, and learning rate and batch with it.",
    fix="Set `--max-np` to worker replicas x slots.",
    at=At.LAUNCHER,
    bad=f'command: [horovodrun, -np, "2", --min-np, "1", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def no_max_np(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic jobs without `--max-np`."""
    if not job.elastic or "--max-np" in job.call.flags or not job.call.head:
        return
    found = _flag_hit(job, "-np", "the number of processes has no upper bound")
    edits = (
        add_flag(job, "--max-np", str(job.capacity))
        if job.capacity and job.capacity >= (job.call.number("-np") or 1)
        else ()
    )
    yield Hit(path=found.path, value=found.value, message=found.message, edits=edits)


@rule(
    "HE156",
    "no-np",
    Severity.ERROR,
    why="argparse requires it, elastic or not, and ends the launcher at once.",
    fix="Set `-np` to the number of processes that the first step waits for.",
    at=At.LAUNCHER,
    bad=f'command: [horovodrun, --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def no_np(job: LintedJob) -> Iterator[Hit]:
    """Finds horovodrun without `-np`."""
    asks_only = {"--version", "--help", "--check-build", "--config-file"} & job.call.flags.keys()
    if job.call.launcher is Launcher.HOROVODRUN and "-np" not in job.call.flags and not asks_only:
        yield _flag_hit(job, "-np", "horovodrun requires -np")


@rule(
    "HE157",
    "slots-mismatch",
    Severity.WARNING,
    why="The operator writes `slotsPerWorker` into its hostfile and, in v1, its discovery script; horovodrun takes "
    "`--slots-per-host` where the script prints none. Two numbers for one thing: one of them is not what you "
    "meant.",
    fix="Write the same number in both.",
    at=At.JOB,
    bad="spec: {slotsPerWorker: 4}",
    good="spec: {slotsPerWorker: 1}",
)
def slots_mismatch(job: LintedJob) -> Iterator[Hit]:
    """Compares `--slots-per-host` with `spec.slotsPerWorker`."""
    flag = job.call.number("--slots-per-host")
    if job.elastic and flag is not None and flag != job.slots:
        yield hit(job.spec.get("slotsPerWorker"), f"--slots-per-host is {flag}, slotsPerWorker is {job.slots}")


@rule(
    "HE158",
    "slots-not-gpus",
    Severity.WARNING,
    why="Horovod runs one process a GPU. With fewer, paid GPUs idle; with more, two processes share one and its "
    "memory.",
    fix="Set the slots to the worker's GPU limit.",
    at=At.WORKER,
    bad='resources: {limits: {cpu: "8", memory: 32Gi, nvidia.com/gpu: 4}}',
    good='resources: {limits: {cpu: "8", memory: 32Gi, nvidia.com/gpu: 1}}',
)
def slots_not_gpus(job: LintedJob) -> Iterator[Hit]:
    """Compares the processes of a worker with its GPUs."""
    slots = job.host_slots
    for name in GPU_RESOURCES:
        limit = job.worker.pod.main.resource(name)
        gpus = limit.amount
        if gpus and slots is not None and gpus != slots and not job.described:
            yield hit(limit, f"{gpus} GPUs, but {slots} processes a worker")


@rule(
    "HE159",
    "no-slots",
    Severity.ERROR,
    why="A host with neither becomes `{host: None}` and the driver ends with a TypeError (run). The operator's "
    "discover_hosts.sh of v2beta1 prints no slots.",
    fix="Set `--slots-per-host` to `slotsPerWorker`.",
    at=At.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --min-np, "1", --host-discovery-script, /etc/mpi/discover_hosts.sh, python,
  t.py]
""",
    good="""
command: [horovodrun, -np, "2", --min-np, "1", --slots-per-host, "1", --host-discovery-script,
  /etc/mpi/discover_hosts.sh,
  python, t.py]
""",
)
def no_slots(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic horovodrun without `--slots-per-host` whose discovery script prints no slots."""
    script = job.script
    if not job.elastic or script is None or "--slots-per-host" in job.call.flags or not prints_no_slots(job):
        return
    operator = job.version is Version.V2BETA1 and job.slots > 0
    edits = add_flag(job, "--slots-per-host", str(job.slots)) if operator else ()
    message = "the discovery script prints no slots and --slots-per-host is not set"
    yield Hit(path=script.values[0].path, value=script.text, message=message, edits=edits)
