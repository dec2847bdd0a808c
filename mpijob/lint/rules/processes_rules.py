"""HE15x: numbers of processes, slots and workers, and whether they fit together."""

from collections.abc import Iterator
from dataclasses import replace

from hvd_elastic.mpijob.clouds.accelerators import ONE_ONLY, find_accelerator
from hvd_elastic.mpijob.lint.job.discovery_script import prints_no_slots
from hvd_elastic.mpijob.lint.job.flag_edits import add_flag
from hvd_elastic.mpijob.lint.job.launcher_command_line import LauncherProgram
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, MPIJobVersion
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation
from hvd_elastic.system.plain_words import count_words

_BASE = "--network-interface, eth0, --host-discovery-script, /run/hvd-elastic/discover-hosts, python, train.py]"


def _on_flag(job: LintedJob, name: str, message: str) -> Violation:
    """A violation by a flag's value, or by the launcher's name if the flag is missing."""
    flag = job.command_line.flags.get(name)
    if flag and flag.values:
        return Violation(path=flag.values[0].path, value=flag.text, message=message)
    head = job.command_line.program_words[-1]
    return Violation(path=head.path, value=head.text, message=message)


def _capacity_words(job: LintedJob) -> str:
    workers, slots = count_words(job.worker.replicas or 0, "worker"), count_words(job.host_slots or 0, "slot")
    workers = f"{workers} and the launcher" if job.launcher_trains else workers
    return f"{workers} x {slots} make only {count_words(job.capacity or 0, 'process')}"


@rule(
    "HE151",
    "process-bounds",
    Severity.ERROR,
    keeps_from_starting=True,
    why="With any other order the job waits for processes that it will not start, or ends at the first resize.",
    fix="Set `--min-np` to the smallest size that training can continue with, `-np` to the size that the first step "
    "waits for, and `--max-np` to the largest size it may use.",
    part=ManifestPart.LAUNCHER,
    bad=f'command: [horovodrun, -np, "2", --min-np, "3", --max-np, "8", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def process_bounds(job: LintedJob) -> Iterator[Violation]:
    """Checks that 1 <= `--min-np` <= `-np` <= `--max-np`."""
    start, low, high = (job.command_line.number(name) for name in ("-np", "--min-np", "--max-np"))
    if start is not None and start < 1:
        yield _on_flag(job, "-np", "at least one process must start")
    if low is not None and low < 1:
        yield _on_flag(job, "--min-np", "at least one process must remain")
    if low is not None and start is not None and low > start:
        yield _on_flag(job, "--min-np", f"--min-np {low} is above -np {start}")
    if high is not None and start is not None and high < start:
        yield _on_flag(job, "--max-np", f"--max-np {high} is below -np {start}")


@rule(
    "HE152",
    "never-starts",
    Severity.ERROR,
    keeps_from_starting=True,
    why="The launcher waits for `-np` processes until `--elastic-timeout` (600 s) and then fails. Until then it holds "
    "its workers.",
    fix="Raise the worker replicas or the slots, or lower `-np` and `--min-np`. For an elastic job, set the replicas "
    "to the maximum: the scheduler then fills idle capacity by itself.",
    part=ManifestPart.LAUNCHER,
    bad=f'command: [horovodrun, -np, "64", --min-np, "1", --max-np, "64", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def never_starts(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs whose workers have fewer slots than the first step, or the minimum, requires."""
    capacity = job.capacity
    for name in ("-np", "--min-np"):
        number = job.command_line.number(name)
        if job.elastic and capacity is not None and number is not None and number > capacity:
            yield _on_flag(job, name, _capacity_words(job))
            return  # `--min-np` is at most `-np`, or HE151 says so


@rule(
    "HE153",
    "max-above-capacity",
    Severity.WARNING,
    why="The job can never reach that size: the operator creates at most `replicas` worker pods, and an MPIJob has no "
    "scale subresource through which anything could raise them (mpi-operator issue 336).",
    fix="Set the worker replicas to `--max-np` / slots.",
    part=ManifestPart.LAUNCHER,
    bad=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "64", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def max_above_capacity(job: LintedJob) -> Iterator[Violation]:
    """Finds `--max-np` above worker replicas x slots."""
    capacity, high = job.capacity, job.command_line.number("--max-np")
    if job.elastic and capacity is not None and high is not None and high > capacity:
        yield _on_flag(job, "--max-np", _capacity_words(job))


@rule(
    "HE154",
    "no-min-np",
    Severity.WARNING,
    why="`--min-np` defaults to `-np`: the job cannot shrink below its initial size. After a preemption it stalls "
    "until the worker is back, and fails after `--elastic-timeout`.",
    fix="Set `--min-np`; 1 is right for most preemptible training.",
    part=ManifestPart.LAUNCHER,
    bad=f'command: [horovodrun, -np, "2", --max-np, "8", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def no_min_np(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs without `--min-np`."""
    if job.elastic and "--min-np" not in job.command_line.flags and (job.command_line.number("-np") or 1) > 1:
        yield _on_flag(job, "-np", "without --min-np the job stalls as soon as one worker is preempted")


@rule(
    "HE155",
    "no-max-np",
    Severity.WARNING,
    why="In Horovod's code `--max-np` is unbounded by default, despite its documentation: the job grows to whatever "
    "discovery prints, and its learning rate and batch size with it.",
    fix="Set `--max-np` to worker replicas x slots.",
    part=ManifestPart.LAUNCHER,
    bad=f'command: [horovodrun, -np, "2", --min-np, "1", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def no_max_np(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs without `--max-np`."""
    if not job.elastic or "--max-np" in job.command_line.flags or not job.command_line.program_words:
        return
    found = _on_flag(job, "-np", "the number of processes has no upper bound")
    fits = job.capacity and job.capacity >= (job.command_line.number("-np") or 1)
    yield replace(found, edits=add_flag(job, "--max-np", str(job.capacity)).edits if fits else ())


@rule(
    "HE156",
    "no-np",
    Severity.ERROR,
    keeps_from_starting=True,
    why="argparse requires `-np`, elastic or not, and ends the launcher at once without it.",
    fix="Set `-np` to the number of processes that the first step waits for.",
    part=ManifestPart.LAUNCHER,
    bad=f'command: [horovodrun, --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
    good=f'command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", {_BASE}',
)
def no_np(job: LintedJob) -> Iterator[Violation]:
    """Finds horovodrun without `-np`."""
    asks_only = {"--version", "--help", "--check-build", "--config-file"} & job.command_line.flags.keys()
    if job.command_line.program is LauncherProgram.HOROVODRUN and "-np" not in job.command_line.flags and not asks_only:
        yield _on_flag(job, "-np", "horovodrun requires -np")


@rule(
    "HE157",
    "slots-mismatch",
    Severity.WARNING,
    why="The operator writes `slotsPerWorker` into its hostfile and, in v1, into its discovery script. horovodrun "
    "uses `--slots-per-host` if the script prints no slots. If the two numbers differ, one of them is not what you "
    "meant.",
    fix="Write the same number in both places.",
    part=ManifestPart.JOB,
    bad="spec: {slotsPerWorker: 4}",
    good="spec: {slotsPerWorker: 1}",
)
def slots_mismatch(job: LintedJob) -> Iterator[Violation]:
    """Compares `--slots-per-host` with `spec.slotsPerWorker`."""
    flag = job.command_line.number("--slots-per-host")
    if job.elastic and flag is not None and flag != job.slots:
        yield violation(job.spec.get("slotsPerWorker"), f"--slots-per-host is {flag}, slotsPerWorker is {job.slots}")


@rule(
    "HE158",
    "slots-not-gpus",
    Severity.WARNING,
    why="Horovod runs one process per GPU. With fewer processes, paid GPUs are idle; with more, two processes share "
    "one GPU and its memory. Of MIG instances CUDA shows a process a single one, and two shares may be of one GPU.",
    fix="Set the slots to the worker's GPU limit. Give a worker one MIG instance or share, and have more workers.",
    part=ManifestPart.WORKER,
    bad='resources: {limits: {cpu: "8", memory: 32Gi, nvidia.com/gpu: 4}}',
    good='resources: {limits: {cpu: "8", memory: 32Gi, nvidia.com/gpu: 1}}',
)
def slots_not_gpus(job: LintedJob) -> Iterator[Violation]:
    """Compares the number of processes per worker with its GPUs."""
    slots, pod = job.host_slots, job.worker.pod
    nodes = {key: view.text or "" for key, view in pod.spec.get("nodeSelector").pairs()}
    for limit in pod.main.gpus:
        gpus, portion = limit.amount, find_accelerator(str(limit.path[-1]), nodes).portion
        if not gpus or gpus % 1 or gpus < 0:  # HE921 reports half a GPU
            continue
        if gpus > 1 and portion in ONE_ONLY:
            yield violation(limit, f"a worker can use one {portion}: {ONE_ONLY[portion]}")
        elif slots is not None and gpus != slots:
            what = f"{count_words(int(gpus), 'GPU')}, but {count_words(slots, 'process')} per worker"
            yield violation(limit, what, choice=True)


@rule(
    "HE159",
    "no-slots",
    Severity.ERROR,
    keeps_from_starting=True,
    why="If neither the script nor `--slots-per-host` gives the slots, a host becomes `{host: None}` and the driver "
    "ends with a TypeError (observed). The operator's discover_hosts.sh of v2beta1 prints no slots.",
    fix="Set `--slots-per-host` to `slotsPerWorker`.",
    part=ManifestPart.LAUNCHER,
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
def no_slots(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic horovodrun without `--slots-per-host` whose discovery script prints no slots."""
    script = job.discovery_flag
    if not job.elastic or script is None or "--slots-per-host" in job.command_line.flags or not prints_no_slots(job):
        return
    operator = job.version is MPIJobVersion.V2BETA1 and job.slots > 0
    edits = add_flag(job, "--slots-per-host", str(job.slots)).edits if operator else ()
    message = "the discovery script prints no slots and --slots-per-host is not set"
    yield Violation(path=script.values[0].path, value=script.text, message=message, edits=edits)
