"""HE3xx: worker pods, how they become ready and how they leave."""

import re
from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.contract import ENV_POD_UID, READY_PORT
from hvd_elastic.mpijob.lint.document.manifest_edit import RemoveValue, SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.launcher_command_line import LauncherProgram
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, MPIJobVersion
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a path in the pod
_SCRATCH: Final = "/tmp"  # noqa: S108
_DEFAULT_GRACE_SECONDS: Final = 30
_SHORTEST_GRACE_SECONDS: Final = 5
"""One poll of discovery (1 s), one step, a reset and a commit."""


def _grace(job: LintedJob) -> int:
    number = job.worker.pod.spec.get("terminationGracePeriodSeconds").number
    return _DEFAULT_GRACE_SECONDS if number is None else number


def _pre_stop_sleep(job: LintedJob) -> tuple[ManifestView, int] | None:
    """The preStop hook if all it does is sleep, and for how many seconds."""
    hook = job.worker.pod.main.view.get("lifecycle", "preStop")
    native = hook.get("sleep", "seconds")
    if native.number is not None:
        return native, native.number
    command = hook.get("exec", "command")
    words = " ".join(item.text or "" for item in command.items())
    match = re.fullmatch(r"(?:\S*sh -c )?(?:exec )?\S*sleep (\d{1,6})s?;?", words.strip())
    return (command, int(match[1])) if match else None


@rule(
    "HE301",
    "no-readiness-probe",
    Severity.WARNING,
    why="Without a readiness probe a pod is Ready as soon as its container starts, before sshd listens. Discovery "
    "offers it, the launcher's ssh fails, and Horovod blacklists the host.",
    fix="Probe the port that shows that the worker is up: sshd's, or 2223 of hvd-elastic's entry point, which opens "
    "it only when the standby process is waiting.",
    part=ManifestPart.WORKER,
    bad="readinessProbe: null",
    good="readinessProbe: {tcpSocket: {port: 2223}, periodSeconds: 1}",
)
def no_readiness_probe(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic workers without a readiness probe."""
    main = job.worker.pod.main
    probe = main.view.get("readinessProbe")
    if not job.elastic or not main.view.exists or probe.exists or job.version is MPIJobVersion.V1:
        return
    port = READY_PORT if job.runs_worker_entry_point else job.ssh_port
    edits = (SetValue(probe.path, {"tcpSocket": {"port": port}, "periodSeconds": 1}),) if port else ()
    yield violation(probe, "the pod is Ready before it can be reached", *edits)


@rule(
    "HE302",
    "sshd-dies-first",
    Severity.ERROR,
    why="sshd ends on SIGTERM and takes the training process with it, 0.4 s after the scheduler chose the pod. The "
    "process is killed in mid-step and the survivors roll back to the last commit; one survivor in four missed the "
    "closed connection and stalled for 30.5 s, and the host is blacklisted (measured). The operator starts sshd if a "
    "worker has no command.",
    fix="Run `hvd-elastic worker -- ...` as the worker's command, or hold the pod with a preStop hook that ends when "
    "the training process has left.",
    part=ManifestPart.WORKER,
    bad="command: [/usr/sbin/sshd, -De]",
    good="""
command: [/usr/sbin/sshd, -De]
lifecycle: {preStop: {exec: {command: [/opt/wait-for-training-to-leave]}}}
""",
)
def sshd_dies_first(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic workers whose PID 1 is sshd and that have no preStop hook."""
    main = job.worker.pod.main
    if job.elastic and job.runs_sshd and not main.view.get("lifecycle", "preStop").exists:
        yield violation(main.view.get("command"), "sshd ends on SIGTERM and takes the training process with it")


@rule(
    "HE303",
    "sleeping-pre-stop",
    Severity.WARNING,
    why="The GPU stays taken for the whole sleep, no matter how early the training process has left. Inference "
    "started 13.1 to 14.5 s after its pod was created with `sleep 12`, but 2.7 to 3.8 s with a hook that ends when "
    "the process has left (measured).",
    fix="End the hook when the training process has left. `hvd-elastic worker` needs no hook.",
    part=ManifestPart.WORKER,
    bad='lifecycle: {preStop: {exec: {command: [sleep, "12"]}}}',
    good="lifecycle: {preStop: {exec: {command: [/opt/wait-for-training-to-leave]}}}",
)
def sleeping_pre_stop(job: LintedJob) -> Iterator[Violation]:
    """Finds a preStop hook that only sleeps."""
    if job.elastic and (found := _pre_stop_sleep(job)):
        where, seconds = found
        edits = (
            (RemoveValue((*job.worker.pod.main.view.path, "lifecycle", "preStop")),)
            if job.runs_worker_entry_point
            else ()
        )
        yield violation(where, f"inference waits {seconds} s for the GPU at every preemption", *edits)


@rule(
    "HE304",
    "grace-below-pre-stop",
    Severity.ERROR,
    why="The grace period runs while the hook runs. When it ends, the kubelet kills the pod including the training "
    "process.",
    fix="Make `terminationGracePeriodSeconds` longer than the hook by one step, one reset and one checkpoint.",
    part=ManifestPart.WORKER_POD,
    bad="""
spec:
  terminationGracePeriodSeconds: 10
  containers:
  - {name: worker, image: example.com/train:1, lifecycle: {preStop: {sleep: {seconds: 12}}}}
""",
    good="""
spec:
  terminationGracePeriodSeconds: 25
  containers:
  - {name: worker, image: example.com/train:1, lifecycle: {preStop: {sleep: {seconds: 12}}}}
""",
)
def grace_below_pre_stop(job: LintedJob) -> Iterator[Violation]:
    """Finds a termination grace period that ends before the preStop hook does."""
    found = _pre_stop_sleep(job)
    if found and _grace(job) <= found[1]:
        grace = job.worker.pod.spec.get("terminationGracePeriodSeconds")
        yield violation(grace, f"the grace period is {_grace(job)} s, but the preStop hook takes {found[1]} s")


@rule(
    "HE305",
    "short-grace",
    Severity.WARNING,
    why="A clean departure takes one poll of discovery (1 s), one step, a reset and a commit. With less time the "
    "process is killed while it is still needed, and the survivors restore and wait.",
    fix="Set 15 to 30 s. A longer grace period costs nothing if the pod ends as soon as its process has left.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {terminationGracePeriodSeconds: 0}",
    good="spec: {terminationGracePeriodSeconds: 15}",
)
def short_grace(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic workers with a grace period below 5 s."""
    grace = job.worker.pod.spec.get("terminationGracePeriodSeconds")
    if job.elastic and grace.number is not None and grace.number < _SHORTEST_GRACE_SECONDS:
        yield violation(grace, f"{grace.number} s is too short for the worker to leave", choice=True)


@rule(
    "HE306",
    "no-requests",
    Severity.WARNING,
    why="The scheduler and the autoscaler count requests. A pod without them is placed where there is no room and is "
    "evicted first, and the MPI Operator never recreates an evicted worker (mpi-operator issue 647).",
    fix="Set `resources.requests` for cpu and memory, or limits, which count as requests.",
    part=ManifestPart.WORKER,
    bad="resources: null",
    good="resources: {limits: {cpu: 4, memory: 16Gi}}",
)
def no_requests(job: LintedJob) -> Iterator[Violation]:
    """Finds containers without CPU and memory requests."""
    for replica in (job.launcher, job.worker):
        main = replica.pod.main
        missing = [name for name in ("cpu", "memory") if not main.resource(name).exists]
        if main.view.exists and missing:
            yield violation(main.view.get("resources"), f"requests no {' and no '.join(missing)}")


@rule(
    "HE307",
    "gpu-on-launcher",
    Severity.WARNING,
    why="The operator of v2beta1 sets NVIDIA_VISIBLE_DEVICES to an empty value on a launcher that is not a worker: the "
    "GPU is taken and nothing can use it. Other accelerators are not hidden, but no training process runs there. In "
    "v1 a launcher with a GPU is one of the hosts, and this rule is silent.",
    fix="Remove the GPU from the launcher's resources.",
    part=ManifestPart.LAUNCHER,
    bad="resources: {limits: {cpu: 1, memory: 2Gi, nvidia.com/gpu: 1}}",
    good="resources: {limits: {cpu: 1, memory: 2Gi}}",
)
def gpu_on_launcher(job: LintedJob) -> Iterator[Violation]:
    """Finds a launcher that requests a GPU, and is none of the hosts."""
    main = job.launcher.pod.main
    requested = [view for view in main.gpus if view.amount]
    if job.launcher_trains or not requested:
        return
    names = [str(view.path[-1]) for view in requested]
    if not all(name.startswith("nvidia.com/") for name in names):
        yield violation(requested[0], "no training process runs in the launcher")
        return
    parts = [main.view.get("resources", part, name) for part in ("limits", "requests") for name in names]
    present = [view for view in parts if view.exists]
    yield violation(present[0], "the launcher cannot use this GPU", *(RemoveValue(view.path) for view in present))


@rule(
    "HE308",
    "launcher-as-worker",
    Severity.ERROR,
    why="With `runLauncherAsWorker`, the workers' index labels are one higher than the indexes in their names, so "
    "that scaling from 4 to 3 deletes two workers. The launcher, which must not be preempted, holds a GPU.",
    fix="Remove the field.",
    part=ManifestPart.JOB,
    bad="spec: {runLauncherAsWorker: true}",
    good="spec: {runLauncherAsWorker: false}",
)
def launcher_as_worker(job: LintedJob) -> Iterator[Violation]:
    """Finds `runLauncherAsWorker: true` in an elastic job."""
    field = job.spec.get("runLauncherAsWorker")
    if job.elastic and field.value is True:
        yield violation(field, "scaling deletes the wrong workers", SetValue(field.path, False))


@rule(
    "HE309",
    "waits-for-all-workers",
    Severity.ERROR,
    keeps_from_starting=True,
    why="With WaitForWorkersReady, the launcher is created only when all replicas are Ready at once. An elastic job "
    "requests its maximum, which may never be available: it waits indefinitely with the workers it has.",
    fix="Use AtStartup.",
    part=ManifestPart.JOB,
    bad="spec: {launcherCreationPolicy: WaitForWorkersReady}",
    good="spec: {launcherCreationPolicy: AtStartup}",
)
def waits_for_all_workers(job: LintedJob) -> Iterator[Violation]:
    """Finds `launcherCreationPolicy: WaitForWorkersReady` in an elastic job."""
    field = job.spec.get("launcherCreationPolicy")
    if job.elastic and field.value == "WaitForWorkersReady":
        yield violation(
            field, "the launcher waits for the maximum number of workers", SetValue(field.path, "AtStartup")
        )


@rule(
    "HE310",
    "no-shared-memory",
    Severity.WARNING,
    why="A container's /dev/shm has 64 MiB. Data loader processes pass batches through it and die with `Bus error`.",
    fix="Mount an emptyDir of `medium: Memory` at /dev/shm, with a sizeLimit that fits into the memory limit.",
    part=ManifestPart.WORKER,
    bad='resources: {limits: {cpu: "8", memory: 32Gi, nvidia.com/gpu: 1}}\nvolumeMounts: []',
    good="""
resources: {limits: {cpu: "8", memory: 32Gi, nvidia.com/gpu: 1}}
volumeMounts: [{name: shm, mountPath: /dev/shm}]
""",
)
def no_shared_memory(job: LintedJob) -> Iterator[Violation]:
    """Finds GPU workers without a volume at /dev/shm."""
    main = job.worker.pod.main
    # With hostIPC it is the node's own (containerd, `containerMounts`).
    asks_gpu = any(view.amount for view in main.gpus) and job.worker.pod.spec.get("hostIPC").value is not True
    if asks_gpu and main.mount(_SHARED_MEMORY).get("mountPath").value != _SHARED_MEMORY:
        yield violation(main.view.get("volumeMounts"), f"{_SHARED_MEMORY} has 64 MiB")


@rule(
    "HE311",
    "unbounded-shared-memory",
    Severity.WARNING,
    why="Data in a memory-backed volume counts as the pod's memory. Without a sizeLimit, or with one at or above the "
    "memory limit, filling the volume gets the worker killed or the node short of memory.",
    fix="Set a sizeLimit below the memory limit; a quarter of it is a good start.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {volumes: [{name: shm, emptyDir: {medium: Memory}}]}",
    good="spec: {volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]}",
)
def unbounded_shared_memory(job: LintedJob) -> Iterator[Violation]:
    """Compares the size of memory-backed volumes with the worker's memory limit."""
    memory = job.worker.pod.main.view.get("resources", "limits", "memory").amount
    for volume in job.worker.pod.spec.get("volumes").items():
        empty = volume.get("emptyDir")
        size = empty.get("sizeLimit")
        if empty.get("medium").value != "Memory":
            continue
        if not size.exists:
            yield violation(empty, "no sizeLimit")
        elif size.amount is not None and memory is not None and size.amount >= memory:
            yield violation(size, "not below the memory limit, which the volume counts towards")


@rule(
    "HE312",
    "read-only-root-without-tmp",
    Severity.WARNING,
    why="torch's compiler writes to /tmp when it is first used, which may be long after the start.",
    fix="Mount an emptyDir at /tmp.",
    part=ManifestPart.WORKER,
    bad="securityContext: {readOnlyRootFilesystem: true}\nvolumeMounts: []",
    good="securityContext: {readOnlyRootFilesystem: true}\nvolumeMounts: [{name: tmp, mountPath: /tmp}]",
)
def read_only_root_without_tmp(job: LintedJob) -> Iterator[Violation]:
    """Finds workers with a read-only root file system and no volume at /tmp."""
    main = job.worker.pod.main
    root = main.view.get("securityContext", "readOnlyRootFilesystem")
    if root.value is True and not main.mount(_SCRATCH).exists:
        yield violation(root, "nothing is writable at /tmp")


@rule(
    "HE313",
    "node-identity",
    Severity.WARNING,
    why="On the host network the pod's address is the node's: two workers on one node collide on sshd's port, and a "
    "new worker on the same node is mistaken for the old one. With a pod IP, each incarnation of a worker has its own "
    "address.",
    fix="Remove `hostNetwork`, unless the network fabric needs it; then spread the workers over nodes. A job that is "
    "generated with `workers.pod: {spec: {hostNetwork: true}}` has neither fault: the scheduler gives its ports of a "
    "node to one pod, and its workers answer with their UID.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {hostNetwork: true}",
    good="spec: {hostNetwork: false}",
)
def node_identity(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic workers on the host network."""
    field = job.worker.pod.spec.get("hostNetwork")
    if job.elastic and field.value is True and not job.worker.pod.main.variable(ENV_POD_UID).exists:
        yield violation(field, "all workers on a node have the same address")


@rule(
    "HE314",
    "unreadable-ssh-key",
    Severity.ERROR,
    keeps_from_starting=True,
    why="`sshAuthMountPath` is /root/.ssh by default, with files of mode 0600 that belong to root. Another user "
    "cannot read them, and every ssh connection fails.",
    fix="Set `sshAuthMountPath` to the user's own folder, /home/mpiuser/.ssh in the operator's base image.",
    part=ManifestPart.JOB,
    bad="spec: {sshAuthMountPath: /root/.ssh}",
    good="spec: {sshAuthMountPath: /home/mpiuser/.ssh}",
)
def unreadable_ssh_key(job: LintedJob) -> Iterator[Violation]:
    """Finds pods that do not run as root while the job's ssh key is mounted below /root."""
    path = job.spec.get("sshAuthMountPath")
    below_root = (path.text or "/root/.ssh").startswith("/root")
    if (
        job.version is not MPIJobVersion.V2BETA1
        or not below_root
        or not (job.elastic or job.command_line.program is LauncherProgram.MPIRUN)
    ):
        return
    for replica in (job.launcher, job.worker):
        contexts = (replica.pod.main.view.get("securityContext"), replica.pod.spec.get("securityContext"))
        if any(context.get("runAsUser").number or context.get("runAsNonRoot").value is True for context in contexts):
            yield violation(path, "the pods do not run as root and cannot read /root/.ssh")
            return
