"""A job as a researcher writes it: the only input of every generator.

The docstring under a field is its documentation everywhere: in the schema, in `--help` and in docs/job.md. Everything
but `name` and `command` has a default that is right for preemptible training.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hvd_elastic.mpijob.clouds.gpu_types import GpuType
from hvd_elastic.mpijob.contract import Standby
from hvd_elastic.mpijob.description import quantity
from hvd_elastic.mpijob.description.scalar_types import (
    ContainerPath,
    Cpu,
    DnsLabel,
    Duration,
    EnvName,
    Image,
    JobName,
    LabelKey,
    LabelValue,
    Memory,
    ObjectName,
    Text,
)
from hvd_elastic.mpijob.description.section import Section
from hvd_elastic.mpijob.description.volume_spec import Data, Output

Count = Annotated[int, Field(ge=1, le=100_000)]
Samples = Annotated[int, Field(ge=1)]
Percent = Annotated[int, Field(ge=1, le=100)]


class Cloud(StrEnum):
    """Whose node labels and taints the placement is written in."""

    ANY = "any"
    EKS = "eks"
    GKE = "gke"
    AKS = "aks"


class Capacity(StrEnum):
    """What workers run on."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    PREFER_SPOT = "prefer-spot"


class LauncherKind(StrEnum):
    """What drives the job."""

    HOROVODRUN = "horovodrun"
    LAUNCH = "launch"


class QueueSystem(StrEnum):
    """Who admits the job."""

    KUEUE = "kueue"
    VOLCANO = "volcano"
    KAI = "kai"


class WorkersSpec(Section):
    """How many workers, and what each of them gets."""

    short_form: ClassVar[str | None] = "`4`, `min:max` or `min:start:max`"

    min: Count = 1
    """Workers below which training waits. One: a single idle GPU is worth using."""
    start: Count = Field(default_factory=lambda data: data.get("min", 1))
    """Workers that the first step waits for (`-np`). The same as `min`: begin as soon as anything can be done."""
    max: Count = Field(default_factory=lambda data: data.get("start", 1))
    """Most workers: so many pods are asked for, and the scheduler soaks idle capacity up. The same as `start`."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """GPUs of each worker. None are asked for unless you say so."""
    slots: Count = Field(default_factory=lambda data: data.get("gpus") or 1)
    """Training processes of each worker. One a GPU."""
    loaders: Annotated[int, Field(ge=0, le=1024)] = 0
    """Data loader processes of each training process: each needs a CPU."""
    cpu: Cpu = Field(default_factory=lambda data: str(data.get("slots", 1) * max(1, data.get("loaders", 0))))
    """CPUs of each worker: request and limit. One a loader process, at least one a training process."""
    memory: Memory = "4Gi"
    """Memory of each worker: request and limit, /dev/shm included."""
    shm: Memory = Field(default_factory=lambda data: quantity.mebibytes(quantity.parse(data.get("memory", "4Gi")) / 4))
    """Size of /dev/shm, through which loader processes hand batches over. A quarter of the memory, counted in it."""
    disk: Memory | None = None
    """Ephemeral storage of each worker: request and limit. Not asked for unless you say so."""
    efa: Annotated[int, Field(ge=0, le=64)] = 0
    """Elastic Fabric Adapters of each worker (EKS only), at most what the instance type has."""
    grace: Duration | None = None
    """Seconds between the notice and the kill. 30, but 25 on AKS and 15 on GKE spot, whose machines wait no longer. A
    worker leaves as soon as its process has left, so a longer grace costs nothing."""
    service_account: ObjectName | None = None
    """An existing ServiceAccount with the cloud identity that storage asks for. None: workers need no identity."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`4` is a fixed size, `1:4` min and max, `1:2:8` min, start and max."""
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "start": value, "max": value}
        if not isinstance(value, str):
            return value
        parts = value.split(":")
        keys = {1: ("min", "start", "max"), 2: ("min", "max"), 3: ("min", "start", "max")}.get(len(parts))
        if keys is None:
            return value
        return dict(zip(keys, parts * 3 if len(parts) == 1 else parts, strict=False))

    @property
    def elastic(self) -> bool:
        """Whether the size may change at all; a fixed job (min = max) still survives the loss of a worker."""
        return self.min < self.max


class LauncherSpec(Section):
    """The pod that drives the job. It holds no GPU."""

    short_form: ClassVar[str | None] = "`horovodrun` or `launch`"

    kind: LauncherKind = LauncherKind.HOROVODRUN
    """`horovodrun` is Horovod's own; `launch` is `hvd-elastic launch`: the same flags, quicker, harder to kill."""
    cpu: Cpu = "500m"
    """CPUs of the launcher: request only, so that a start of many workers may use more."""
    memory: Memory = "1Gi"
    """Memory of the launcher: request and limit."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`launcher: launch` names the kind."""
        return {"kind": value} if isinstance(value, str) else value


class BatchSpec(Section):
    """What happens to the batch and the learning rate when the number of workers changes."""

    short_form: ClassVar[str | None] = "`1024`: samples per step over all workers"

    global_: Samples | None = Field(default=None, alias="global")
    """Samples per step over all workers, held constant: the training is the same whatever the size."""
    per_worker: Samples | None = None
    """Samples per step and process: more workers take larger steps."""
    learning_rate: Literal["constant", "linear", "sqrt"] | None = None
    """How the learning rate follows the number of processes, with `per_worker`: `linear` unless you say so."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`batch: 1024` is the global batch."""
        return {"global": value} if isinstance(value, int | str) and not isinstance(value, bool) else value


class CheckpointSpec(Section):
    """Where commits become durable. Without it they live in the workers' memory only."""

    short_form: ClassVar[str | None] = "`s3://bucket/prefix` or `file:///path`"

    url: Text
    """`s3://bucket/prefix` or `file:///folder`. Namespace and name are added: two jobs never share a prefix."""
    every: Duration = 60
    """Seconds between two durable checkpoints: what is lost at most when every worker goes at once."""
    steps: Samples | None = None
    """Commits between two durable checkpoints, if that comes before `every`."""
    endpoint: Text | None = None
    """URL of an S3 service that is not AWS's own."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`checkpoint: URL` keeps every default."""
        return {"url": value} if isinstance(value, str) else value


class PrioritySpec(Section):
    """PriorityClasses of the job's pods: names of classes that exist (`hvd-elastic priorityclasses`)."""

    launcher: ObjectName = "preserved-pc"
    """Above the workers', so that a launcher is never preempted while a worker would do."""
    workers: ObjectName = "preemptible-pc"
    """Below inference, so that inference takes GPUs from workers."""


class QueueSpec(Section):
    """The queue that admits the job. `workers.min` are its guaranteed part, where the queue knows gangs."""

    system: QueueSystem
    """`kueue`, `volcano` or `kai`."""
    name: LabelValue
    """The queue's name: a LocalQueue of Kueue, a Queue of Volcano or KAI."""


class NetworkSpec(Section):
    """Who may talk to the job's pods, and to whom they talk."""

    policy: bool = True
    """Emit a NetworkPolicy. Horovod unpickles what its ports are sent: without one, any pod can run code here."""
    interface: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")] = "eth0"
    """The pods' network interface. Named, because Horovod otherwise waits for two hosts to probe it."""
    storage_ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default=[443])
    """TCP ports on which pods may reach storage outside the job. 443: object stores."""
    api_ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default=[443, 6443])
    """TCP ports of the API server, for discovery. Policies see the server's own port, not the Service's 443."""
    monitoring_namespace: DnsLabel = "monitoring"
    """Namespace that may reach the metrics ports, where `monitor` is set."""


class AutoscaleSpec(Section):
    """HorizontalPodAutoscaler of a PyTorchJob (`generate --as pytorchjob`). An MPIJob has no scale subresource."""

    cpu_percent: Percent = 80
    """Use of the workers' CPU requests that the autoscaler aims at, in percent."""
    cooldown: Duration = 300
    """Seconds for which a lower wish must last before workers are taken away: each resize costs a pause."""


class Toleration(Section):
    """A taint that workers put up with, beside those of the cloud's spot nodes and GPU nodes."""

    short_form: ClassVar[str | None] = "`key[=value][:effect]`"

    key: LabelKey
    """The taint's key."""
    value: LabelValue | None = None
    """The taint's value; any value where it is not set."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; any effect where it is not set."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`dedicated=training:NoSchedule`, as kubectl writes taints."""
        if not isinstance(value, str):
            return value
        text, _, effect = value.partition(":")
        key, _, wanted = text.partition("=")
        parts = {"key": key, "value": wanted, "effect": effect}
        return {name: part for name, part in parts.items() if part}


class JobSpec(Section):
    """A job description."""

    name: JobName
    """Name of the job, unique in its namespace: a DNS-1035 label."""
    namespace: DnsLabel = "default"
    """Namespace of everything that is generated."""
    image: Image | None = None
    """Image of launcher and workers: this project's, or one built from it. Not needed by `hvd-elastic run`."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When nodes pull the image. Not each time: a worker that comes back should be warm in seconds."""
    image_pull_secrets: list[ObjectName] = Field(default_factory=list)
    """Secrets with the registry's credentials."""
    command: Annotated[list[Text], Field(min_length=1)]
    """The training command, one word an item. Never passed through a shell."""
    workdir: ContainerPath | None = None
    """Folder in which the command starts. The image's own unless you say so."""
    env: dict[EnvName, Text] = Field(default_factory=dict)
    """Environment of the training processes. No secrets: it is visible in the manifests and on command lines."""
    secrets: list[ObjectName] = Field(default_factory=list)
    """Secrets whose keys become environment variables of the workers; the launcher never gets them."""

    workers: WorkersSpec = WorkersSpec()
    """Sizes and resources of the workers."""
    launcher: LauncherSpec = LauncherSpec()
    """What drives the job."""
    standby: Standby = Standby.INIT
    """How a new worker waits: `init` runs the script up to `hvd.init()`, `solo` up to `elastic.run`, `off` not."""
    batch: BatchSpec = BatchSpec()
    """Batch size and learning rate over resizes. Left to the script unless you say so."""

    cloud: Cloud = Cloud.ANY
    """`eks`, `gke`, `aks` or `any`. A job runs on one cloud."""
    capacity: Capacity = Capacity.SPOT
    """`spot`, `on-demand` or `prefer-spot`, for workers; the launcher is on demand. Without effect on `cloud: any`."""
    gpu_type: GpuType | None = None
    """GPU that workers need: `t4`, `v100`, `a100`, `h100` ... Any unless you say so."""
    instance_type: LabelValue | None = None
    """Machine type of the workers' nodes, as the cloud names it."""
    zones: list[LabelValue] = Field(default_factory=list)
    """Zones that may be used. All unless you say so."""
    one_zone: bool | None = None
    """Keep all pods of the job in one zone. Yes on a cloud, where traffic between zones costs; no with `cloud: any`."""
    node_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that the workers' nodes must have, beside the cloud's."""
    launcher_node_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that the launcher's node must have, beside the cloud's."""
    tolerations: list[Toleration] = Field(default_factory=list)
    """Taints that workers put up with, beside the cloud's."""
    lost_node: Duration = 30
    """Seconds that a pod stays bound to a node that does not answer. Kubernetes' own 300 keep its place empty."""

    data: Data | None = None
    """The shared data set: read only."""
    output: Output | None = None
    """The folder of results, shared by all workers."""
    checkpoint: CheckpointSpec | None = None
    """Where commits become durable."""

    elastic_timeout: Duration = 600
    """Seconds that the launcher waits for `workers.min` before it gives up."""
    reset_limit: Count | None = None
    """Resizes and failures after which the job ends. No limit: being preempted is normal."""
    restarts: Annotated[int, Field(ge=0, le=1000)] = 3
    """Launchers that may fail before the job has failed. Each goes on from the durable checkpoint."""
    cooldown: tuple[Annotated[int, Field(ge=1, le=3600)], Annotated[int, Field(ge=1, le=3600)]] = (2, 60)
    """Shortest and longest seconds for which a failed host is not used. Short: only hosts that answer are offered."""
    gloo_timeout: Duration | None = None
    """Seconds after which a silent peer counts as dead. 30, or 10 with `launch`; 240 from 50 workers on."""
    deadline: Duration | None = None
    """Seconds after which the job is ended, whatever it does."""
    keep: Duration = 86400
    """Seconds for which the finished job and its launcher's log are kept."""
    suspend: bool = False
    """Create the job without starting it."""

    priority: PrioritySpec = PrioritySpec()
    """PriorityClasses of the pods."""
    queue: QueueSpec | None = None
    """The queue that admits the job."""
    network: NetworkSpec = NetworkSpec()
    """Network interface and NetworkPolicy."""
    disruption_budget: bool = False
    """Emit a PodDisruptionBudget of `workers.min`: a drain of nodes keeps that many; preemption only tries to."""
    monitor: bool = False
    """Emit a PodMonitor for the Prometheus Operator."""
    autoscale: AutoscaleSpec | None = None
    """Emit a HorizontalPodAutoscaler with a PyTorchJob."""
    read_nodes: bool = False
    """Let discovery read nodes, so that draining nodes are left out early. Needs a ClusterRole."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of everything that is generated."""
    annotations: dict[LabelKey, Text] = Field(default_factory=dict)
    """Annotations of the job."""
    log_format: Literal["text", "json"] = "text"
    """Log lines of our parts: for people, or for a collector."""
