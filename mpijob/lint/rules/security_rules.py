"""HE42x: what a pod may do on its node, and which secrets leak from it."""

from collections.abc import Iterator

from hvd_elastic.mpijob.checks.secret_names import is_secret_name
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.linted_job import Container, LintedJob, PodTemplate
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation


@rule(
    "HE421",
    "secret-on-launcher",
    Severity.ERROR,
    why="Horovod puts the launcher's whole environment on the command line of every process that it starts on the "
    "workers. Everyone on those nodes can read it in `ps`, in /proc and in logs.",
    fix="Give secrets to the workers' container only, through `envFrom` or a mounted file.",
    part=ManifestPart.LAUNCHER,
    bad="""
env:
- {name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}
- {name: WANDB_API_KEY, valueFrom: {secretKeyRef: {name: wandb, key: key}}}
""",
    good='env: [{name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}]',
)
def secret_on_launcher(job: LintedJob) -> Iterator[Violation]:
    """Finds secrets in the launcher's environment."""
    if not job.elastic:
        return
    main = job.launcher.pod.main.view
    for variable in main.get("env").items():
        name = variable.get("name").text or ""
        referred = variable.get("valueFrom", "secretKeyRef").exists
        literal = bool(variable.get("value").text) and is_secret_name(name)
        if referred or literal:
            yield violation(variable.get("name"), "ends up on the command line of every process on the workers")
    for source in main.get("envFrom").items():
        reference = source.get("secretRef")
        if reference.exists:
            yield violation(reference, "the whole secret ends up on the command line of every process on the workers")


def _missing(pod: PodTemplate, container: Container) -> list[str]:
    """The settings that Pod Security `restricted` requires and the container lacks."""
    own, shared = container.view.get("securityContext"), pod.spec.get("securityContext")

    def either(name: str) -> object:
        return own.get(name).value if own.get(name).exists else shared.get(name).value

    dropped = [item.text for item in own.get("capabilities", "drop").items()]
    seccomp = own.get("seccompProfile") if own.get("seccompProfile").exists else shared.get("seccompProfile")
    checks = {
        "runAsNonRoot: true": either("runAsNonRoot") is True,
        "allowPrivilegeEscalation: false": own.get("allowPrivilegeEscalation").value is False,
        "capabilities: {drop: [ALL]}": "ALL" in dropped,
        "seccompProfile: {type: RuntimeDefault}": seccomp.get("type").value in ("RuntimeDefault", "Localhost"),
    }
    return [what for what, holds in checks.items() if not holds]


@rule(
    "HE424",
    "root-beside-non-root",
    Severity.ERROR,
    why="The kubelet refuses a container that must not run as root and is told to run as uid 0: the pod stays in "
    "CreateContainerConfigError (`container's runAsUser breaks non-root policy`).",
    fix="Set `runAsUser` to the user that the image is made for, 1000 in the operator's base image and in "
    "hvd-elastic's, or remove `runAsNonRoot`.",
    part=ManifestPart.WORKER,
    bad="securityContext: {runAsUser: 0, runAsNonRoot: true}",
    good="securityContext: {runAsUser: 1000, runAsNonRoot: true}",
)
def root_beside_non_root(job: LintedJob) -> Iterator[Violation]:
    """Finds containers with `runAsUser: 0` and `runAsNonRoot: true`, their own or their pod's."""
    for replica in (job.launcher, job.worker):
        shared = replica.pod.spec.get("securityContext")
        for container in replica.pod.all_containers:
            own = container.view.get("securityContext")
            user, must = (
                own.get(name) if own.get(name).exists else shared.get(name) for name in ("runAsUser", "runAsNonRoot")
            )
            if user.number == 0 and must.value is True:
                yield violation(user, f"container {container.name!r} must not run as root, and shall run as uid 0")


@rule(
    "HE422",
    "not-restricted",
    Severity.INFO,
    why="A namespace that enforces `restricted` rejects the pods, and the job stays Created without pods. ssh does "
    "not need root: in the operator's base image and in hvd-elastic's, sshd listens on 2222 as uid 1000.",
    fix="Set runAsNonRoot, allowPrivilegeEscalation: false, drop ALL capabilities, and seccompProfile RuntimeDefault.",
    part=ManifestPart.WORKER,
    bad="securityContext: {runAsUser: 0, allowPrivilegeEscalation: true}",
    good="""
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
""",
)
def not_restricted(job: LintedJob) -> Iterator[Violation]:
    """Checks pods against the Pod Security level `restricted`."""
    for replica in (job.launcher, job.worker):
        for container in replica.pod.all_containers:
            missing = _missing(replica.pod, container)
            if missing:
                yield violation(
                    container.view.get("securityContext"), f"Pod Security `restricted` requires {'; '.join(missing)}"
                )


@rule(
    "HE423",
    "on-the-node",
    Severity.WARNING,
    why="Training runs code that researchers write on nodes that also serve inference. With privileged containers, "
    "host namespaces or hostPath volumes, a mistake in that code reaches the node. Pod Security `baseline` rejects "
    "all of them.",
    fix="Remove them; GPUs, EFA and shared memory need none of them. HE313 is about workers of elastic jobs on the "
    "host network.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {hostPID: true, volumes: [{name: data, hostPath: {path: /mnt/data}}]}",
    good="spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}",
)
def on_the_node(job: LintedJob) -> Iterator[Violation]:
    """Finds privileged containers, host namespaces and hostPath volumes."""
    for replica in (job.launcher, job.worker):
        spec = replica.pod.spec
        fields = [spec.get(name) for name in ("hostPID", "hostIPC")]
        if replica is job.launcher or not job.elastic:
            fields.append(spec.get("hostNetwork"))
        privileged = [c.view.get("securityContext", "privileged") for c in replica.pod.all_containers]
        for field in (*fields, *privileged):
            if field.value is True:
                yield violation(field, "gives the pod access to the node")
        yield from _host_paths(spec)


def _host_paths(spec: ManifestView) -> Iterator[Violation]:
    for volume in spec.get("volumes").items():
        path = volume.get("hostPath")
        if path.exists:
            yield violation(path, "is a folder of one node; every other node has a different one")
