"""HE7xx: volumes, and whether the state of a job survives its pods."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final
from urllib.parse import unquote

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.linted_job import Container, LintedJob, PodTemplate
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation

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


def _claims(job: LintedJob, pod: PodTemplate) -> Iterator[tuple[ManifestView, ManifestView]]:
    """The pod's claims: each reference, and the claim itself (an empty view if the stream does not have it)."""
    for volume in pod.spec.get("volumes").items():
        name = volume.get("persistentVolumeClaim", "claimName")
        if name.exists:
            yield name, job.related_objects.named("PersistentVolumeClaim", name.text, job.namespace)


def _driver(job: LintedJob, claim: ManifestView) -> str | None:
    """The CSI driver of a claim; None if the stream has neither its StorageClass nor its volume."""
    storage_class = job.related_objects.named("StorageClass", claim.get("spec", "storageClassName").text)
    volume = job.related_objects.named("PersistentVolume", claim.get("spec", "volumeName").text)
    return storage_class.get("provisioner").text or volume.get("spec", "csi", "driver").text


@rule(
    "HE701",
    "one-node-claim",
    Severity.ERROR,
    why="A ReadWriteOnce volume is attached to one node (ReadWriteOncePod: to one pod). Workers that are scheduled "
    "elsewhere stay in ContainerCreating, and so does every replacement after a preemption.",
    fix="Use ReadWriteMany (EFS, FSx for Lustre, NFS), or ReadOnlyMany for data.",
    part=ManifestPart.RELATED_OBJECT,
    bad=_CLAIM.format(mode="ReadWriteOnce", size="100Gi", storage_class="gp3"),
    good=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="efs"),
)
def one_node_claim(job: LintedJob) -> Iterator[Violation]:
    """Finds workers on several nodes that share a claim that only one node can use."""
    if (job.worker.replicas or 0) < 2:
        return
    for name, claim in _claims(job, job.worker.pod):
        modes = {item.text for item in claim.get("spec", "accessModes").items()}
        if modes and not modes & _SHARED:
            shown = ", ".join(sorted(str(mode) for mode in modes))
            yield violation(name, f"{job.worker.replicas} workers share a {shown} claim")


@rule(
    "HE702",
    "no-durable-state",
    Severity.WARNING,
    why="`state.commit()` copies to the worker's own memory. All progress is lost if a burst of inference takes every "
    "worker, if the launcher dies, or if the job is suspended (Kueue does that too, and deletes every worker).",
    fix="Write checkpoints to an object store or a shared volume, with `checkpoint:` in a job description or in the "
    "training script.",
    part=ManifestPart.JOB,
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
def no_durable_state(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs that keep no state outside their pods."""
    if job.elastic and not _durable(job):
        message = "nothing in this manifest outlives the worker pods"
        yield violation(job.worker.pod.spec.get("volumes"), message, choice=True)


def _durable(job: LintedJob) -> bool:
    """Whether anything hints at durable storage: a lasting volume, or the URL of a store in a command or variable."""
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
    why="A `file://` checkpoint below an emptyDir, or on the container's own file system, disappears with the pod: it "
    "is missing exactly when it is needed, and no other worker can read it.",
    fix="Mount a shared claim at that folder, or use an object store.",
    part=ManifestPart.WORKER,
    bad="env: [{name: HVD_ELASTIC_CHECKPOINT, value: file:///tmp/checkpoints}]",
    good="env: [{name: HVD_ELASTIC_CHECKPOINT, value: s3://bucket/fashion}]",
)
def checkpoint_in_the_pod(job: LintedJob) -> Iterator[Violation]:
    """Finds a checkpoint folder that belongs to the pod."""
    main = job.worker.pod.main
    url = main.variable(ENV_CHECKPOINT).get("value")
    if not (url.text or "").startswith("file://"):
        return
    volume = job.worker.pod.volume_at(unquote((url.text or "").removeprefix("file://")))
    if not volume.exists or volume.get("emptyDir").exists:
        yield violation(url, "this folder disappears with the pod")


@rule(
    "HE704",
    "shared-checkpoint-prefix",
    Severity.ERROR,
    why="If two jobs share a checkpoint prefix, each resumes from the other's newest checkpoint and removes the "
    "other's old ones.",
    fix="Give each job its own prefix, such as its namespace and name.",
    part=ManifestPart.RELATED_OBJECT,
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
def shared_checkpoint_prefix(job: LintedJob) -> Iterator[Violation]:
    """Finds two jobs that write checkpoints to the same place."""
    own = _checkpoint(job.worker.pod.main)
    for other in job.other_jobs if own.text else ():
        used = _checkpoint(other.worker.pod.main)
        if own.text and used.text and own.text.rstrip("/") == used.text.rstrip("/"):
            yield violation(own, f"job {other.name!r} writes to the same place")


def _checkpoint(container: Container) -> ManifestView:
    return container.variable(ENV_CHECKPOINT).get("value")


@rule(
    "HE705",
    "bad-fsx-claim",
    Severity.ERROR,
    why="The smallest file system of FSx for Lustre has 1200Gi, and each is in one availability zone. Pods in another "
    "zone pay for every byte or cannot mount it, and a replacement can be placed in any zone.",
    fix="Request 1200Gi or more and ReadWriteMany, and put all pods of the job into the file system's zone.",
    part=ManifestPart.RELATED_OBJECT,
    bad=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="fsx")
    + "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fsx}\nprovisioner: fsx.csi.aws.com\n",
    good=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="efs")
    + "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: efs}\nprovisioner: efs.csi.aws.com\n",
)
def bad_fsx_claim(job: LintedJob) -> Iterator[Violation]:
    """Checks claims on FSx for Lustre: size and zone."""
    for name, claim in _claims(job, job.worker.pod):
        if _driver(job, claim) != _FSX:
            continue
        size = claim.get("spec", "resources", "requests", "storage")
        if size.amount is not None and size.amount < _FSX_SMALLEST:
            yield violation(name, f"requests {size.value}; FSx for Lustre has at least 1200Gi")
        if not _in_one_zone(job.worker.pod):
            yield violation(name, "FSx for Lustre is in one zone, and the workers may be in any zone")


def _in_one_zone(pod: PodTemplate) -> bool:
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
    why="The EFS driver creates access points only with `provisioningMode: efs-ap`. `directoryPerms` must be a "
    "string: YAML reads a bare 700 as a number, which the API server rejects.",
    fix='Set `provisioningMode: efs-ap` and `directoryPerms: "700"`.',
    part=ManifestPart.RELATED_OBJECT,
    bad=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="efs")
    + "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: efs}\nprovisioner: efs.csi.aws.com\n"
    + "parameters: {provisioningMode: efs-ap, fileSystemId: fs-1, directoryPerms: 700}\n",
    good=_CLAIM.format(mode="ReadWriteMany", size="100Gi", storage_class="efs")
    + "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: efs}\nprovisioner: efs.csi.aws.com\n"
    + 'parameters: {provisioningMode: efs-ap, fileSystemId: fs-1, directoryPerms: "700"}\n',
)
def bad_efs_class(job: LintedJob) -> Iterator[Violation]:
    """Checks the StorageClass of an EFS claim."""
    for name, claim in _claims(job, job.worker.pod):
        found = job.related_objects.named("StorageClass", claim.get("spec", "storageClassName").text)
        parameters = found.get("parameters")
        if found.get("provisioner").value != _EFS or not parameters.exists:
            continue
        if parameters.get("provisioningMode").value != "efs-ap":
            yield violation(name, "its StorageClass lacks provisioningMode: efs-ap")
        if parameters.get("directoryPerms").number is not None:
            yield violation(name, "its StorageClass has directoryPerms as a number")
