"""HE1xx: the launcher's command line."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.argv import add_flag, drop_flag
from hvd_elastic.mpijob.lint.model.horovodrun_flags import Launcher, integer, nearest_option
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

_TRUE: Final = frozenset(("1", "true", "yes", "on"))
_LOST_NODE_SECONDS: Final = 60
"""A node whose link was cut turned NotReady after 43 to 52 s; only then does Ready leave its pods."""
_MANY_WORKERS: Final = 50
_MANY_WORKERS_GLOO_SECONDS: Final = 240


def _at_command(job: LintedJob, message: str) -> Hit:
    """A hit on the launcher's command as a whole."""
    main = job.launcher.pod.main.view
    words = job.call.source.words
    path = words[0].path if words else (*main.path, "command")
    return Hit(path=path, value=words[0].text if words else None, message=message)


@rule(
    "HE101",
    "opaque-launcher-command",
    Severity.INFO,
    why="The rules about `-np`, discovery and blacklisting look at the command line of `horovodrun`, `hvd-elastic "
    "launch` or `mpirun`. Inside a script file of the image they see nothing, and no finding means nothing.",
    fix="Write the launcher's command into the manifest.",
    at=At.LAUNCHER,
    bad="command: [/opt/start.sh]",
    good='command: [horovodrun, -np, "2", --network-interface, eth0, python, train.py]',
)
def opaque_launcher_command(job: LintedJob) -> Iterator[Hit]:
    """Says that the launcher's command is a script or a program that this tool does not know."""
    if job.call.launcher is Launcher.OTHER and job.launcher.pod.main.view.exists:
        yield _at_command(job, "the launcher's command is not one whose flags can be read")


@rule(
    "HE102",
    "not-elastic",
    Severity.WARNING,
    why="`mpirun`, and `horovodrun` without `--host-discovery-script`, start a fixed set of processes: the first "
    "worker that is preempted, evicted or lost ends the whole job, and idle capacity is never used.",
    fix="Start with elastic `horovodrun` or `hvd-elastic launch`, and a script that wraps its loop in "
    "`hvd.elastic.run`. A job that never meets preemption may stay as it is: silence the rule on it and say so.",
    at=At.LAUNCHER,
    bad='command: [mpirun, -np, "2", python, train.py]',
    good="""
command: [horovodrun, -np, "2", --min-np, "1", --max-np, "8", --slots-per-host, "1", --network-interface, eth0,
  --host-discovery-script, /run/hvd-elastic/discover-hosts, python, train.py]
""",
)
def not_elastic(job: LintedJob) -> Iterator[Hit]:
    """Finds jobs that cannot change their size."""
    if not job.elastic and job.call.launcher is not Launcher.OTHER:
        yield _at_command(job, f"{job.call.launcher} starts a fixed set of processes; losing one worker ends the job")


@rule(
    "HE103",
    "no-network-interface",
    Severity.ERROR,
    why="Without it Horovod 0.28.1 waits at the start for two hosts and probes their interfaces over ssh. With one "
    "host it hangs (run), so a job can neither start on one worker nor be preempted down to one before its first "
    "step.",
    fix="Name the interface of the pod network; in nearly every cluster that is `eth0`.",
    at=At.LAUNCHER,
    bad='command: [horovodrun, -np, "1", --min-np, "1", --host-discovery-script, /hosts, python, train.py]',
    good="""
command: [horovodrun, -np, "1", --min-np, "1", --network-interface, eth0, --host-discovery-script, /hosts,
  python, train.py]
""",
)
def no_network_interface(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic `horovodrun` without `--network-interface`."""
    if job.elastic and job.call.launcher is Launcher.HOROVODRUN and "--network-interface" not in job.call.flags:
        found = _at_command(job, "no --network-interface: start-up waits for two hosts and hangs with one")
        on_host_network = job.worker.pod.spec.get("hostNetwork").value is True
        edits = () if on_host_network else add_flag(job, "--network-interface", "eth0")
        yield Hit(path=found.path, value=found.value, message=found.message, edits=edits)


@rule(
    "HE104",
    "permanent-blacklist",
    Severity.ERROR,
    why="Horovod blacklists a host whose process failed for ever, silently, and by name. The operator makes the "
    "replacement pod under the same name, so it is never used: in 4 of 4 measured preemptions the stock job never "
    "grew back. Horovod issue 1926, open.",
    fix="Give a range in seconds, `LO HI`, between 1 and 3600. `hvd-elastic launch` needs none: there a host is a "
    "pod's UID.",
    at=At.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --min-np, "1", --network-interface, eth0, --host-discovery-script, /hosts,
  python, train.py]
""",
    good="""
command: [horovodrun, -np, "2", --min-np, "1", --blacklist-cooldown-range, "30", "300", --network-interface, eth0,
  --host-discovery-script, /hosts, python, train.py]
""",
)
def permanent_blacklist(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic `horovodrun` without `--blacklist-cooldown-range`."""
    if (
        not job.elastic
        or job.call.launcher is not Launcher.HOROVODRUN
        or "--blacklist-cooldown-range" in job.call.flags
    ):
        return
    low, high = ("2", "60") if job.own_discovery else ("30", "300")
    found = _at_command(
        job, "a worker that failed once is blacklisted for ever, and so is its replacement of the same name"
    )
    edits = add_flag(job, "--blacklist-cooldown-range", low, high)
    yield Hit(path=found.path, value=found.value, message=found.message, edits=edits)


@rule(
    "HE105",
    "bad-blacklist-range",
    Severity.ERROR,
    why="Horovod raises ValueError below 1 s and above 3600 s, when the first host is seen. With the bounds exchanged "
    "every delay is the lower one.",
    fix="Write the lower bound first, both between 1 and 3600.",
    at=At.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, --blacklist-cooldown-range, "0", "7200",
  python, t.py]
""",
    good="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, --blacklist-cooldown-range, "30", "300",
  python, t.py]
""",
)
def bad_blacklist_range(job: LintedJob) -> Iterator[Hit]:
    """Finds a `--blacklist-cooldown-range` that Horovod refuses or that means nothing."""
    flag = job.call.flags.get("--blacklist-cooldown-range")
    low, high = _range(job)
    if flag and low is not None and high is not None and not 1 <= low <= high <= 3600:
        yield Hit(path=flag.values[0].path, value=f"{low} {high}", message="not 1 <= LO <= HI <= 3600 seconds")


def _range(job: LintedJob) -> tuple[int | None, int | None]:
    flag = job.call.flags.get("--blacklist-cooldown-range")
    values = [integer(value.text) for value in flag.values] if flag else []
    return (values[0], values[1]) if len(values) == 2 else (None, None)


@rule(
    "HE106",
    "short-blacklist-cooldown",
    Severity.ERROR,
    why="The first delay is about twice the lower bound. With 5 to 20 s, a worker on a node whose link was cut came "
    "back at +43 s, its node was NotReady at +48 s: the dead host was offered again, `No route to host`, and at "
    "the third failure the whole job stopped (measured). A discovery that tests whether workers answer, as "
    "hvd-elastic's sidecar does, makes short cooldowns safe.",
    fix="Take a lower bound of 30 s or more, or use the discovery sidecar.",
    at=At.LAUNCHER,
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
def short_blacklist_cooldown(job: LintedJob) -> Iterator[Hit]:
    """Finds a cooldown that ends before Kubernetes knows that a node is lost."""
    flag = job.call.flags.get("--blacklist-cooldown-range")
    low, high = _range(job)
    if not flag or low is None or high is None or job.own_script or not 1 <= low <= high <= 3600:
        return
    first = min(2 * low, high)
    if first < _LOST_NODE_SECONDS:
        message = f"the first cooldown is about {first} s; a lost node turns NotReady after about 50 s"
        yield Hit(path=flag.values[0].path, value=f"{low} {high}", message=message)


@rule(
    "HE107",
    "unknown-flag",
    Severity.ERROR,
    why="argparse ends the launcher at once with a usage message, and the job is marked Failed after its restarts.",
    fix="Use the option that was meant; `horovodrun --help` lists them. Options of the training script come after its "
    "name.",
    at=At.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --host-discovery-scirpt, /hosts, python, train.py]',
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def unknown_flag(job: LintedJob) -> Iterator[Hit]:
    """Finds options that horovodrun 0.28.1 does not know."""
    if job.call.launcher is not Launcher.HOROVODRUN:
        return
    for word in job.call.unknown:
        near = nearest_option(word.text)
        message = "horovodrun has no such option" + (f"; did you mean {near}?" if near else "")
        yield Hit(path=word.path, value=word.text, message=message)


@rule(
    "HE108",
    "bad-flag-value",
    Severity.ERROR,
    why="argparse ends the launcher at once, and the job is marked Failed after its restarts.",
    fix="Write a whole number. A `$(VAR)` is filled in only if `env` of the same container has the variable.",
    at=At.LAUNCHER,
    bad="command: [horovodrun, -np, two, --host-discovery-script, /hosts, python, train.py]",
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def bad_flag_value(job: LintedJob) -> Iterator[Hit]:
    """Finds options of the launcher without their values, or with a value that is no whole number where one is due."""
    for flag in job.call.short:
        yield Hit(path=flag.word.path, value=flag.word.text, message=f"takes {flag.option.values} values")
    for flag in job.call.flags.values():
        for value in flag.values:
            if flag.option.integer and not _is_integer(value.text):
                yield Hit(path=value.path, value=value.text, message=f"{flag.option.name} takes a whole number")


def _is_integer(text: str) -> bool:
    """A number, or something that the shell or a secret will fill in and that cannot be judged here."""
    return integer(text) is not None or text.startswith(("$", "`"))


@rule(
    "HE109",
    "conflicting-hosts",
    Severity.ERROR,
    why="argparse takes only one of the three and ends the launcher. The operator's hostfile lists all workers from "
    "the start, whether they run or not.",
    fix="Keep the discovery script.",
    at=At.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, --hostfile, /etc/mpi/hostfile, python,
  train.py]
""",
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def conflicting_hosts(job: LintedJob) -> Iterator[Hit]:
    """Finds `--host-discovery-script` beside `-H` or `--hostfile`."""
    if "--host-discovery-script" not in job.call.flags:
        return
    for name in ("--hosts", "--hostfile"):
        if flag := job.call.flags.get(name):
            message = f"{name} and --host-discovery-script exclude each other"
            yield Hit(path=flag.word.path, value=flag.word.text, message=message, edits=drop_flag(job, flag))


@rule(
    "HE110",
    "elastic-without-discovery",
    Severity.ERROR,
    why="`--min-np` alone makes a job elastic over the fixed hosts of `-H`; horovodrun refuses fewer than two of "
    "them, and no host that comes later is ever used.",
    fix="Name a host discovery script.",
    at=At.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --min-np, "1", --network-interface, eth0, python, train.py]',
    good="""
command: [horovodrun, -np, "2", --min-np, "1", --network-interface, eth0, --host-discovery-script,
  /run/hvd-elastic/discover-hosts, python, train.py]
""",
)
def elastic_without_discovery(job: LintedJob) -> Iterator[Hit]:
    """Finds `--min-np` with no discovery script."""
    flag = job.call.flags.get("--min-np")
    if flag and job.script is None:
        yield Hit(path=flag.word.path, value=flag.word.text, message="--min-np without --host-discovery-script")


@rule(
    "HE111",
    "autotune",
    Severity.ERROR,
    why="Autotune and elastic together end in a segmentation fault at a resize. Horovod issue 2835, open.",
    fix="Leave `--autotune` and HOROVOD_AUTOTUNE out; tune once with a fixed size and set the values found.",
    at=At.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --autotune, --host-discovery-script, /hosts, python, train.py]',
    good="""
command: [horovodrun, -np, "2", --fusion-threshold-mb, "64", --host-discovery-script, /hosts, python,
  train.py]
""",
)
def autotune(job: LintedJob) -> Iterator[Hit]:
    """Finds autotuning switched on in an elastic job."""
    if not job.elastic:
        return
    if flag := job.call.flags.get("--autotune"):
        message = "autotune segfaults at the first resize"
        yield Hit(path=flag.word.path, value=flag.word.text, message=message, edits=drop_flag(job, flag))
    for replica in (job.launcher, job.worker):
        variable = replica.pod.main.variable("HOROVOD_AUTOTUNE").get("value")
        if (variable.text or "").lower() in _TRUE:
            yield hit(variable, "autotune segfaults at the first resize")


@rule(
    "HE112",
    "mpi-controller",
    Severity.WARNING,
    why="Elastic Horovod runs on Gloo whatever the flag says; an image built without Gloo is refused at the start.",
    fix="Take the flag out; build Horovod with HOROVOD_WITH_GLOO=1.",
    at=At.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --mpi, --host-discovery-script, /hosts, python, train.py]',
    good='command: [horovodrun, -np, "2", --gloo, --host-discovery-script, /hosts, python, train.py]',
)
def mpi_controller(job: LintedJob) -> Iterator[Hit]:
    """Finds `--mpi` or `--jsrun` in an elastic job."""
    for name in ("--mpi", "--jsrun"):
        flag = job.call.flags.get(name)
        if flag and job.elastic:
            message = "elastic jobs always use Gloo"
            yield Hit(path=flag.word.path, value=flag.word.text, message=message, edits=drop_flag(job, flag))


@rule(
    "HE113",
    "unset-gloo-timeout",
    Severity.INFO,
    why="A peer that vanishes without closing its connections (a lost node, SIGKILL) is noticed only by this "
    "time-out: 30 s by default, and so long do all the others stand still (measured: 30.5 s). It should be a "
    "decision.",
    fix="Set HOROVOD_GLOO_TIMEOUT_SECONDS on the launcher, which hands its environment to the workers, or "
    "`--gloo-timeout-seconds`. 30 is fine for a few workers; from about 50 on take 240.",
    at=At.LAUNCHER,
    bad="env: []",
    good='env: [{name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}]',
)
def unset_gloo_timeout(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic jobs that leave Gloo's time-out at its default."""
    if job.elastic and _gloo_seconds(job) is None:
        environment = job.launcher.pod.main.view.get("env")
        yield hit(environment, "Gloo's time-out is the default 30 s; set HOROVOD_GLOO_TIMEOUT_SECONDS on purpose")


def _gloo_seconds(job: LintedJob) -> View | None:
    """Where the time-out is set, or None."""
    if flag := job.call.flags.get("--gloo-timeout-seconds"):
        return View(flag.text, flag.values[0].path)
    variable = job.launcher.pod.main.variable("HOROVOD_GLOO_TIMEOUT_SECONDS")
    if not variable.exists:
        assigned = job.call.source.assignments.get("HOROVOD_GLOO_TIMEOUT_SECONDS")
        return View(assigned, job.call.head[0].path) if assigned and job.call.head else None
    return variable.get("value") if variable.get("value").exists else variable


@rule(
    "HE114",
    "short-gloo-timeout",
    Severity.WARNING,
    why="With 50 nodes the processes need longer than 30 s to meet, and the job dies at its start or at a resize. "
    "Horovod issue 2015.",
    fix="Set HOROVOD_GLOO_TIMEOUT_SECONDS on the launcher to 240.",
    at=At.JOB,
    bad="""
spec: {mpiReplicaSpecs: {Worker: {replicas: 64}}}
""",
    good="""
spec: {mpiReplicaSpecs: {Worker: {replicas: 8}}}
""",
)
def short_gloo_timeout(job: LintedJob) -> Iterator[Hit]:
    """Finds a Gloo time-out below 240 s in jobs of 50 workers and more."""
    seconds = _gloo_seconds(job)
    value = integer(seconds.text) if seconds else None
    workers = job.worker.replicas or 0
    # A description has a right default; another value was chosen on purpose.
    if not job.elastic or job.described or seconds is None or value is None:
        return
    if value < _MANY_WORKERS_GLOO_SECONDS and workers >= _MANY_WORKERS:
        yield hit(
            seconds, f"{value} s is short for {workers} workers; they need up to {_MANY_WORKERS_GLOO_SECONDS} s to meet"
        )


@rule(
    "HE115",
    "no-elastic-timeout",
    Severity.INFO,
    why="When inference takes every worker, the launcher waits for `--min-np` this long and then ends the job: 600 s "
    "by default, less than many bursts last.",
    fix="Set `--elastic-timeout` to the longest burst that the job should sit out, in seconds.",
    at=At.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
    good="""
command: [horovodrun, -np, "2", --elastic-timeout, "3600", --host-discovery-script, /hosts, python, train.py]
""",
)
def no_elastic_timeout(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic jobs that leave `--elastic-timeout` at its default."""
    by_environment = job.launcher.pod.main.variable("HOROVOD_ELASTIC_TIMEOUT").exists
    if job.elastic and "--elastic-timeout" not in job.call.flags and not by_environment:
        yield _at_command(
            job, "the job ends after 600 s without its minimum of workers; set --elastic-timeout on purpose"
        )


@rule(
    "HE116",
    "reset-limit-zero",
    Severity.ERROR,
    why="The limit counts every resize, a clean one too. With 0 the first preemption ends the job.",
    fix="Leave it out, since being preempted is normal, or allow for many resizes.",
    at=At.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --reset-limit, "0", --host-discovery-script, /hosts, python, train.py]',
    good='command: [horovodrun, -np, "2", --reset-limit, "100", --host-discovery-script, /hosts, python, train.py]',
)
def reset_limit_zero(job: LintedJob) -> Iterator[Hit]:
    """Finds `--reset-limit 0`."""
    flag = job.call.flags.get("--reset-limit")
    if job.elastic and flag and flag.number == 0:
        yield Hit(path=flag.values[0].path, value=flag.text, message="the first resize ends the job")


@rule(
    "HE117",
    "no-training-command",
    Severity.ERROR,
    why="horovodrun starts an empty command on every worker; each ends at once with 0 and the job counts as a success.",
    fix="Put the training command after the options.",
    at=At.LAUNCHER,
    bad='command: [horovodrun, -np, "2", --host-discovery-script, /hosts]',
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def no_training_command(job: LintedJob) -> Iterator[Hit]:
    """Finds a launcher that is given nothing to start."""
    asks_only = {"--version", "--help", "--check-build"} & job.call.flags.keys()
    if job.call.launcher is not Launcher.OTHER and not job.call.command and not asks_only:
        yield _at_command(job, f"{job.call.launcher} is given no command to start")
