"""What is known of a cluster, as values: what the checks judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any

from hvd_elastic.discovery.rules.operator_lag import OperatorWork

Json = Mapping[str, Any]


class Fact(StrEnum):
    """Everything that is asked of the cluster. What may not be read is named in `ClusterFacts.unreadable`."""

    VERSION = "version"
    NODES = "nodes"
    PRIORITY_CLASSES = "priorityclasses"
    CRDS = "customresourcedefinitions"
    DEPLOYMENTS = "deployments"
    DAEMON_SETS = "daemonsets"
    CLUSTER_ROLES = "clusterroles"
    CLUSTER_ROLE_BINDINGS = "clusterrolebindings"
    STORAGE_CLASSES = "storageclasses"
    CSI_DRIVERS = "csidrivers"
    NAMESPACE = "namespace"
    QUOTAS = "resourcequotas"
    LIMIT_RANGES = "limitranges"
    WEBHOOKS = "admission webhooks"
    RIGHTS = "rights of the caller"
    RESUME_RIGHTS = "rights of the MPI Operator"
    CONFIG_MAPS = "configmaps"
    MPIJOBS = "mpijobs"
    WORKERS = "pods of jobs"
    ROLE_BINDINGS = "rolebindings"
    QUEUES = "queues of Kueue"
    POLICIES = "admission policies"
    POD_GROUPS = "podgroups"
    VOLCANO = "configuration of Volcano"
    CLAIMED_DEVICES = "devices that ResourceClaims hand out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One thing that somebody may do."""

    verb: str
    resource: str
    """`pods`, or `jobs/status` with a subresource."""
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """A ServiceAccount."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An admission webhook that must answer, or what it looks at is refused (`failurePolicy: Fail`)."""

    name: str
    resources: frozenset[str]
    """`pods`, `mpijobs` or `*`."""
    service: str
    """`namespace/name`."""
    ready_addresses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Objects are JSON, as the API server writes them."""

    namespace: str
    """Where jobs would run."""
    version: str = ""
    """`v1.36.5`."""
    today: date = date.min
    """By the server's clock, UTC."""
    clock_offset_seconds: float = 0.0
    """The server's clock minus this machine's; it is known to a second."""
    nodes: Sequence[Json] = ()
    priority_classes: Sequence[Json] = ()
    crds: Mapping[str, Json] = field(default_factory=dict)
    """By name: `mpijobs.kubeflow.org`."""
    deployments: Sequence[Json] = ()
    daemon_sets: Sequence[Json] = ()
    cluster_roles: Mapping[str, Json] = field(default_factory=dict)
    """By name."""
    cluster_role_bindings: Sequence[Json] = ()
    storage_classes: Sequence[Json] = ()
    csi_drivers: Sequence[Json] = ()
    namespace_object: Json | None = None
    """None: it does not exist."""
    quotas: Sequence[Json] = ()
    limit_ranges: Sequence[Json] = ()
    webhooks: Sequence[Webhook] = ()
    """Those that pods or jobs of the namespace depend on."""
    mutating_webhooks: Sequence[Json] = ()
    """All MutatingWebhookConfigurations."""
    rights: Mapping[Right, bool] = field(default_factory=dict)
    """Of the caller, in the namespace."""
    resume_rights: Mapping[ServiceAccount, bool] = field(default_factory=dict)
    """Whether each MPI Operator may update `jobs/status`."""
    mpijobs: Sequence[Json] = ()
    """Those in the namespace."""
    waiting_jobs: Mapping[str, OperatorWork] = field(default_factory=dict)
    """By name, those of which the MPI Operator has pods to make or delete, and has done neither for LATE_SECONDS."""
    role_bindings: Sequence[Json] = ()
    """Those in the namespace that this project made."""
    resource_slices: Sequence[Json] = ()
    """The devices that drivers hand out by ResourceClaims."""
    device_classes: Sequence[Json] = ()
    workers: Sequence[Json] = ()
    """Pods of jobs in the namespace."""
    local_queues: Sequence[Json] = ()
    """Kueue's, in the namespace."""
    cluster_queues: Sequence[Json] = ()
    validating_policies: Sequence[Json] = ()
    """All ValidatingAdmissionPolicies."""
    mutating_policies: Sequence[Json] | None = ()
    """All MutatingAdmissionPolicies; None: the API server serves none, as before Kubernetes 1.36."""
    mutating_bindings: Sequence[Json] = ()
    """All MutatingAdmissionPolicyBindings: a policy without one does nothing."""
    pod_groups: Sequence[Json] = ()
    """Kubernetes' own, in the namespace."""
    volcano_configuration: str = ""
    """The text of Volcano's configuration; empty without Volcano."""
    kueue_configuration: str = ""
    """The text of Kueue's configuration; empty without Kueue."""
    unreadable: Mapping[Fact, str] = field(default_factory=dict)
    """What could not be read, and what the API server said."""
