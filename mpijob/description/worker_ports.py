"""The ports of a worker: its own pod's, or its node's where `workers.pod` says `hostNetwork`."""

import hashlib
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec

CHOSEN: Final = range(20_000, 30_000)
"""Where ports of nodes are chosen: below those of Services (30000 to 32767, kube-apiserver's default) and of
connections that a node makes (32768 to 60999, Linux' default of `net.ipv4.ip_local_port_range`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    """The ports on which a worker listens."""

    ssh: int = contract.SSH_PORT
    ready: int = contract.READY_PORT
    metrics: int = contract.WORKER_METRICS_PORT
    """Of local rank 0. Those of the other ranks follow."""


def worker_ports(spec: JobSpec) -> WorkerPorts:
    """The ports of the job's workers.

    On nodes they follow one another, from `network.host_port` or from a port that namespace and name choose: two jobs
    seldom have the same, and where they do, the scheduler gives them no node in common.
    """
    if not spec.workers.on_host_network:
        return WorkerPorts()
    first = spec.network.host_port or _chosen(f"{spec.namespace}/{spec.name}", width(spec))
    return WorkerPorts(ssh=first, ready=first + 1, metrics=first + 2)


def width(spec: JobSpec) -> int:
    """How many ports a worker has: ssh, readiness, and the metrics of each process."""
    return 2 + spec.workers.slots


def _chosen(job: str, count: int) -> int:
    number = int.from_bytes(hashlib.sha256(job.encode()).digest()[:8])
    return CHOSEN.start + number % max(1, len(CHOSEN) // count) * count
