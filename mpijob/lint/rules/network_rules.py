"""HE44x: who can reach the job's ports, and what he can do there."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_OPERATOR_NAME, Role
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.launcher_command_line import LauncherProgram
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation

_EVERYWHERE: Final = frozenset(("0.0.0.0/0", "::/0"))
_ISTIO: Final = "sidecar.istio.io/inject"
_LINKERD: Final = "linkerd.io/inject"
_POLICY: Final = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: fashion}}
spec:
  podSelector: {{matchLabels: {{training.kubeflow.org/job-name: fashion}}}}
  policyTypes: [Ingress]
  ingress:
  - from: [{peer}]
"""


@rule(
    "HE441",
    "no-network-policy",
    Severity.WARNING,
    why="A launcher on Horovod 0.28.1 as it is published runs the code that any pod sends it (HE443). No launcher is "
    "safe without a policy: `horovodrun` believes whoever reaches its rendezvous server, who can take a worker's place "
    "or stop the job, and what travels between processes (Gloo, NCCL) is neither encrypted nor signed. On the host "
    "network a policy is no help: most network plugins take such a pod's traffic for its node's, and let it pass.",
    fix="Add a NetworkPolicy that admits only the job's own pods, and keep the launcher off the host network. If the "
    "namespace already has a policy, or a firewall guards the nodes, silence the rule and give that reason.",
    part=ManifestPart.RELATED_OBJECT,
    bad="apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: fashion}\n$patch: delete",
    good=_POLICY.format(peer="{podSelector: {matchLabels: {training.kubeflow.org/job-name: fashion}}}"),
)
def no_network_policy(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs for whose launcher the files have no NetworkPolicy that can work."""
    field = job.launcher.pod.spec.get("hostNetwork")
    if job.elastic and field.value is True:
        yield violation(field, "on the host network most network plugins ignore NetworkPolicies", choice=True)
    # A generated job lacks a policy only if its description says so (`network.policy: false`).
    elif job.elastic and not any(True for _ in _policies(job)):
        message = "no NetworkPolicy in these files selects the launcher's pod"
        yield violation(job.view.get("metadata", "name"), message, choice=True)


def _policies(job: LintedJob) -> Iterator[ManifestView]:
    """The ingress policies that select the launcher's pod."""
    labels = {LABEL_JOB_NAME: job.name, LABEL_JOB_ROLE: Role.LAUNCHER.value, LABEL_OPERATOR_NAME: "mpi-operator"}
    labels |= {key: view.text or "" for key, view in job.launcher.pod.template.get("metadata", "labels").pairs()}
    for policy in job.related_objects.of_kind("NetworkPolicy", namespace=job.namespace):
        types = [item.text for item in policy.get("spec", "policyTypes").items()]
        if (not types or "Ingress" in types) and _selects(policy.get("spec", "podSelector"), labels):
            yield policy


def _selects(selector: ManifestView, labels: dict[str, str]) -> bool:
    matched = all(labels.get(key) == value.value for key, value in selector.get("matchLabels").pairs())
    return matched and all(_expression(item, labels) for item in selector.get("matchExpressions").items())


def _expression(expression: ManifestView, labels: dict[str, str]) -> bool:
    value = labels.get(str(expression.get("key").value))
    values = [item.text for item in expression.get("values").items()]
    matches = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return matches.get(str(expression.get("operator").value), False)


@rule(
    "HE442",
    "open-network-policy",
    Severity.WARNING,
    why="A rule without `from`, an empty pod selector, a selector for every namespace, or 0.0.0.0/0 admits pods that "
    "must not reach the job's ports: HE441 says what they could do there.",
    fix="Select pods by `training.kubeflow.org/job-name`. Ports that only serve metrics may be open to the monitoring "
    "namespace.",
    part=ManifestPart.RELATED_OBJECT,
    bad=_POLICY.format(peer="{namespaceSelector: {}}"),
    good=_POLICY.format(peer="{podSelector: {matchLabels: {training.kubeflow.org/job-name: fashion}}}"),
)
def open_network_policy(job: LintedJob) -> Iterator[Violation]:
    """Finds NetworkPolicies for the launcher that admit more than the job's own pods."""
    if not job.elastic:
        return
    for policy in _policies(job):
        for entry in policy.get("spec", "ingress").items():
            reason = _too_open(entry)
            if reason:
                name = policy.get("metadata", "name").value
                yield violation(job.view.get("metadata", "name"), f"NetworkPolicy {name!r} admits {reason}")


def _too_open(entry: ManifestView) -> str:
    """Whom an ingress rule admits other than pods selected by a label; empty if no one."""
    peers = list(entry.get("from").items())
    if not peers:
        return "everyone"
    for peer in peers:
        if peer.get("ipBlock", "cidr").text in _EVERYWHERE:
            return "every address"
        pods, namespaces = peer.get("podSelector"), peer.get("namespaceSelector")
        if namespaces.exists and not namespaces.value and not pods.value:
            return "every namespace"
        if pods.exists and not pods.value and not namespaces.value:
            return "every pod in the namespace"
    return ""


@rule(
    "HE443",
    "unpickling-launcher",
    Severity.WARNING,
    why="`horovodrun` of Horovod 0.28.1 as it is published unpickles what is sent by PUT to its rendezvous server "
    "(CVE-2024-10190), and its workers what is sent to their notification service with a key that the same server "
    "tells: whoever reaches these ports runs code in the job. Only a NetworkPolicy is between, which some network "
    "plugins do not enforce. The Horovod that `hvd-elastic install-horovod` builds, and the image of hvd-elastic has, "
    "reads JSON instead since its second set of patches.",
    fix="Start with `hvd-elastic launch` or `hvd-elastic horovodrun` in an image that has hvd-elastic, or build the "
    "image's Horovod with `hvd-elastic install-horovod` and say so: `--horovod 0.28.1+hvdelastic.2`, the same as "
    "`horovod:` in the linter's settings, or `horovod0.28.1-hvdelastic.2` in the image's tag.",
    part=ManifestPart.LAUNCHER,
    bad="image: example.com/train:horovod0.28.1",
    good="image: example.com/train:horovod0.28.1-hvdelastic.2",
)
def unpickling_launcher(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic `horovodrun` of a Horovod that runs what is sent to it, or of which nothing tells the opposite."""
    if not job.elastic or job.command_line.program is not LauncherProgram.HOROVODRUN:
        return
    image, horovod = job.launcher.pod.main.view.get("image"), job.horovod
    if horovod is None:
        yield violation(image, "nothing says that the Horovod of this image is patched against CVE-2024-10190")
    elif horovod.unpickles_requests:
        yield violation(image, f"Horovod {horovod} runs what anyone sends to the launcher (CVE-2024-10190)")


@rule(
    "HE444",
    "mesh-sidecar",
    Severity.ERROR,
    keeps_from_starting=True,
    why="A mesh puts its proxy into every pod of such a namespace. The launcher's pod then never completes, ssh and "
    "the connections of Gloo and NCCL go through the proxy, which knows none of their protocols, and an init container "
    "has no network before the proxy runs (mpi-operator issues 407 and 480).",
    fix='Label the templates of both pods `sidecar.istio.io/inject: "false"`, or annotate them `linkerd.io/inject: '
    "disabled`. On the MPIJob itself neither has an effect.",
    part=ManifestPart.RELATED_OBJECT,
    bad="apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {istio-injection: enabled}}",
    good="apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {istio-injection: disabled}}",
)
def mesh_sidecar(job: LintedJob) -> Iterator[Violation]:
    """Finds pods into which a mesh puts its proxy."""
    namespace = job.related_objects.named("Namespace", job.namespace).get("metadata")
    labels, notes = namespace.get("labels"), namespace.get("annotations")
    istio = labels.get("istio-injection").value == "enabled" or labels.get("istio.io/rev").exists
    linkerd = notes.get("linkerd.io/inject").value in ("enabled", "ingress")
    for replica in (job.launcher, job.worker):
        metadata = replica.pod.template.get("metadata")
        places = [metadata.get(part) for part in ("labels", "annotations")]
        asked = [place.get(_ISTIO) for place in places if place.get(_ISTIO).exists]
        own = metadata.get("annotations", _LINKERD)
        if any(view.text == "true" for view in asked) or own.text in ("enabled", "ingress"):
            yield violation(next((v for v in asked if v.text == "true"), own), "a mesh puts its proxy into this pod")
        elif replica.view.exists and ((istio and not asked) or (linkerd and not own.exists)):
            yield violation(metadata, f"the mesh of namespace {job.namespace!r} puts its proxy into this pod")
