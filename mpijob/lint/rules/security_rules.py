"""HE42x: what a pod may do on its node, and which secrets leave it."""

import re
from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.linted_job import Container, LintedJob, Pod
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

_SECRET_NAME: Final = re.compile(
    r"(?:.*_)?(SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIALS|PRIVATE_KEY|API_KEY|APIKEY|SECRET_KEY|SECRET_ACCESS_KEY|SESSION_TOKEN)"
)


@rule(
    "HE421",
    "secret-on-launcher",
    Severity.ERROR,
    why="Horovod puts the launcher's whole environment on the command line of every process it starts on the workers: "
    "readable in `ps`, in /proc and in logs, by everyone on those nodes.",
    fix="Give secrets to the workers' container only, as `envFrom` or a mounted file.",
    at=At.LAUNCHER,
    bad="""
env:
- {name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}
- {name: WANDB_API_KEY, valueFrom: {secretKeyRef: {name: wandb, key: key}}}
""",
    good='env: [{name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}]',
)
def secret_on_launcher(job: LintedJob) -> Iterator[Hit]:
    """Finds secrets in the launcher's environment."""
    if not job.elastic:
        return
    main = job.launcher.pod.main.view
    for variable in main.get("env").items():
        name = variable.get("name").text or ""
        referred = variable.get("valueFrom", "secretKeyRef").exists
        literal = bool(variable.get("value").text) and _SECRET_NAME.fullmatch(name.upper())
        if referred or literal:
            yield hit(variable.get("name"), "ends on the command line of every process on the workers")
    for source in main.get("envFrom").items():
        reference = source.get("secretRef")
        if reference.exists:
            yield hit(reference, "the whole secret ends on the command line of every process on the workers")


def _missing(pod: Pod, container: Container) -> list[str]:
    """What Pod Security `restricted` asks for and the pod lacks."""
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
    "HE422",
    "not-restricted",
    Severity.INFO,
    why="A namespace that enforces it refuses the pods, and the job stays Created with no pod. ssh needs no root: "
    "sshd listens on 2222 as uid 1000 in the operator's base image and in ours.",
    fix="Set runAsNonRoot, allowPrivilegeEscalation: false, drop ALL capabilities, seccompProfile RuntimeDefault.",
    at=At.WORKER,
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
def not_restricted(job: LintedJob) -> Iterator[Hit]:
    """Checks pods against the Pod Security level `restricted`."""
    for replica in (job.launcher, job.worker):
        for container in (*replica.pod.init, *replica.pod.containers):
            missing = _missing(replica.pod, container)
            if missing:
                yield hit(
                    container.view.get("securityContext"), f"Pod Security `restricted` asks for {'; '.join(missing)}"
                )


@rule(
    "HE423",
    "on-the-node",
    Severity.WARNING,
    why="Training runs what researchers write on nodes that also serve inference: with these a mistake reaches the "
    "node. Pod Security `baseline` refuses all of them.",
    fix="Take them out; GPUs, EFA and shared memory need none of them.",
    at=At.WORKER_POD,
    bad="spec: {hostPID: true, volumes: [{name: data, hostPath: {path: /mnt/data}}]}",
    good="spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}",
)
def on_the_node(job: LintedJob) -> Iterator[Hit]:
    """Finds privileged containers, host namespaces and host folders."""
    for replica in (job.launcher, job.worker):
        spec = replica.pod.spec
        fields = [spec.get(name) for name in ("hostPID", "hostIPC")]
        privileged = [c.view.get("securityContext", "privileged") for c in (*replica.pod.init, *replica.pod.containers)]
        for field in (*fields, *privileged):
            if field.value is True:
                yield hit(field, "opens the node to the pod")
        yield from _host_paths(spec)


def _host_paths(spec: View) -> Iterator[Hit]:
    for volume in spec.get("volumes").items():
        path = volume.get("hostPath")
        if path.exists:
            yield hit(path, "a folder of the node; other nodes have another one")
