"""HE1xx: the launcher's command line."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, takewhile
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_edit import SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.flag_edits import FlagAddition, add_flag, lacks_flag, remove_flag
from hvd_elastic.mpijob.lint.job.horovod_version import SINCE
from hvd_elastic.mpijob.lint.job.launcher_command_line import (
    LauncherFlag,
    LauncherProgram,
    integer,
    nearest_option,
    undashed_options,
)
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob
from hvd_elastic.mpijob.lint.rule import (
    SILENCE_ANNOTATION_PREFIX,
    STATIC,
    ManifestPart,
    Severity,
    Violation,
    rule,
    violation,
)

_ELASTIC_OPTIONS: Final = frozenset(
    (
        "--min-np",
        "--min-num-proc",
        "--max-np",
        "--max-num-proc",
        "--slots-per-host",
        "--host-discovery-script",
        "--blacklist-cooldown-range",
        "--elastic-timeout",
        "--reset-limit",
    )
)
_TRUE: Final = frozenset(("1", "true", "yes", "on"))
_LOST_NODE_SECONDS: Final = 60
"""A node whose link was cut became NotReady after 43 to 52 s; only then do its pods stop being Ready."""
_MANY_WORKERS: Final = 50
_MANY_WORKERS_GLOO_SECONDS: Final = 240


def _on_command(job: LintedJob, message: str) -> Violation:
    """A violation by the launcher's command as a whole."""
    main = job.launcher.pod.main.view
    words = job.command_line.container_command.words
    path = words[0].path if words else (*main.path, "command")
    return Violation(path=path, value=words[0].text if words else None, message=message)


@rule(
    "HE101",
    "opaque-launcher-command",
    Severity.INFO,
    why="The rules about `-np`, discovery and blacklisting read the command line of `horovodrun`, `hvd-elastic "
    "launch` or `mpirun`. They cannot look into a script file of the image, so for such a job the absence of findings "
    "proves nothing.",
    fix="Write the launcher's command into the manifest.",
    part=ManifestPart.LAUNCHER,
    bad="command: [/opt/start.sh]",
    good='command: [horovodrun, -np, "2", --network-interface, eth0, python, train.py]',
)
def opaque_launcher_command(job: LintedJob) -> Iterator[Violation]:
    """Reports a launcher command that is a script file or a program the linter does not know."""
    main = job.launcher.pod.main
    told = main.view.get("command").text is not None or any(len(word.text.split()) > 1 for word in main.words[:1])
    if job.command_line.program is LauncherProgram.OTHER and main.view.exists and not told:  # HE903 and HE141 say why
        yield _on_command(job, "the linter cannot read the flags of this launcher command")


@rule(
    "HE102",
    "not-elastic",
    Severity.WARNING,
    why="`mpirun`, and `horovodrun` without `--host-discovery-script`, start a fixed set of processes: the first "
    "worker that is preempted, evicted or lost ends the whole job, and idle capacity is never used.",
    fix="Start with elastic `horovodrun` or `hvd-elastic launch`, and use a training script that wraps its loop in "
    "`hvd.elastic.run`. A job that is never preempted may keep its size: the annotation "
    "`lint.hvd-elastic.dev/static: REASON` says that it is meant so.",
    part=ManifestPart.LAUNCHER,
    bad='command: [mpirun, -np, "2", python, train.py]',
    good="""
command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", --network-interface, eth0,
  --host-discovery-script, /run/hvd-elastic/discover-hosts, python, train.py]
""",
)
def not_elastic(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs that cannot change their size."""
    if not job.elastic and job.command_line.program is not LauncherProgram.OTHER:
        yield _on_command(
            job, f"{job.command_line.program} starts a fixed set of processes; losing one worker ends the job"
        )


@rule(
    "HE103",
    "no-network-interface",
    Severity.ERROR,
    why="Without `--network-interface`, Horovod 0.28.1 waits at start-up for two hosts and probes their interfaces "
    "over ssh. With one host it hangs (observed), so the job can neither start on one worker nor be preempted down to "
    "one before its first step.",
    fix="Name the interface of the pod network; in nearly every cluster that is `eth0`.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "1", --min-np, "1", --host-discovery-script, /hosts, python, train.py]',
    good="""
command: [horovodrun, -np, "1", --min-np, "1", --network-interface, eth0, --host-discovery-script, /hosts,
  python, train.py]
""",
)
def no_network_interface(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic `horovodrun` without `--network-interface`."""
    if (
        job.elastic
        and job.command_line.program is LauncherProgram.HOROVODRUN
        and "--network-interface" not in job.command_line.flags
    ):
        found = _on_command(job, "no --network-interface: start-up waits for two hosts and hangs with one")
        on_host_network = job.worker.pod.spec.get("hostNetwork").value is True
        added = FlagAddition() if on_host_network else add_flag(job, "--network-interface", "eth0")
        yield replace(found, edits=added.edits, assumes=added.assumes)


@rule(
    "HE104",
    "permanent-blacklist",
    Severity.ERROR,
    why="If the process on a host fails, Horovod blacklists that host permanently, silently and by name. The operator "
    "gives the replacement pod the same name, so it is never used: in 4 of 4 measured preemptions the stock job never "
    "grew back. Horovod issue 1926, open.",
    fix="Give `--blacklist-cooldown-range` a range in seconds, `LO HI`, between 1 and 3600. Horovod has the option "
    "since 0.24.0: build the image with a later one, or use hvd-elastic's. `hvd-elastic launch` does not need the "
    "option: it identifies a host by its pod's UID.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --min-np, "1", --network-interface, eth0, --host-discovery-script, /hosts,
  python, train.py]
""",
    good="""
command: [horovodrun, -np, "2", --min-np, "1", --blacklist-cooldown-range, "30", "300", --network-interface, eth0,
  --host-discovery-script, /hosts, python, train.py]
""",
)
def permanent_blacklist(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic `horovodrun` without `--blacklist-cooldown-range`."""
    if (
        not job.elastic
        or job.command_line.program is not LauncherProgram.HOROVODRUN
        or "--blacklist-cooldown-range" in job.command_line.flags
    ):
        return
    low, high = ("2", "60") if job.has_discovery_sidecar else ("30", "300")
    message = "a worker that failed once is blacklisted permanently, and so is its replacement of the same name"
    if lacks_flag(job, "--blacklist-cooldown-range"):
        since = SINCE["--blacklist-cooldown-range"]
        message += f"; Horovod {job.horovod} cannot be told otherwise, {since} and later can"
    added = add_flag(job, "--blacklist-cooldown-range", low, high)
    yield replace(_on_command(job, message), edits=added.edits, assumes=added.assumes)


@rule(
    "HE105",
    "bad-blacklist-range",
    Severity.ERROR,
    keeps_from_starting=True,
    why="Horovod raises ValueError for a bound below 1 s or above 3600 s, as soon as it sees the first host. If the "
    "bounds are swapped, every delay is the lower one.",
    fix="Write the lower bound first, both between 1 and 3600.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, --blacklist-cooldown-range, "0", "7200",
  python, t.py]
""",
    good="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, --blacklist-cooldown-range, "30", "300",
  python, t.py]
""",
)
def bad_blacklist_range(job: LintedJob) -> Iterator[Violation]:
    """Finds a `--blacklist-cooldown-range` that Horovod rejects or that has no effect."""
    flag = job.command_line.flags.get("--blacklist-cooldown-range")
    low, high = _range(job)
    if flag and low is not None and high is not None and not 1 <= low <= high <= 3600:
        yield Violation(
            path=flag.values[0].path, value=f"{low} {high}", message="does not satisfy 1 <= LO <= HI <= 3600 seconds"
        )


def _range(job: LintedJob) -> tuple[int | None, int | None]:
    flag = job.command_line.flags.get("--blacklist-cooldown-range")
    values = [integer(value.text) for value in flag.values] if flag else []
    return (values[0], values[1]) if len(values) == 2 else (None, None)


@rule(
    "HE106",
    "short-blacklist-cooldown",
    Severity.ERROR,
    why="The first delay is about twice the lower bound. With a range of 5 to 20 s, a worker on a node whose link was "
    "cut came off the blacklist at +43 s, but its node was NotReady only at +48 s: the dead host was offered again "
    "(`No route to host`), and the third failure stopped the whole job (measured). Short cooldowns are safe if "
    "discovery tests whether workers answer, as hvd-elastic's sidecar does.",
    fix="Use a lower bound of 30 s or more, or the discovery sidecar.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --host-discovery-script, /etc/mpi/discover_hosts.sh,
  --blacklist-cooldown-range, "5", "20", python, t.py]
""",
    good="""
command: [horovodrun, -np, "2", --host-discovery-script, /etc/mpi/discover_hosts.sh,
  --blacklist-cooldown-range, "30", "300",
  python, t.py]
""",
)
def short_blacklist_cooldown(job: LintedJob) -> Iterator[Violation]:
    """Finds a cooldown that ends before Kubernetes can notice that a node is lost."""
    flag = job.command_line.flags.get("--blacklist-cooldown-range")
    low, high = _range(job)
    if not flag or low is None or high is None or job.reads_sidecar_hosts or not 1 <= low <= high <= 3600:
        return
    first = min(2 * low, high)
    if first < _LOST_NODE_SECONDS:
        message = f"the first cooldown is about {first} s; a lost node becomes NotReady after about 50 s"
        yield Violation(path=flag.values[0].path, value=f"{low} {high}", message=message)


@rule(
    "HE107",
    "unknown-flag",
    Severity.ERROR,
    keeps_from_starting=True,
    # Open MPI 4.1, `opal_cmd_line_parse`: an unrecognized option is always an error.
    why="The launcher ends at once with a usage message. After its restarts the job is marked Failed. `mpirun` has no "
    "elastic options.",
    fix="Use the option that was meant; `horovodrun --help` lists them. Options of the training script belong after "
    "the script's name.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --host-discovery-scirpt, /hosts, python, train.py]',
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def unknown_flag(job: LintedJob) -> Iterator[Violation]:
    """Finds options that horovodrun 0.28.1 does not have, or that came after the Horovod of the job's image, and
    horovodrun's own given to `mpirun`.
    """
    if job.command_line.program is LauncherProgram.MPIRUN:
        yield from _horovodruns_own(job)
    if job.command_line.program is not LauncherProgram.HOROVODRUN:
        return
    for flag in job.command_line.flags.values():
        name = flag.word.text.partition("=")[0]
        if lacks_flag(job, name):
            message = f"Horovod {job.horovod} has no such option; it came with {SINCE[name]}"
            yield Violation(path=flag.word.path, value=flag.word.text, message=message)
    for word in job.command_line.unknown:
        near = nearest_option(word.text)
        message = "horovodrun has no such option" + (f"; did you mean {near}?" if near else "")
        yield Violation(path=word.path, value=word.text, message=message)


def _horovodruns_own(job: LintedJob) -> Iterator[Violation]:
    """The first of mpirun's words that is an elastic option. Those after the interpreter are the script's."""
    words = list(takewhile(lambda word: not word.program.startswith("python"), job.command_line.training_command))
    if len(words) < len(job.command_line.training_command):
        found = (word for word in words if word.text.partition("=")[0] in _ELASTIC_OPTIONS)
        for word in islice(found, 1):
            yield Violation(path=word.path, value=word.text, message="is an option of horovodrun; mpirun has none such")


@rule(
    "HE108",
    "bad-flag-value",
    Severity.ERROR,
    keeps_from_starting=True,
    why="argparse ends the launcher at once. After its restarts the job is marked Failed.",
    fix="Write a whole number. `$(VAR)` is expanded only if `env` of the same container defines the variable.",
    part=ManifestPart.LAUNCHER,
    bad="command: [horovodrun, -np, two, --host-discovery-script, /hosts, python, train.py]",
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def bad_flag_value(job: LintedJob) -> Iterator[Violation]:
    """Finds launcher options that lack a value, or have a value other than the whole number they require."""
    for flag in job.command_line.incomplete:
        yield Violation(path=flag.word.path, value=flag.word.text, message=_values_needed(flag))
    for flag in job.command_line.flags.values():
        for value in flag.values:
            if flag.option.integer and not _is_integer(value.text):
                yield Violation(path=value.path, value=value.text, message=f"{flag.option.name} takes a whole number")


def _values_needed(flag: LauncherFlag) -> str:
    number = flag.option.values
    return f"requires {number} value" + ("" if number == 1 else "s")


def _is_integer(text: str) -> bool:
    """Whether this is a whole number, or text that is expanded later and cannot be checked here."""
    return integer(text) is not None or text.startswith(("$", "`"))


@rule(
    "HE109",
    "conflicting-hosts",
    Severity.ERROR,
    keeps_from_starting=True,
    why="argparse accepts only one of `-H`, `--hostfile` and `--host-discovery-script`, and ends the launcher "
    "otherwise. The operator's hostfile lists all workers from the start, whether they run or not.",
    fix="Keep the discovery script.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, --hostfile, /etc/mpi/hostfile, python,
  train.py]
""",
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def conflicting_hosts(job: LintedJob) -> Iterator[Violation]:
    """Finds `--host-discovery-script` together with `-H` or `--hostfile`."""
    if "--host-discovery-script" not in job.command_line.flags:
        return
    for name in ("--hosts", "--hostfile"):
        if flag := job.command_line.flags.get(name):
            message = f"{name} and --host-discovery-script exclude each other"
            yield Violation(path=flag.word.path, value=flag.word.text, message=message, edits=remove_flag(job, flag))


@rule(
    "HE110",
    "elastic-without-discovery",
    Severity.ERROR,
    why="`--min-np` alone makes a job elastic over the fixed hosts of `-H`. horovodrun rejects fewer than two hosts, "
    "and never uses a host that comes later.",
    fix="Name a host discovery script.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --min-np, "1", --network-interface, eth0, python, train.py]',
    good="""
command: [horovodrun, -np, "2", --min-np, "1", --network-interface, eth0, --host-discovery-script,
  /run/hvd-elastic/discover-hosts, python, train.py]
""",
)
def elastic_without_discovery(job: LintedJob) -> Iterator[Violation]:
    """Finds `--min-np` without a discovery script."""
    flag = job.command_line.flags.get("--min-np")
    if flag and job.discovery_flag is None:
        yield Violation(path=flag.word.path, value=flag.word.text, message="--min-np without --host-discovery-script")


@rule(
    "HE111",
    "autotune",
    Severity.ERROR,
    why="Autotune in an elastic job ends in a segmentation fault at a resize. Horovod issue 2835, open.",
    fix="Remove `--autotune` and HOROVOD_AUTOTUNE. Tune once with a fixed size, and set the values found.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --autotune, --host-discovery-script, /hosts, python, train.py]',
    good="""
command: [horovodrun, -np, "2", --fusion-threshold-mb, "64", --host-discovery-script, /hosts, python,
  train.py]
""",
)
def autotune(job: LintedJob) -> Iterator[Violation]:
    """Finds autotuning in an elastic job."""
    if not job.elastic:
        return
    if flag := job.command_line.flags.get("--autotune"):
        message = "autotune segfaults at the first resize"
        yield Violation(path=flag.word.path, value=flag.word.text, message=message, edits=remove_flag(job, flag))
    for replica in (job.launcher, job.worker):
        variable = replica.pod.main.variable("HOROVOD_AUTOTUNE").get("value")
        if (variable.text or "").lower() in _TRUE:
            yield violation(variable, "autotune segfaults at the first resize")


@rule(
    "HE112",
    "mpi-controller",
    Severity.WARNING,
    why="Elastic Horovod runs on Gloo, even with `--mpi` or `--jsrun`. An image built without Gloo is rejected at "
    "start-up.",
    fix="Remove the flag, and build Horovod with HOROVOD_WITH_GLOO=1.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --mpi, --host-discovery-script, /hosts, python, train.py]',
    good='command: [horovodrun, -np, "2", --gloo, --host-discovery-script, /hosts, python, train.py]',
)
def mpi_controller(job: LintedJob) -> Iterator[Violation]:
    """Finds `--mpi` or `--jsrun` in an elastic job."""
    for name in ("--mpi", "--jsrun"):
        flag = job.command_line.flags.get(name)
        if flag and job.elastic:
            message = "elastic jobs always use Gloo"
            yield Violation(path=flag.word.path, value=flag.word.text, message=message, edits=remove_flag(job, flag))


@rule(
    "HE113",
    "unset-gloo-timeout",
    Severity.INFO,
    why="If a peer vanishes without closing its connections (a lost node, SIGKILL), only this timeout reveals it. "
    "Until then, 30 s by default, all other processes stall (measured: 30.5 s). Choose the value deliberately.",
    fix="Set HOROVOD_GLOO_TIMEOUT_SECONDS on the launcher, which passes its environment to the workers, or set "
    "`--gloo-timeout-seconds`. 30 is fine for a few workers; from about 50 workers on use 240.",
    part=ManifestPart.LAUNCHER,
    bad="env: []",
    good='env: [{name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}]',
)
def unset_gloo_timeout(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs that leave Gloo's timeout at its default."""
    if job.elastic and job.needs_horovod and _gloo_seconds(job) is None:
        environment = job.launcher.pod.main.view.get("env")
        yield violation(
            environment, "Gloo's timeout is the default of 30 s; choose a value for HOROVOD_GLOO_TIMEOUT_SECONDS"
        )


def _gloo_seconds(job: LintedJob) -> ManifestView | None:
    """The place that sets the timeout, or None."""
    if flag := job.command_line.flags.get("--gloo-timeout-seconds"):
        return ManifestView(flag.text, flag.values[0].path)
    variable = job.launcher.pod.main.variable("HOROVOD_GLOO_TIMEOUT_SECONDS")
    if not variable.exists:
        assigned = job.command_line.container_command.assignments.get("HOROVOD_GLOO_TIMEOUT_SECONDS")
        return (
            ManifestView(assigned, job.command_line.program_words[0].path)
            if assigned and job.command_line.program_words
            else None
        )
    return variable.get("value") if variable.get("value").exists else variable


@rule(
    "HE114",
    "short-gloo-timeout",
    Severity.WARNING,
    why="With 50 nodes, the processes need more than 30 s to connect to each other, and the job dies at its start or "
    "at a resize. Horovod issue 2015.",
    fix="Set HOROVOD_GLOO_TIMEOUT_SECONDS on the launcher to 240.",
    part=ManifestPart.JOB,
    bad="""
spec: {mpiReplicaSpecs: {Worker: {replicas: 64}}}
""",
    good="""
spec: {mpiReplicaSpecs: {Worker: {replicas: 8}}}
""",
)
def short_gloo_timeout(job: LintedJob) -> Iterator[Violation]:
    """Finds a Gloo timeout below 240 s in jobs of 50 or more workers."""
    seconds = _gloo_seconds(job)
    value = integer(seconds.text) if seconds else None
    workers = job.worker.replicas or 0
    if not (job.elastic and job.needs_horovod) or seconds is None or value is None:
        return
    if value < _MANY_WORKERS_GLOO_SECONDS and workers >= _MANY_WORKERS:
        yield violation(
            seconds,
            f"{value} s is short for {workers} workers; they need up to {_MANY_WORKERS_GLOO_SECONDS} s to connect",
            choice=True,  # a generated job has a suitable default
        )


@rule(
    "HE115",
    "no-elastic-timeout",
    Severity.INFO,
    why="When inference takes every worker, the launcher waits for `--min-np` processes as long as "
    "`--elastic-timeout` allows, and then ends the job. horovodrun's default is 600 s, which is shorter than many "
    "bursts of inference. `hvd-elastic launch` waits as long as it takes.",
    fix="Set `--elastic-timeout` to the longest burst that the job should survive, in seconds.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
    good="""
command: [horovodrun, -np, "2", --elastic-timeout, "3600", --host-discovery-script, /hosts, python, train.py]
""",
)
def no_elastic_timeout(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs that leave horovodrun's `--elastic-timeout` at its default."""
    if job.command_line.program is LauncherProgram.HVD_ELASTIC:
        return
    by_environment = job.launcher.pod.main.variable("HOROVOD_ELASTIC_TIMEOUT").exists
    if job.elastic and "--elastic-timeout" not in job.command_line.flags and not by_environment:
        yield _on_command(
            job, "the job ends after 600 s without its minimum number of workers; choose a value for --elastic-timeout"
        )


@rule(
    "HE116",
    "reset-limit-zero",
    Severity.ERROR,
    why="`--reset-limit` counts every resize, including clean ones. With 0 the first preemption ends the job.",
    fix="Remove the option, because preemption is normal, or allow many resizes.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --reset-limit, "0", --host-discovery-script, /hosts, python, train.py]',
    good='command: [horovodrun, -np, "2", --reset-limit, "100", --host-discovery-script, /hosts, python, train.py]',
)
def reset_limit_zero(job: LintedJob) -> Iterator[Violation]:
    """Finds `--reset-limit 0`."""
    flag = job.command_line.flags.get("--reset-limit")
    if job.elastic and flag and flag.number == 0:
        yield Violation(path=flag.values[0].path, value=flag.text, message="the first resize ends the job")


@rule(
    "HE117",
    "no-training-command",
    Severity.ERROR,
    keeps_from_starting=True,
    why="horovodrun starts an empty command on every worker. Each ends at once with exit code 0, and the job counts "
    "as a success.",
    fix="Put the training command after the options.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --host-discovery-script, /hosts]',
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def no_training_command(job: LintedJob) -> Iterator[Violation]:
    """Finds a launcher without a command to start."""
    asks_only = {"--version", "--help", "--check-build"} & job.command_line.flags.keys()
    if (
        job.command_line.program is not LauncherProgram.OTHER
        and not job.command_line.training_command
        and not asks_only
    ):
        yield _on_command(job, f"{job.command_line.program} has no command to start")


@rule(
    "HE118",
    "option-without-dashes",
    Severity.ERROR,
    why="horovodrun takes the first word that is not an option for the training command, and all that follows for its "
    "arguments. Each worker then tries to run a program called `min-np`, and every option behind it is lost.",
    fix="Write the dashes: `--min-np`.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", min-np, "1", --network-interface, eth0, --host-discovery-script, /hosts, python,
  train.py]
""",
    good="""
command: [horovodrun, -np, "2", --min-np, "1", --network-interface, eth0, --host-discovery-script, /hosts, python,
  train.py]
""",
)
def option_without_dashes(job: LintedJob) -> Iterator[Violation]:
    """Finds a training command that begins with the name of a launcher option."""
    for word, option in undashed_options(job.command_line):
        message = f"is taken for the training command; {option} was probably meant"
        written = job.command_line.shell_script is None and isinstance(word.path[-1], int)
        edits = (SetValue(word.path, f"{option}{word.text[len(option.lstrip('-')) :]}"),) if written else ()
        yield Violation(path=word.path, value=word.text, message=message, edits=edits)


@rule(
    "HE119",
    "static-but-elastic",
    Severity.WARNING,
    why="The annotation says that the job keeps its size, but its launcher changes it: by a discovery script or "
    "`--min-np`. One of them is not meant, and who reads the manifest is misled.",
    fix="Remove the annotation, or start the job without `--host-discovery-script` and `--min-np`.",
    part=ManifestPart.JOB,
    bad="metadata: {annotations: {lint.hvd-elastic.dev/static: runs on reserved nodes}}",
    good="metadata: {annotations: {lint.hvd-elastic.dev/static: null}}",
)
def static_but_elastic(job: LintedJob) -> Iterator[Violation]:
    """Finds the annotation of a static job on one that is elastic."""
    static = job.view.get("metadata", "annotations", SILENCE_ANNOTATION_PREFIX + STATIC)
    if static.exists and job.elastic:
        yield violation(static, "the job is elastic")


@rule(
    "HE120",
    "torch-under-horovodrun",
    Severity.ERROR,
    keeps_from_starting=True,
    why="HVD_ELASTIC_ENGINE=torch has the processes train over torch.distributed. Those that horovodrun starts find "
    "each other by Horovod alone: its rendezvous has no store for torch.",
    fix="Run `hvd-elastic launch`, which takes the same flags, or remove the variable.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]
env: [{name: HVD_ELASTIC_ENGINE, value: torch}]
""",
    good="""
command: [hvd-elastic, launch, -np, "2", --host-discovery-script, /hosts, python, train.py]
env: [{name: HVD_ELASTIC_ENGINE, value: torch}]
""",
)
def torch_under_horovodrun(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs over torch.distributed that another launcher than ours starts."""
    ours = job.command_line.program in (LauncherProgram.HVD_ELASTIC, LauncherProgram.OTHER)
    if not job.needs_horovod and not ours:
        yield violation(job.engine, f"{job.command_line.program} cannot start processes that train over torch")
