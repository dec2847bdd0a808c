"""A job as a researcher describes it: the only input of all generators.

The docstring under a field is its documentation in the schema, in `--help` and in docs/keys.md. Every key but `name`
and `command` has a default that suits preemptible training.
"""

import json
import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from annotated_types import Interval
from pydantic import Field, model_validator

from hvd_elastic.mpijob.clouds.accelerators import Accelerator, find_accelerator
from hvd_elastic.mpijob.clouds.cloud import Capacity, Cloud
from hvd_elastic.mpijob.clouds.gpu_types import GpuType
from hvd_elastic.mpijob.contract import GPU_RESOURCE, Engine, Standby
from hvd_elastic.mpijob.description.network_spec import NetworkSpec, WorkerPorts, node_ports
from hvd_elastic.mpijob.description.patch_spec import PatchSpec
from hvd_elastic.mpijob.description.scalar_types import (
    AutoDuration,
    ContainerPath,
    Cpu,
    DnsLabel,
    Duration,
    Environment,
    ExtendedResource,
    Image,
    JobName,
    LabelKey,
    LabelValue,
    Memory,
    ObjectName,
    PodTemplate,
    Quantity,
    ResourceName,
    Text,
)
from hvd_elastic.mpijob.description.section import Section
from hvd_elastic.mpijob.description.stage_spec import StageSpec
from hvd_elastic.mpijob.description.volume_spec import Data, Output
from hvd_elastic.system import quantity
from hvd_elastic.system.untrusted_values import decimal_count

_UNSAFE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON allows unescaped, but that YAML does not allow or folds."""

# Not Field(): with pydantic 2.10 one here and a default_factory in a section exclude each other.
Count = Annotated[int, Interval(ge=1, le=100_000)]
Samples = Annotated[int, Field(ge=1)]
Percent = Annotated[int, Field(ge=1, le=100)]


class LauncherKind(StrEnum):
    """The program that drives the job."""

    HOROVODRUN = "horovodrun"
    LAUNCH = "launch"


class QueueSystem(StrEnum):
    """The queueing system that admits the job."""

    KUEUE = "kueue"
    VOLCANO = "volcano"
    KAI = "kai"


class WorkersSpec(Section):
    """How many workers there are, and what each of them gets."""

    short_form: ClassVar[str | None] = "`4`, `min:max` or `min:start:max`"

    sizes: list[Count] = Field(default_factory=list)
    """The only numbers of workers that training may have, as `[1, 2, 4, 8]`, for batches that divide or a topology. Any
    from `min` to `max` by default."""
    min: Count = 1
    """Fewest workers: with fewer, training waits. 1, because a single idle GPU is worth using; with `sizes` the
    smallest."""
    start: Count = Field(default_factory=lambda data: data.get("min", 1))
    """Workers that the first step waits for (`-np`). Defaults to `min`: training begins as soon as it can."""
    max: Count = Field(default_factory=lambda data: max(data.get("sizes") or [data.get("start", 1)]))
    """Most workers. The job has this many pods, and the scheduler runs those that idle capacity has room for. Defaults
    to `start`; with `sizes` to the largest."""
    floor: Annotated[int, Interval(ge=0, le=100_000)] = 0
    """The first so many workers, and the launcher, are not preempted by inference. 0 by default: inference may take all
    of them. It takes Kubernetes 1.36 and the platform kit's [floor](platform-kit.md#a-floor-that-holds)."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """GPUs of each worker. None by default."""
    gpu_resource: ExtendedResource = GPU_RESOURCE
    """What the cluster calls these GPUs: `amd.com/gpu`, `habana.ai/gaudi`, `nvidia.com/mig-1g.10gb`, or a name of its
    own. Of a MIG instance, and of a GPU that is shared in turns, a worker has one."""
    slots: Count = Field(default_factory=lambda data: data.get("gpus") or 1)
    """Training processes of each worker. Defaults to one per GPU."""
    loaders: Annotated[int, Field(ge=0, le=1024)] = 0
    """Data loader processes of each training process. Each of them needs a CPU."""
    cpu: Cpu = Field(default_factory=lambda data: str(data.get("slots", 1) * max(1, data.get("loaders", 0))))
    """CPUs of each worker, as request and limit. Defaults to one per loader process, and at least one per training
    process."""
    memory: Memory = "4Gi"
    """Memory of each worker, as request and limit. It includes /dev/shm."""
    shm: Memory = Field(default_factory=lambda data: quantity.mebibytes(quantity.parse(data.get("memory", "4Gi")) / 4))
    """Size of /dev/shm, through which loader processes pass batches on. It is part of `memory`. Defaults to a quarter
    of it."""
    disk: Memory | None = None
    """Ephemeral storage of each worker, as request and limit. None is requested by default."""
    resources: dict[ResourceName, Quantity] = Field(default_factory=dict)
    """What else each worker gets, as request and limit: `rdma/hca_shared_devices_a: 1`, `hugepages-2Mi: 4Gi`."""
    efa: Annotated[int, Field(ge=0, le=64)] = 0
    """Elastic Fabric Adapters of each worker (EKS only), at most what the instance type has. The image must have AWS's
    libraries."""
    grace: Duration | None = None
    """Seconds between SIGTERM and SIGKILL. Defaults to 30, but to 25 on AKS spot and 15 on GKE spot, whose machines
    wait no longer. A worker ends as soon as its process has ended, so a longer grace period costs nothing."""
    service_account: ObjectName | None = None
    """An existing ServiceAccount with the cloud identity that access to storage needs. None by default."""
    pod: PodTemplate = Field(default_factory=dict)
    """A partial pod template (`metadata`, `spec`) that is merged into the workers' own. Tolerations and requirements of
    placement are added, and null removes a field."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`4` is a fixed size, `1:4` is min and max, `1:2:8` is min, start and max."""
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "start": value, "max": value}
        if not isinstance(value, str):
            return value
        parts = value.split(":")
        keys = {1: ("min", "start", "max"), 2: ("min", "max"), 3: ("min", "start", "max")}.get(len(parts))
        if keys is None:
            return value
        return dict(zip(keys, parts * 3 if len(parts) == 1 else parts, strict=False))

    @model_validator(mode="before")
    @classmethod
    def _with_min(cls, value: Any) -> Any:
        """`min` from `sizes`. A factory, as of `max`, would have every job's annotation name it."""
        sizes = value.get("sizes") if isinstance(value, dict) and "min" not in value else None
        known = [size for one in sizes if (size := decimal_count(str(one)))] if isinstance(sizes, list) else []
        return {**value, "min": min(known)} if known else value

    @property
    def allowed_sizes(self) -> tuple[int, ...]:
        """Those of `sizes` from `min` to `max`, in order; empty: any number is allowed."""
        return tuple(sorted({size for size in self.sizes if self.min <= size <= self.max}))

    def allows(self, workers: int) -> bool:
        """Whether the job may be asked to have so many workers."""
        return workers in (self.allowed_sizes or range(self.min, self.max + 1))

    @property
    def on_host_network(self) -> bool:
        """Whether a worker has its node's network, address and ports."""
        spec = self.pod.get("spec")
        return isinstance(spec, dict) and spec.get("hostNetwork") is True

    @property
    def size_words(self) -> str:
        """`1 to 8`, or `1, 2, 4 or 8`."""
        *most, last = map(str, self.allowed_sizes or (self.max,))
        return f"{', '.join(most)} or {last}" if most else last if self.sizes else f"{self.min} to {last}"

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change. A fixed job (min = max) survives the loss of a worker too."""
        return self.min < self.max


class LauncherSpec(Section):
    """The pod that drives the job. It holds no GPU."""

    short_form: ClassVar[str | None] = "`horovodrun` or `launch`"

    kind: LauncherKind = LauncherKind.HOROVODRUN
    """`horovodrun` is Horovod's own, started again in place after all its workers were taken. `launch` is `hvd-elastic
    launch`: it takes the same flags, reacts faster and survives more failures."""
    cpu: Cpu = "500m"
    """CPUs of the launcher, as request only: starting many workers may use more."""
    memory: Memory = "1Gi"
    """Memory of the launcher, as request and limit."""
    pod: PodTemplate = Field(default_factory=dict)
    """A partial pod template, as `workers.pod`, that is merged into the launcher's own."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`launcher: launch` sets the kind."""
        return {"kind": value} if isinstance(value, str) else value


class BatchSpec(Section):
    """What happens to the batch and the learning rate when the number of workers changes."""

    short_form: ClassVar[str | None] = "`1024`: samples per step over all workers"

    global_: Samples | None = Field(default=None, alias="global")
    """Samples per step over all workers. It stays constant, so training is the same with any number of workers."""
    per_worker: Samples | None = None
    """Samples per step of each process. With more workers, a step has more samples."""
    learning_rate: Literal["constant", "linear", "sqrt"] | None = None
    """With `per_worker`: how the learning rate follows the number of processes. Defaults to `linear`."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`batch: 1024` is the global batch."""
        return {"global": value} if isinstance(value, int | str) and not isinstance(value, bool) else value


class WarmStartSpec(Section):
    """Weights with which a job begins that has no checkpoint of its own. Later starts go on from its checkpoints."""

    short_form: ClassVar[str | None] = "`s3://bucket/model.safetensors`"

    url: Text
    """A file of safetensors or `torch.save`, a folder of torch.distributed.checkpoint, or the checkpoints of another
    job, with its `/NAMESPACE/NAME`. Forms as those of `checkpoint.url`."""
    strict: bool = True
    """Whether weights that do not fit the model end the job. If not, they are listed in the log, and the others are
    loaded."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`warm_start: URL` keeps all defaults."""
        return {"url": value} if isinstance(value, str) else value


class CheckpointSpec(Section):
    """Where commits become durable. Without it they exist only in the workers' memory."""

    short_form: ClassVar[str | None] = "`s3://bucket/prefix` or another URL"

    url: Text
    """`s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///folder` ([all
    forms](checkpoints.md#where)). Namespace and name are added, so two jobs never share a prefix."""
    every: AutoDuration = "auto"
    """Seconds between two durable checkpoints. If all workers go at once, at most this much training is lost. `auto`:
    from ten seconds to half an hour, by what a checkpoint costs and how often all workers were lost."""
    steps: Samples | None = None
    """Commits between two durable checkpoints, if that is sooner than `every`."""
    keep: Count = 3
    """Durable checkpoints that are kept. While one is being stored there is one more; a full store keeps fewer."""
    warm_start: WarmStartSpec | None = None
    """Weights with which the job begins while it has no checkpoint of its own."""
    endpoint: Text | None = None
    """URL of the store's service, if it is not the cloud's own. For `az://` it is that of the account."""
    account: Annotated[Text, Field(pattern=r"^[a-z0-9]{3,24}$")] | None = None
    """Storage account of `az://`. The other forms of Azure's URLs name it."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`checkpoint: URL` sets the URL and keeps all defaults."""
        return {"url": value} if isinstance(value, str) else value


class PrioritySpec(Section):
    """PriorityClasses of the job's pods. They must exist: `hvd-elastic priorityclasses` prints them."""

    launcher: ObjectName = "preserved-pc"
    """Class of the launcher. It is above the workers' class, so that workers are preempted before the launcher."""
    workers: ObjectName = "preemptible-pc"
    """Class of the workers. It is below inference, so that inference takes GPUs from workers."""
    floor: ObjectName = "floor-pc"
    """Class of what `workers.floor` keeps: of the launcher, and by the platform kit's policy of these workers. It has
    the value of inference's, and preempts nobody."""


class QueueSpec(Section):
    """The queue that admits the job. If it schedules gangs, the first `workers.min` workers start together."""

    system: QueueSystem
    """`kueue`, `volcano` or `kai`."""
    name: LabelValue
    """Name of the queue: a LocalQueue of Kueue, or a Queue of Volcano or KAI."""
    whole: bool = False
    """Kueue: admit the job with all its workers at once, and evict it so. By default each worker is admitted, and given
    back, by itself, which takes Kueue 0.18 or later."""

    @property
    def takes_whole(self) -> bool:
        """Whether Kueue admits, suspends and resumes the job as one."""
        return self.system is QueueSystem.KUEUE and self.whole


class AutoscaleSpec(Section):
    """How an autoscaler sets the number of workers: of an MPIJob `hvd-elastic autoscale`, of a PyTorchJob Kubernetes'.

    An MPIJob's number follows from what GPUs are worth to it and to the jobs beside it, a PyTorchJob's from CPU use.
    """

    short_form: ClassVar[str | None] = "`shared`: share idle GPUs with the other jobs, with all defaults"

    cpu_percent: Percent | None = None
    """PyTorchJob: CPU use that its HorizontalPodAutoscaler aims at, in percent of the workers' requests. Defaults to
    80."""
    cooldown: Duration | None = None
    """Seconds for which the autoscaler leaves a number of workers alone that it has set. Giving GPUs back to inference
    never waits. Defaults to 30; to 300 for a PyTorchJob, which restarts at each change."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """MPIJob: what this job's gain counts beside that of others. With 2, one GPU is worth two of a job of weight 1."""
    quota: Count | None = None
    """MPIJob: GPUs that the job may have at most, whatever is idle. Defaults to what `workers.max` needs."""
    buy: bool = False
    """MPIJob: ask for workers that no node has room for, so that the cluster autoscaler adds nodes. By default the job
    uses only what is there."""
    budget: Count | None = None
    """MPIJob, with `buy`: GPU-hours that the job may have held when it buys for the last time. No limit by default."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`autoscale: shared` takes all defaults."""
        return {} if value == "shared" else value


class Toleration(Section):
    """A taint that workers tolerate, in addition to those of the cloud's spot nodes and GPU nodes."""

    short_form: ClassVar[str | None] = "`key[=value][:effect]`"

    key: LabelKey | None = None
    """The taint's key. Without one, and with `operator: Exists`, every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """As Kubernetes writes it. Defaults to `Equal` with a value, and to `Exists` without one."""
    value: LabelValue | None = None
    """The taint's value. Any value by default."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect. Any effect by default."""
    seconds: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="tolerationSeconds")
    """Seconds that a worker stays on a node that gets the taint, with `NoExecute` alone. For ever by default."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        """As the API server judges it (Kubernetes 1.34, `pkg/apis/core/validation`, `ValidateTolerations`)."""
        if self.key is None and self.operator != "Exists":
            raise ValueError("names no taint: add its key, or operator: Exists for every taint")
        if self.value is not None and self.operator == "Exists":
            raise ValueError("has a value, which operator: Exists excludes: leave out one of them")
        if self.seconds is not None and self.effect != "NoExecute":
            raise ValueError("has tolerationSeconds, which go with effect: NoExecute alone")
        return self

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`dedicated=training:NoSchedule`, as kubectl writes taints."""
        if not isinstance(value, str):
            return value
        text, _, effect = value.partition(":")
        key, _, wanted = text.partition("=")
        parts = {"key": key, "value": wanted, "effect": effect}
        return {name: part for name, part in parts.items() if part}


class MachineSpec(Section):
    """What the workers' nodes have, where hvd-elastic's own table of machine types lacks them or is wrong."""

    gpus: Annotated[int, Field(ge=0, le=64)] | None = None
    """GPUs of a node."""
    cpu: Cpu | None = None
    """CPUs that pods get of a node: its `allocatable`, not its capacity."""
    memory: Memory | None = None
    """Memory that pods get of a node: its `allocatable`, not its capacity."""
    efa: Annotated[int, Field(ge=0, le=64)] | None = None
    """Elastic Fabric Adapters of a node."""


class JobSpec(Section):
    """A job description."""

    name: JobName
    """Name of the job, unique in its namespace: a DNS-1035 label."""
    namespace: DnsLabel = "default"
    """Namespace of everything that is generated."""
    image: Image | None = None
    """Image of launcher and workers: this project's, or one built from it. `hvd-elastic run` does not need it."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When nodes pull the image. Not at every start, because a worker that returns should be warm in seconds."""
    image_pull_secrets: list[ObjectName] = Field(default_factory=list)
    """Secrets with the registry's credentials."""
    command: Annotated[list[Text], Field(min_length=1)]
    """The training command, one word per item. No shell reads it."""
    workdir: ContainerPath | None = None
    """Folder in which the command starts. Defaults to the image's own."""
    env: Environment = Field(default_factory=dict)
    """Environment variables of the training processes. Not for secrets: manifests and command lines show them."""
    secrets: list[ObjectName] = Field(default_factory=list)
    """Secrets whose keys become environment variables of the workers. The launcher never gets them."""

    workers: WorkersSpec = WorkersSpec()
    """Sizes and resources of the workers."""
    launcher: LauncherSpec = LauncherSpec()
    """The program that drives the job, and its resources."""
    engine: Engine = Engine.HOROVOD
    """What the training processes speak to each other with: `horovod`, or `torch`, which is
    [torch.distributed](torch-engine.md). That takes `launcher: launch`, and an image without Horovod will do."""
    standby: Standby = Standby.INIT
    """How a new worker waits: `init` runs the script up to `hvd.init()`, `solo` up to `elastic.run`, `off` nothing."""
    batch: BatchSpec = BatchSpec()
    """Batch size and learning rate when the number of workers changes. Left to the script by default."""

    cloud: Cloud = Cloud.ANY
    """`eks`, `gke`, `aks` or `any`. A job runs on one cloud."""
    capacity: Capacity = Capacity.SPOT
    """`spot`, `on-demand` or `prefer-spot`, for workers. The launcher runs on demand. No effect with `cloud: any`."""
    gpu_type: GpuType | None = None
    """GPU that workers need: `t4`, `v100`, `a100`, `h100` ... Any by default."""
    instance_type: LabelValue | None = None
    """Machine type of the workers' nodes, as the cloud names it. Workers that cannot fit into it are refused."""
    machine: MachineSpec = MachineSpec()
    """What the workers' nodes have. By default what the table of machine types says of `instance_type`."""
    zones: list[LabelValue] = Field(default_factory=list)
    """Zones that may be used. All by default."""
    one_zone: bool | None = None
    """Keep all workers of the job in one zone. Defaults to true on a cloud, where traffic between zones costs money,
    and to false with `cloud: any`."""
    node_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that the workers' nodes must have, in addition to the cloud's."""
    launcher_node_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that the launcher's node must have, in addition to the cloud's."""
    tolerations: list[Toleration] = Field(default_factory=list)
    """Taints that workers tolerate, in addition to the cloud's."""
    lost_node: Duration = 30
    """Seconds that a pod stays bound to a node that does not answer. Kubernetes' 300 would keep its place empty
    longer."""

    data: Data | None = None
    """The shared data set, mounted read only."""
    stage: StageSpec | None = None
    """Copy the data set from a bucket into `data` first. Without it, `data` is used as it is."""
    output: Output | None = None
    """The folder of results, shared by all workers."""
    checkpoint: CheckpointSpec | None = None
    """Where commits become durable."""

    elastic_timeout: Duration | None = None
    """Seconds that the launcher waits for `workers.min` workers before the job ends. By default it waits as long as it
    takes."""
    reset_limit: Count | None = None
    """Resizes and failures of one launcher after which the job ends. No limit by default, because preemptions are
    normal."""
    restarts: Annotated[int, Field(ge=0, le=1000)] = 3
    """Launchers that may fail before the job counts as failed. One that was drained, evicted or deleted does not count.
    Each new one continues from the durable checkpoint."""
    slow_workers: Literal["report", "replace"] = "report"
    """What becomes of a worker whose rank is [slow](ledger.md#a-slow-rank): `report` names it, `replace` also drains it
    for a new one, where training keeps `workers.min`. Only [`slow-nodes`](platform-kit.md#slow-nodes) keeps the new pod
    off the same node."""
    cooldown: tuple[Annotated[int, Field(ge=1, le=3600)], Annotated[int, Field(ge=1, le=3600)]] = (2, 60)
    """Shortest and longest time for which a failed host is not used, in seconds. Short, because discovery offers only
    hosts that answer."""
    gloo_timeout: Duration | None = None
    """Seconds after which a silent peer counts as dead. Defaults to 30; 10 with `launch`; 240 with 50 workers or
    more."""
    deadline: Duration | None = None
    """Seconds after which the job is ended even if training is not done."""
    keep: Duration = 86400
    """Seconds for which the finished job and its launcher's log are kept."""
    suspend: bool = False
    """Create the job without starting it."""

    priority: PrioritySpec = PrioritySpec()
    """PriorityClasses of the pods."""
    queue: QueueSpec | None = None
    """The queue that admits the job."""
    network: NetworkSpec = NetworkSpec()
    """Network interface and NetworkPolicies."""
    disruption_budget: bool = False
    """Emit a PodDisruptionBudget of `workers.min`. A node drain keeps that many workers; preemption only tries to."""
    monitor: bool = False
    """Emit a PodMonitor for the Prometheus Operator. Metrics are served without it, too."""
    autoscale: AutoscaleSpec | None = None
    """Let an autoscaler set the number of workers. Without it, the scheduler runs as many of `workers.max` as fit."""
    read_nodes: bool = False
    """Let discovery read nodes, so that it leaves draining nodes out early. Needs a ClusterRole."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of everything that is generated."""
    annotations: dict[LabelKey, Text] = Field(default_factory=dict)
    """Annotations of the job."""
    patches: list[PatchSpec] = Field(default_factory=list)
    """Changes of the rendered objects, in kustomize's form, for what no key says. A pod is simpler changed by
    `workers.pod`."""
    log_format: Literal["text", "json"] = "text"
    """Format of hvd-elastic's own log lines: `text` for people, `json` for a collector."""

    @property
    def worker_ports(self) -> WorkerPorts:
        """Where a worker listens."""
        if not self.workers.on_host_network:
            return WorkerPorts()
        return node_ports(self.network, job=f"{self.namespace}/{self.name}", slots=self.workers.slots)

    @property
    def accelerator(self) -> Accelerator:
        """What `workers.gpus` counts."""
        return find_accelerator(self.workers.gpu_resource, self.node_labels)

    def as_json(self) -> str:
        """The values that differ from their defaults, on one line, as they are stored with the job. `read_job` reads an
        equal spec from it.
        """
        values = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
