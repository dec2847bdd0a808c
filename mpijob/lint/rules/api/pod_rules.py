"""HE92x: what the API server refuses of a pod, although it takes the MPIJob, and what it takes without effect.

The schema of an MPIJob lets all of this pass. The pods are refused when the operator creates them, and the operator
only records an event. Checked against Kubernetes 1.34.4, pkg/apis/core/validation/validation.go: ValidateTolerations,
validateEnvVarValueFrom, validateContainerResourceRequirements.
"""

import re
from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.description.object_names import LABEL_KEY
from hvd_elastic.mpijob.lint.document.manifest_edit import RemoveValue, SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.linted_job import Container, LintedJob, MPIJobVersion
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation

_HUGE_PAGES: Final = "hugepages-"
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_LEAST_MEMORY: Final = 1 << 20
_COUNTED: Final = frozenset(("cpu", "memory", "limits.cpu", "limits.memory"))
"""Of what a quota counts, that which a container must state; a limit counts as a request, too."""
_OF_PODS: Final = re.compile(
    r"(?:[\w-]+\.)*(?:k8s\.v1\.cni\.cncf\.io|k8s\.ovn\.org|sidecar\.istio\.io|traffic\.sidecar\.istio\.io|linkerd\.io"
    r"|cluster-autoscaler\.kubernetes\.io|karpenter\.sh|container\.apparmor\.security\.beta\.kubernetes\.io"
    r"|vault\.hashicorp\.com|prometheus\.io|cni\.projectcalico\.org)/\S+"
)
"""Annotations that plugins, meshes, autoscalers and injectors read from pods alone."""


@rule(
    "HE921",
    "bad-resources",
    Severity.ERROR,
    why="GPUs and other devices are whole, and are neither requested without a limit nor requested in another number "
    "than the limit. No request is above its limit. The API server refuses such pods when the operator creates them, "
    "and the operator only records an event: the job stays without pods.",
    fix="Write devices under `limits` alone, as whole numbers. To share a GPU, use the resource that the device "
    "plugin has for its parts.",
    part=ManifestPart.WORKER,
    bad="resources: {limits: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 0.5}}",
    good="resources: {limits: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}}",
)
def bad_resources(job: LintedJob) -> Iterator[Violation]:
    """Finds requests and limits that no pod may have."""
    for container in job.all_containers:
        resources = container.view.get("resources")
        limits, requests = resources.get("limits"), resources.get("requests")
        amounts = [amount for part in (limits, requests) for amount in part.pairs() if amount[1].exists]
        for name in dict.fromkeys(name for name, _ in amounts):
            limit, request = limits.get(name), requests.get(name)
            if _is_resource(name):
                yield from _of_resource(name, limit, request)
            else:
                meant = "; did you mean nvidia.com/gpu?" if name.casefold() in ("gpu", "gpus") else ""
                yield violation(limit if limit.exists else request, f"{name} is no resource of containers{meant}")
        huge = [amount for name, amount in amounts if name.startswith(_HUGE_PAGES)]
        if huge and not {"cpu", "memory"} & {name for name, _ in amounts}:
            yield violation(huge[0], "huge pages need cpu or memory beside them")


def _of_resource(name: str, limit: ManifestView, request: ManifestView) -> Iterator[Violation]:
    most, least, device = limit.amount, request.amount, _is_device(name)
    for view in (limit, request):
        if view.amount is not None and view.amount < 0:
            yield violation(view, "must not be negative")
    if device and "/" in name and any(amount is not None and amount % 1 for amount in (most, least)):
        yield violation(limit if limit.exists else request, f"{name} comes whole: there is no part of one")
    elif device and least is not None and not limit.exists:
        yield violation(request, f"{name} needs a limit", SetValue(limit.path, request.value))
    elif most is not None and least is not None and device and least != most:
        yield violation(request, f"{name} needs a request that is its limit, {limit.value}")
    elif most is not None and least is not None and least > most:
        yield violation(request, f"is above the limit, which is {limit.value}")


def _is_resource(name: str) -> bool:
    """Whether a container may ask for it: validateContainerResourceName."""
    return name in _STANDARD or name.startswith(_HUGE_PAGES) or ("/" in name and bool(LABEL_KEY.fullmatch(name)))


def _is_device(name: str) -> bool:
    """Whether the scheduler gives no more of it than there is: extended resources and huge pages."""
    return name.startswith(_HUGE_PAGES) or ("/" in name and "kubernetes.io/" not in name)


@rule(
    "HE922",
    "bad-toleration",
    Severity.ERROR,
    why="One toleration that Kubernetes does not know is enough for the API server to refuse the pod when the operator "
    "creates it. The operator only records an event: the job stays without pods.",
    fix="Use `operator: Equal` with a value or `operator: Exists` without one; an effect of NoSchedule, "
    "PreferNoSchedule or NoExecute; and tolerationSeconds with NoExecute alone.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {tolerations: [{key: pool, operator: Exists, value: gpu, effect: Noschedule}]}",
    good="""
spec:
  tolerations:
  - {key: pool, operator: Equal, value: gpu, effect: NoSchedule}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
""",
)
def bad_toleration(job: LintedJob) -> Iterator[Violation]:
    """Finds tolerations that no pod may have."""
    for replica in (job.launcher, job.worker):
        for toleration in replica.pod.spec.get("tolerations").items():
            if isinstance(toleration.value, dict):
                yield from _of_toleration(toleration)


def _of_toleration(toleration: ManifestView) -> Iterator[Violation]:
    key, operator, value, effect, seconds = (
        toleration.get(name) for name in ("key", "operator", "value", "effect", "tolerationSeconds")
    )
    if operator.text not in (None, "", "Equal", "Exists"):
        near = {"equal": "Equal", "equals": "Equal", "exist": "Exists", "exists": "Exists"}
        edits = [SetValue(operator.path, near[word])] if (word := str(operator.text).casefold()) in near else []
        yield violation(operator, "is neither Equal nor Exists", *edits)
    elif operator.text == "Exists" and value.text:
        yield violation(value, "Exists takes no value; use Equal", SetValue(operator.path, "Equal"))
    elif operator.text != "Exists" and not key.text:
        yield violation(toleration, "without a key, the operator must be Exists")
    if effect.text and effect.text not in _EFFECTS:
        same = [known for known in _EFFECTS if known.casefold() == effect.text.casefold()]
        yield violation(effect, f"is none of {', '.join(_EFFECTS)}", *(SetValue(effect.path, known) for known in same))
    elif seconds.exists and effect.text != "NoExecute":
        yield violation(seconds, "tolerationSeconds goes with the effect NoExecute alone", RemoveValue(seconds.path))


@rule(
    "HE923",
    "bad-variable",
    Severity.ERROR,
    why="The API server refuses a pod with a variable that has both a value and a source, or a source that is none. "
    "The operator only records an event: the job stays without pods.",
    fix="Keep either `value` or one source in `valueFrom`.",
    part=ManifestPart.WORKER,
    bad="env: [{name: TOKEN, value: x, valueFrom: {secretKeyRef: {name: hub, key: token}}}]",
    good="env: [{name: NVIDIA_VISIBLE_DEVICES, valueFrom: {configMapKeyRef: {name: hub, key: devices}}}]",
)
def bad_variable(job: LintedJob) -> Iterator[Violation]:
    """Finds variables without a name, or with other than one source of their value."""
    for container in job.all_containers:
        for variable in container.view.get("env").items():
            name, source = variable.get("name"), variable.get("valueFrom")
            named = [key for key in _SOURCES if source.get(key).exists]
            if isinstance(variable.value, dict) and name.value in (None, ""):
                yield violation(name, "the variable has no name")
            elif source.exists and variable.get("value").value not in (None, ""):
                yield violation(source, "stands beside a value")
            elif isinstance(source.value, dict) and len(named) != 1:
                yield violation(
                    source, "names more than one source" if named else f"names none of {', '.join(_SOURCES)}"
                )


@rule(
    "HE924",
    "tiny-memory",
    Severity.ERROR,
    why="A plain number of memory is in bytes, and `m` is a thousandth of a byte: `memory: 64` is 64 bytes. The API "
    "server takes it. As a limit it keeps the container from starting; as a request it says nothing, and the pod is "
    "placed where there is no room.",
    fix="Write the unit: 64Gi.",
    part=ManifestPart.WORKER,
    bad="resources: {limits: {cpu: 8, memory: 64}}",
    good="resources: {limits: {cpu: 8, memory: 64Gi}}",
)
def tiny_memory(job: LintedJob) -> Iterator[Violation]:
    """Finds requests and limits of less than 1Mi of memory."""
    for container in job.all_containers:
        for part in ("limits", "requests"):
            memory = container.view.get("resources", part, "memory")
            if memory.amount is not None and 0 < memory.amount < _LEAST_MEMORY:
                yield violation(memory, f"is {memory.amount.normalize():f} bytes")


@rule(
    "HE925",
    "annotation-on-the-job",
    Severity.WARNING,
    # mpi-operator 0.8.2, newWorker and newLauncherPodTemplate; training-operator 1.8.1, newWorker and newLauncher.
    why="The operator gives its pods the annotations of their templates, and none of the MPIJob's. What a network "
    "plugin, a mesh or an autoscaler reads from pods has no effect on the job.",
    fix="Move it to `template.metadata.annotations` of the pods that are meant.",
    part=ManifestPart.JOB,
    bad="metadata: {annotations: {k8s.v1.cni.cncf.io/networks: rdma-rail-0}}",
    good="metadata: {annotations: {example.com/owner: vision}}",
)
def annotation_on_the_job(job: LintedJob) -> Iterator[Violation]:
    """Finds annotations of pods on the MPIJob."""
    for key, value in job.view.get("metadata", "annotations").pairs():
        if len(key) < 300 and _OF_PODS.fullmatch(key):
            yield violation(value, "does not reach the pods")


@rule(
    "HE926",
    "nodes-dns",
    Severity.WARNING,
    # mpi-operator 0.8.2 sets the policy, in newWorker and newLauncherPodTemplate; training-operator 1.8.1 does not.
    why="A pod on the host network has its node's DNS unless `dnsPolicy` says otherwise, and finds no Service by name. "
    "The operator of v2beta1 sets the policy, that of v1 does not.",
    fix="Set `dnsPolicy: ClusterFirstWithHostNet`.",
    part=ManifestPart.JOB,
    bad="""
apiVersion: kubeflow.org/v1
spec: {mpiReplicaSpecs: {Worker: {template: {spec: {hostNetwork: true}}}}}
""",
    good="""
apiVersion: kubeflow.org/v1
spec: {mpiReplicaSpecs: {Worker: {template: {spec: {hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet}}}}}
""",
)
def nodes_dns(job: LintedJob) -> Iterator[Violation]:
    """Finds pods of v1 on the host network with their node's DNS."""
    for replica in (job.launcher, job.worker):
        spec = replica.pod.spec
        policy, on_nodes = spec.get("dnsPolicy"), spec.get("hostNetwork").value is True
        if job.version is MPIJobVersion.V1 and on_nodes and policy.value in (None, "", "ClusterFirst"):
            yield violation(policy, "Services have no names here", SetValue(policy.path, "ClusterFirstWithHostNet"))


@rule(
    "HE927",
    "quota-wants-amounts",
    Severity.WARNING,
    # Kubernetes 1.34.4, pkg/quota/v1/evaluator/core/pods.go: Constraints.
    why="In a namespace whose quota counts CPU or memory, the API server refuses every pod with a container that does "
    "not state them, and the operator only records an event. A LimitRange can fill them in; these files have none.",
    fix="State in each container what the quota counts: requests, limits or both.",
    part=ManifestPart.RELATED_OBJECT,
    bad="""
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {requests.cpu: 100, requests.memory: 1Ti}}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: fashion}
spec: {mpiReplicaSpecs: {Worker: {template: {spec: {containers: [{name: worker, resources: null}]}}}}}
""",
    good="""
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {requests.cpu: 100, requests.memory: 1Ti, requests.nvidia.com/gpu: 8}}
""",
)
def quota_wants_amounts(job: LintedJob) -> Iterator[Violation]:
    """Finds containers that do not state what a ResourceQuota of their namespace makes them state."""
    related = job.related_objects
    quotas = related.of_kind("ResourceQuota", namespace=job.namespace)
    hard = [quota.get("spec", "hard") for quota in quotas if not _is_scoped(quota)]
    counted = {name.removeprefix("requests.") for amounts in hard for name, _ in amounts.pairs()} & _COUNTED
    if not counted or next(related.of_kind("LimitRange", namespace=job.namespace), None) is not None:
        return
    for replica in (job.launcher, job.worker):
        if replica.pod.spec.get("resources").exists:  # counted for the pod as a whole
            continue
        for container in replica.pod.all_containers:
            missing = [name for name in sorted(counted) if not _states(container, name)]
            if container.view.exists and missing:
                yield violation(container.view.get("resources"), f"states no {' and no '.join(missing)}")


def _is_scoped(quota: ManifestView) -> bool:
    return quota.get("spec", "scopes").exists or quota.get("spec", "scopeSelector").exists


def _states(container: Container, name: str) -> bool:
    part, dot, resource = name.rpartition(".")
    return (container.view.get("resources", part, resource) if dot else container.resource(resource)).exists
