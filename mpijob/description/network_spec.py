"""The section `network` of a job description: what may connect to the job's pods, and where they may connect."""

import hashlib
import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.scalar_types import DnsLabel, LabelKey, LabelValue, Text
from hvd_elastic.mpijob.description.section import Section


def _cidr(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError:
        raise ValueError("is not a block of addresses: write 10.0.0.0/16, without bits beyond the mask") from None


NODE_PORTS: Final = range(20_000, 30_000)
"""Where ports of nodes are chosen: below those of Services (30000 to 32767, kube-apiserver's default) and of
connections that a node makes (32768 to 60999, Linux' default of `net.ipv4.ip_local_port_range`)."""

Port = Annotated[int, Field(ge=1, le=65535)]
Cidr = Annotated[str, AfterValidator(_cidr)]


class NetworkPeer(Section):
    """One place that pods may connect to: a block of addresses outside the cluster, or pods inside it."""

    short_form: ClassVar[str | None] = "`10.0.0.0/16`: a block of addresses"

    cidr: Cidr | None = None
    """A block of addresses outside the cluster. Name pods by their labels: not every network plugin lets a block mean
    them."""
    namespace: DnsLabel | None = None
    """Namespace of pods. Defaults to the job's own if `pods` is given."""
    pods: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of pods. All pods of `namespace` by default."""
    ports: list[Port] = Field(default_factory=list)
    """Ports of this peer. Defaults to those of the key that it stands under."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`10.0.0.0/16` is a block of addresses."""
        return {"cidr": value} if isinstance(value, str) else value


class NetworkSpec(Section):
    """What may connect to the job's pods, and what they may connect to."""

    policy: bool = True
    """Emit NetworkPolicies. A job's ports believe whoever reaches them: without, any pod can stop the job."""
    interface: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")] = "eth0"
    """Network interface of the pods. Without a name, Horovod would wait for two hosts and probe for it. Workers with
    `hostNetwork` use the one that has their node's address, or what `HOROVOD_GLOO_IFACE` in `env` names."""
    host_port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """With `hostNetwork` in `workers.pod`: the first of the node's ports that a worker takes, one for ssh, one for
    readiness and one for the metrics of each process. Defaults to one that namespace and name choose, from 20000."""
    nodes: list[Cidr] = Field(default_factory=list)
    """With `hostNetwork` in `workers.pod`: addresses of the nodes, and so of the workers, which the launcher's
    NetworkPolicy names. All private addresses by default."""
    ipv6: bool = False
    """Pods have IPv6 addresses alone. NetworkPolicies then name the IPv6 addresses of name servers and of services that
    hand out credentials, in place of the IPv4 ones: some network plugins fail at blocks of the other kind."""
    mesh: bool = False
    """Let Istio put its proxy into the pods. By default a label keeps it out: a proxy does not end with the script, and
    Horovod's connections name pods, not Services."""
    storage_ports: list[Port] = Field(default=[443])
    """TCP ports on which pods may reach storage outside the job. Object stores use 443."""
    egress: list[NetworkPeer] = Field(default_factory=list)
    """Where pods may connect outside the job: blocks of addresses, namespaces, pods. Ports default to `storage_ports`.
    Anywhere by default."""
    identity: bool | None = None
    """Let workers reach the service of the cloud's nodes that hands out credentials. Defaults to true with
    `workers.service_account` or the URL of an object store; no effect with `cloud: any`."""
    dns: list[NetworkPeer] = Field(default_factory=list)
    """Name servers, on port 53. Defaults to the cluster's DNS pods and to private addresses."""
    api_ports: list[Port] = Field(default=[443, 6443])
    """TCP ports of the API server, for discovery. A NetworkPolicy sees the server's own port, not the Service's 443."""
    api_server: list[NetworkPeer] = Field(default_factory=list)
    """Addresses of the API server, for discovery. Anywhere by default, on `api_ports`."""
    monitoring_namespace: DnsLabel = "monitoring"
    """Namespace whose pods may reach the metrics ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    """The ports on which a worker listens: its own pod's, or its node's where `workers.pod` says `hostNetwork`."""

    ssh: int = contract.SSH_PORT
    ready: int = contract.READY_PORT
    metrics: int = contract.WORKER_METRICS_PORT
    """Of local rank 0. Those of the other ranks follow."""

    def of_node(self, slots: int) -> range:
        """All that a worker with so many slots takes of its node."""
        return range(self.ssh, self.ssh + port_count(slots))


def node_ports(network: NetworkSpec, *, job: str, slots: int) -> WorkerPorts:
    """The ports that workers with so many slots take of their nodes.

    They follow one another, from `network.host_port` or from a port that `job`, its namespace and name, chooses: two
    jobs seldom have the same, and where they do, the scheduler gives them no node in common.
    """
    first = network.host_port or _chosen(job, port_count(slots))
    return WorkerPorts(ssh=first, ready=first + 1, metrics=first + 2)


def port_count(slots: int) -> int:
    """How many ports a worker has: ssh, readiness, and the metrics of each process."""
    return 2 + slots


def _chosen(job: str, count: int) -> int:
    number = int.from_bytes(hashlib.sha256(job.encode()).digest()[:8])
    return NODE_PORTS.start + number % max(1, len(NODE_PORTS) // count) * count
