"""HE7xx: volumes, and where the state of a job survives."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT
from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.linted_job import Container, LintedJob, Pod
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

_SHARED: Final = frozenset(("ReadWriteMany", "ReadOnlyMany"))
_FSX: Final = "fsx.csi.aws.com"
_EFS: Final = "efs.csi.aws.com"
_FSX_SMALLEST: Final = Decimal(1200 * 1024**3)
_ZONE: Final = "topology.kubernetes.io/zone"
_DURABLE_URLS: Final = ("s3://", "gs://", "abfs://", "abfss://", "wasbs://", "hdfs://", "file://")

_CLAIM: Final = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: results}}
spec: {{accessModes: [{mode}], resources: {{requests: {{storage: {size}}}}}, storageClassName: {storage_class}}}
"""


def _claims(job: LintedJob, pod: Pod) -> Iterator[tuple[View, View]]:
    """The pod's claims: the reference, and the claim where the stream holds it."""
    for volume in pod.spec.get("volumes").items():
        name = volume.get("persistentVolumeClaim", "claimName")
        if name.exists:
            yield name, job.companions.named("PersistentVolumeClaim", name.text, job.namespace)


def _driver(job: LintedJob, claim: View) -> str | None:
    """The CSI driver behind a claim, where the stream holds its class or its volume."""
    storage_class = job.companions.named("StorageClass", claim.get("spec", "storageClassName").text)
    volume = job.companions.named("PersistentVolume", claim.get("spec", "volumeName").text)
    return storage_class.get("provisioner").text or volume.get("spec", "csi", "driver").text


@rule(
    "HE701",
    "one-node-claim",
    Severity.ERROR,
    why="ReadWriteOnce is attached to one node (ReadWriteOncePod to one pod): workers that are scheduled elsewhere "
    "stay in ContainerCreating, and so does every replacement after a preemption.",
    fix="Use ReadWriteMany (EFS, FSx for Lustre, NFS), or ReadOnlyMany for data.",
    at=At.STREAM,
    bad=_CLAIM.format(mode="ReadWriteOnce", size="100Gi", storage_class="gp3"),
    good=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="efs"),
)
def one_node_claim(job: LintedJob) -> Iterator[Hit]:
    """Finds workers on several nodes that share a claim for one node."""
    if (job.worker.replicas or 0) < 2:
        return
    for name, claim in _claims(job, job.worker.pod):
        modes = {item.text for item in claim.get("spec", "accessModes").items()}
        if modes and not modes & _SHARED:
            shown = ", ".join(sorted(str(mode) for mode in modes))
            yield hit(name, f"{job.worker.replicas} workers share a claim that is {shown}")


@rule(
    "HE702",
    "no-durable-state",
    Severity.WARNING,
    why="`state.commit()` copies to the worker's own memory. When a burst takes every worker, when the launcher dies "
    "or the job is suspended (Kueue does that too, and deletes every worker), all progress is lost.",
    fix="Write checkpoints to an object store or a shared volume: `checkpoint:` in a job description, or in the "
    "script.",
    at=At.JOB,
    bad="""
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {volumes: []}}}
    Worker: {template: {spec: {volumes: []}}}
""",
    good="""
spec:
  mpiReplicaSpecs:
    Worker: {template: {spec: {volumes: [{name: results, persistentVolumeClaim: {claimName: results}}]}}}
""",
)
def no_durable_state(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic jobs in which nothing outlives the pods."""
    if job.elastic and not job.described and not _durable(job):
        yield hit(job.worker.pod.spec.get("volumes"), "nothing in this manifest outlives the worker pods")


def _durable(job: LintedJob) -> bool:
    """A hint of durable storage anywhere: a volume that is no scratch, or a store's URL in a command or variable."""
    scratch = {"emptyDir", "configMap", "secret", "downwardAPI", "projected", "name"}
    for replica in (job.launcher, job.worker):
        if any(set(dict(volume.pairs())) - scratch for volume in replica.pod.spec.get("volumes").items()):
            return True
        main = replica.pod.main
        texts = (*(word.text for word in main.words), *main.environment.values())
        if any(url in text for text in texts for url in _DURABLE_URLS):
            return True
    return False


@rule(
    "HE703",
    "checkpoint-in-the-pod",
    Severity.ERROR,
    why="A `file://` checkpoint below an emptyDir, or on the container's own file system, goes with the pod: exactly "
    "when it is needed it is not there, and no other worker can read it.",
    fix="Mount a shared claim there, or use an object store.",
    at=At.WORKER,
    bad="env: [{name: HVD_ELASTIC_CHECKPOINT, value: file:///tmp/checkpoints}]",
    good="env: [{name: HVD_ELASTIC_CHECKPOINT, value: s3://bucket/fashion}]",
)
def checkpoint_in_the_pod(job: LintedJob) -> Iterator[Hit]:
    """Finds a checkpoint folder that is the pod's own."""
    main = job.worker.pod.main
    url = main.variable(ENV_CHECKPOINT).get("value")
    if not (url.text or "").startswith("file://"):
        return
    volume = job.worker.pod.volume_at((url.text or "").removeprefix("file://"))
    if not volume.exists or volume.get("emptyDir").exists:
        yield hit(url, "this folder ends with the pod")


@rule(
    "HE704",
    "shared-checkpoint-prefix",
    Severity.ERROR,
    why="Each resumes from the other's newest checkpoint and removes the other's old ones.",
    fix="Give each job a prefix of its own, such as its namespace and name.",
    at=At.STREAM,
    bad="""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: fashion}
spec:
  mpiReplicaSpecs:
    Worker: {template: {spec: {containers: [{name: worker, env: [{name: HVD_ELASTIC_CHECKPOINT, value: s3://team/fashion}]}]}}}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: other}
spec:
  mpiReplicaSpecs:
    Worker: {template: {spec: {containers: [{name: worker, env: [{name: HVD_ELASTIC_CHECKPOINT,
      value: s3://team/fashion}]}]}}}
""",
    good="""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: fashion}
spec:
  mpiReplicaSpecs:
    Worker: {template: {spec: {containers: [{name: worker, env: [{name: HVD_ELASTIC_CHECKPOINT, value: s3://team/fashion}]}]}}}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: other}
spec:
  mpiReplicaSpecs:
    Worker: {template: {spec: {containers: [{name: worker, env: [{name: HVD_ELASTIC_CHECKPOINT,
      value: s3://team/other}]}]}}}
""",
)
def shared_checkpoint_prefix(job: LintedJob) -> Iterator[Hit]:
    """Finds two jobs of the stream that write checkpoints to one place."""
    mine = _checkpoint(job.worker.pod.main)
    for other in job.others if mine.text else ():
        theirs = _checkpoint(other.worker.pod.main)
        if mine.text and theirs.text and mine.text.rstrip("/") == theirs.text.rstrip("/"):
            yield hit(mine, f"job {other.name!r} writes to the same place")


def _checkpoint(container: Container) -> View:
    return container.variable(ENV_CHECKPOINT).get("value")


@rule(
    "HE705",
    "bad-fsx-claim",
    Severity.ERROR,
    why="A file system has at least 1200Gi, and stands in one availability zone: pods in another zone pay for every "
    "byte or cannot mount it, and a replacement may land anywhere.",
    fix="Ask for 1200Gi or more, ReadWriteMany, and put all pods of the job into the file system's zone.",
    at=At.STREAM,
    bad=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="fsx")
    + "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fsx}\nprovisioner: fsx.csi.aws.com\n",
    good=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="efs")
    + "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: efs}\nprovisioner: efs.csi.aws.com\n",
)
def bad_fsx_claim(job: LintedJob) -> Iterator[Hit]:
    """Checks claims on FSx for Lustre: size, access mode and zone."""
    for name, claim in _claims(job, job.worker.pod):
        if _driver(job, claim) != _FSX:
            continue
        size = claim.get("spec", "resources", "requests", "storage")
        if size.amount is not None and size.amount < _FSX_SMALLEST:
            yield hit(name, f"asks for {size.value}; FSx for Lustre has at least 1200Gi")
        if not _in_one_zone(job.worker.pod):
            yield hit(name, "FSx for Lustre stands in one zone, and the workers may be in any")


def _in_one_zone(pod: Pod) -> bool:
    spec = pod.spec
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    selected = spec.get("nodeSelector", _ZONE).exists
    together = any(t.get("topologyKey").value == _ZONE for t in spec.get("affinity", "podAffinity", required).items())
    terms = spec.get("affinity", "nodeAffinity", required, "nodeSelectorTerms")
    named = any(e.get("key").value == _ZONE for term in terms.items() for e in term.get("matchExpressions").items())
    return selected or together or named


@rule(
    "HE706",
    "bad-efs-class",
    Severity.ERROR,
    why="The driver makes access points only with `provisioningMode: efs-ap`, and `directoryPerms` must be a string: "
    "YAML reads a bare 700 as a number, which the API server refuses.",
    fix='Set `provisioningMode: efs-ap` and `directoryPerms: "700"`.',
    at=At.STREAM,
    bad=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="efs")
    + "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: efs}\nprovisioner: efs.csi.aws.com\n"
    + "parameters: {provisioningMode: efs-ap, fileSystemId: fs-1, directoryPerms: 700}\n",
    good=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="efs")
    + "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: efs}\nprovisioner: efs.csi.aws.com\n"
    + 'parameters: {provisioningMode: efs-ap, fileSystemId: fs-1, directoryPerms: "700"}\n',
)
def bad_efs_class(job: LintedJob) -> Iterator[Hit]:
    """Checks the StorageClass of an EFS claim."""
    for name, claim in _claims(job, job.worker.pod):
        found = job.companions.named("StorageClass", claim.get("spec", "storageClassName").text)
        parameters = found.get("parameters")
        if found.get("provisioner").value != _EFS or not parameters.exists:
            continue
        if parameters.get("provisioningMode").value != "efs-ap":
            yield hit(name, "its StorageClass lacks provisioningMode: efs-ap")
        if parameters.get("directoryPerms").number is not None:
            yield hit(name, "its StorageClass has directoryPerms as a number")
