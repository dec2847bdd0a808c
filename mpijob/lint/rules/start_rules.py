"""HE14x: what keeps the launcher from reaching its workers, so that the job never starts."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_edit import ManifestEdit, SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.launcher_command_line import PROGRAMS, LauncherProgram, integer
from hvd_elastic.mpijob.lint.job.linted_job import Container, LintedJob, MPIJobVersion, PodTemplate
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation
from hvd_elastic.system.plain_words import count_words

_PLAIN: Final = re.compile(r"[\w\s./=:,@%+-]+")
_WORD: Final = re.compile(r"[\w./$!{}-]+")
_IDLE: Final = frozenset(
    (
        "",
        "sleep",
        "tail",
        "cat",
        "true",
        ":",
        "echo",
        "printf",
        "date",
        "wait",
        "trap",
        "read",
        "done",
        "while",
        "until",
    )
)
"""Programs and words of a shell that do nothing but pass the time."""
_KEYWORDS: Final = frozenset(("do", "while", "until", "if", "then", "else"))
_PROBES: Final = frozenset(("ssh", "nc", "ncat", "getent", "ping", "nslookup", "dig", "host", "telnet"))
_COMPARISONS: Final = frozenset(("-ge", "-gt", "-eq", "-lt", "-le", "-ne"))
_LOCAL: Final = frozenset(("localhost", "127.0.0.1"))
_PUBLISHED: Final = re.compile(r"(?:docker\.io/)?horovod/horovod[\w-]*(?:[:@].*)?")


@rule(
    "HE141",
    "several-words-in-one",
    Severity.ERROR,
    why="Without a shell, the first item of a command is the name of one program, blanks included. No image has a "
    "program called `horovodrun -np 2 ...`: the container ends in StartError.",
    fix="Write each word as an item of its own, or let a shell divide them: [bash, -c, exec horovodrun -np 2 ...].",
    part=ManifestPart.LAUNCHER,
    bad='command: ["horovodrun -np 2 --host-discovery-script /hosts python train.py"]\nargs: []',
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def several_words_in_one(job: LintedJob) -> Iterator[Violation]:
    """Finds a program's name with blanks in it."""
    for container in job.all_containers:
        for item in list(container.view.get("command").items())[:1]:
            if item.text is not None and len(item.text.split()) > 1:
                yield violation(item, "is taken for the name of one program", *_divided(container, item.text))


def _divided(container: Container, text: str) -> tuple[ManifestEdit, ...]:
    """The words as items, if it is sure what they mean: those of a known program, without a character of a shell."""
    words, command = text.split(), container.view.get("command")
    if words[0].rpartition("/")[2] not in {*PROGRAMS, "sshd"} or not _PLAIN.fullmatch(text):
        return ()
    rest = [item.value for item in command.items()][1:]
    return (SetValue(command.path, [*words, *rest]),)


@rule(
    "HE142",
    "waits-for-every-host",
    Severity.ERROR,
    why="An elastic job requests its maximum of workers, which may never run at once. A launcher or an init container "
    "that first waits until each of them answers waits indefinitely, with the workers that it has.",
    fix="Remove the wait: the discovery script says which workers are there, and `-np` for how many the first step "
    "waits.",
    part=ManifestPart.LAUNCHER_POD,
    bad="""
spec:
  initContainers:
  - name: wait
    image: example.com/train:1
    command: [sh, -c, 'for h in $(cat /etc/mpi/hostfile); do until ssh $h true; do sleep 3; done; done']
""",
    good="spec: {}",
)
def waits_for_every_host(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs whose launcher starts only once every worker answers."""
    if not job.elastic:
        return
    for container in (*job.launcher.pod.init, job.launcher.pod.main):
        for word in container.words:
            if "\n" in word.text or " " in word.text:
                lines = [_WORD.findall(line.partition("#")[0]) for line in word.text.splitlines()]
                if _waits_for_all(lines) or any(_waits_for_count(line, _first_workers(job)) for line in lines):
                    yield Violation(path=word.path, value=word.text, message="waits until every worker answers")


def _waits_for_all(lines: Sequence[Sequence[str]]) -> bool:
    """Whether a loop over all hosts has a loop in it that ends when this one answers; or `kubectl wait` does both."""
    hosts: set[str] = set()
    for words in lines:
        named = any("hostfile" in word or "hosts" in word or "worker" in word.lower() for word in words)
        if named and "kubectl" in words and "wait" in words[words.index("kubectl") :]:
            return True
        for keyword in ("for", "read"):
            if keyword in words[:-1] and (named or "seq" in words or keyword == "read"):
                name = next((word for word in words[words.index(keyword) + 1 :] if word[0] != "-"), "")
                hosts |= {f"${name}", f"${{{name}}}"} if name else set()
        loop = next((index for index, word in enumerate(words) if word in ("until", "while")), len(words))
        asks = any(word in _PROBES or word.startswith("/dev/tcp/") for word in words[loop:])
        if asks and any(word.endswith(host) or f"{host}/" in word for word in words[loop:] for host in hosts):
            return True
    return False


def _waits_for_count(words: Sequence[str], enough: int) -> bool:
    """Whether a loop ends when more hosts are counted than the first step needs."""
    counts = ("wc" in words and "-l" in words) or ("grep" in words and "-c" in words)
    if not counts or not {"until", "while"} & set(words):
        return False
    compared = next((index for index, word in enumerate(words[:-1]) if word in _COMPARISONS), None)
    number = None if compared is None else integer(words[compared + 1])
    return compared is not None and (number is None or number > enough)


def _first_workers(job: LintedJob) -> int:
    """Workers that the first step needs."""
    return -(-(job.command_line.number("-np") or 1) // max(1, job.host_slots or 1))


@rule(
    "HE143",
    "hosts-without-workers",
    Severity.ERROR,
    why="A static `horovodrun` does not read the operator's hostfile by itself. Without `-H` and `--hostfile` it takes "
    "localhost for the only host: all processes run in the launcher's pod, which has no GPU, and the workers wait. If "
    "`-H` has fewer slots than `-np`, it ends at once.",
    fix="Add `--hostfile /etc/mpi/hostfile`, or make the job elastic.",
    part=ManifestPart.LAUNCHER,
    bad='command: [horovodrun, -np, "4", -H, "localhost:1", python, train.py]',
    good='command: [horovodrun, -np, "4", --hostfile, /etc/mpi/hostfile, python, train.py]',
)
def hosts_without_workers(job: LintedJob) -> Iterator[Violation]:
    """Finds static `horovodrun` that starts no process on a worker."""
    line = job.command_line
    elsewhere = {"--hostfile", "--config-file", "--version", "--help", "--check-build"} & line.flags.keys()
    if line.program is not LauncherProgram.HOROVODRUN or job.elastic or elsewhere or not job.worker.replicas:
        return
    flag, processes = line.flags.get("--hosts"), line.number("-np")
    written = [host.partition(":") for host in (flag.text or "").split(",")] if flag else []
    if any(name not in _LOCAL for name, _, _ in written):
        return
    slots = sum(integer(number) or 1 for _, _, number in written)
    place = flag.values[0] if flag else line.program_words[-1]
    message = "all processes run in the launcher's pod, and no worker is used"
    if flag and processes is not None and processes > slots:
        message = f"{count_words(slots, 'slot')} for {count_words(processes, 'process')}, and no worker is used"
    yield Violation(path=place.path, value=place.text, message=message)


@rule(
    "HE144",
    "no-sshd",
    Severity.ERROR,
    # mpi-operator 0.8.2, pkg/controller/mpi_job_controller.go, newWorker. v1 starts processes by `kubectl exec`.
    why="In v2beta1 the launcher reaches its workers over ssh, and the operator starts sshd only in a worker that has "
    "neither `command` nor `args`. A worker that sleeps runs for ever and never answers: the launcher fails until its "
    "restarts are used up.",
    fix="Remove the command, run [/usr/sbin/sshd, -De], or run `hvd-elastic worker -- ...`.",
    part=ManifestPart.WORKER,
    bad="command: [sleep, infinity]\nargs: []",
    good="command: [/usr/sbin/sshd, -De]\nargs: []",
)
def no_sshd(job: LintedJob) -> Iterator[Violation]:
    """Finds workers whose command only passes the time."""
    main = job.worker.pod.main
    if job.version is not MPIJobVersion.V2BETA1 or not main.view.get("command").value:
        return
    script = main.command.script
    steps = [step.words for step in script.steps] if script else [main.command.words]
    texts = [[word.program for word in words] for words in steps]
    if main.words and all(_idles(words) for words in texts):
        yield violation(main.view.get("command"), "no sshd runs in this worker, and no launcher can reach it")


def _idles(words: Sequence[str]) -> bool:
    while words and words[0] in _KEYWORDS:
        words = words[1:]
    return not words or words[0] in _IDLE


def _root_key(job: LintedJob) -> bool:
    """Whether the operator mounts the ssh key for root, with mode 0600."""
    return job.version is MPIJobVersion.V2BETA1 and job.spec.get("sshAuthMountPath").value in (None, "/root/.ssh")


def _setting(pod: PodTemplate, name: str) -> ManifestView:
    """A setting of the main container's security context, or else of its pod's."""
    own = pod.main.view.get("securityContext", name)
    return own if own.exists else pod.spec.get("securityContext", name)


def _is_root(pod: PodTemplate) -> bool:
    return not _setting(pod, "runAsUser").number and _setting(pod, "runAsNonRoot").value is not True


@rule(
    "HE145",
    "group-readable-ssh-key",
    Severity.ERROR,
    why="With `fsGroup` the kubelet makes every file of a Secret readable for that group: the key in /root/.ssh gets "
    "mode 0640 in place of 0600, and ssh refuses it (`Permissions 0640 for '/root/.ssh/id_rsa' are too open`).",
    fix="Remove `fsGroup`, or run as another user than root, with `sshAuthMountPath` in that user's home.",
    part=ManifestPart.JOB,
    bad="""
spec:
  sshAuthMountPath: /root/.ssh
  mpiReplicaSpecs: {Launcher: {template: {spec: {securityContext: {fsGroup: 1337, runAsUser: 0, runAsNonRoot: false}}}}}
""",
    good="spec: {mpiReplicaSpecs: {Launcher: {template: {spec: {securityContext: {fsGroup: 1337}}}}}}",
)
def group_readable_ssh_key(job: LintedJob) -> Iterator[Violation]:
    """Finds `fsGroup` in pods where root connects with the operator's key."""
    pods = [job.launcher.pod]
    if job.command_line.program is LauncherProgram.MPIRUN:  # its daemons connect to each other
        pods.append(job.worker.pod)
    for pod in pods:
        group = pod.spec.get("securityContext", "fsGroup")
        if _root_key(job) and group.exists and _is_root(pod):
            yield violation(group, "the group may read root's ssh key, so ssh refuses the key")


@rule(
    "HE146",
    "sshd-without-chroot",
    Severity.ERROR,
    why="sshd of root changes its root folder and its user for each connection. Without these capabilities it ends it: "
    '`chroot("/run/sshd"): Operation not permitted [preauth]`, and the launcher sees `Connection reset`.',
    fix="Run sshd as another user on a port above 1024, as in the operator's base image and in hvd-elastic's, or add "
    "SYS_CHROOT, SETUID and SETGID.",
    part=ManifestPart.WORKER,
    bad="""
command: [/usr/sbin/sshd, -De]
args: []
securityContext: {runAsUser: 0, runAsNonRoot: false, capabilities: {drop: [ALL]}}
""",
    good="""
command: [/usr/sbin/sshd, -De]
args: []
securityContext: {runAsUser: 1000, capabilities: {drop: [ALL]}}
""",
)
def sshd_without_chroot(job: LintedJob) -> Iterator[Violation]:
    """Finds root's sshd without the capabilities that it needs."""
    pod = job.worker.pod
    capabilities = pod.main.view.get("securityContext", "capabilities")
    dropped = {str(item.value).upper().removeprefix("CAP_") for item in capabilities.get("drop").items()}
    added = {str(item.value).upper().removeprefix("CAP_") for item in capabilities.get("add").items()}
    as_root = _setting(pod, "runAsUser").number == 0 or (_root_key(job) and _is_root(pod))
    lacks = dropped & {"ALL", "SYS_CHROOT"} and not added & {"ALL", "SYS_CHROOT"}
    if job.version is MPIJobVersion.V2BETA1 and job.runs_sshd and as_root and lacks:
        yield violation(capabilities.get("drop"), "root's sshd needs SYS_CHROOT, SETUID and SETGID")


@rule(
    "HE147",
    "strict-modes",
    Severity.ERROR,
    # Horovod 0.28.1, docker/horovod/Dockerfile, leaves sshd_config as Debian has it.
    why="The operator mounts a Secret at the folder of the ssh key, and everyone may write to such a folder. sshd "
    "refuses keys in it unless `StrictModes no` is set, and the published images of Horovod do not set it "
    "(`Permission denied (publickey,password)`; mpi-operator issues 435 and 464).",
    fix="Start sshd with `-o StrictModes=no`, or build the image from the operator's base image, or use hvd-elastic's.",
    part=ManifestPart.WORKER,
    bad="image: horovod/horovod:0.28.1\ncommand: [/usr/sbin/sshd, -De]\nargs: []",
    good="image: horovod/horovod:0.28.1\ncommand: [/usr/sbin/sshd, -De, -o, StrictModes=no]\nargs: []",
)
def strict_modes(job: LintedJob) -> Iterator[Violation]:
    """Finds workers on Horovod's published images whose sshd refuses the operator's key."""
    main = job.worker.pod.main
    image = main.view.get("image")
    told = any("strictmodes" in word.text.lower() for word in main.words)
    if job.version is MPIJobVersion.V2BETA1 and job.runs_sshd and not told and _PUBLISHED.fullmatch(image.text or ""):
        yield violation(image, "sshd of this image refuses the operator's key")
