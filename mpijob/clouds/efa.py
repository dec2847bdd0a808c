"""Elastic Fabric Adapters of EC2: what an instance has, and what a pod needs to use them."""

from typing import Final

RESOURCE: Final = "vpc.amazonaws.com/efa"
HUGE_PAGES: Final = {"hugepages-2Mi": "5120Mi"}
"""Huge pages for libfabric's buffers. A pod with EFA does not start without them."""

ENVIRONMENT: Final = {
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
    "RDMAV_FORK_SAFE": "1",
    "NCCL_DEBUG": "INFO",
    "NCCL_SOCKET_IFNAME": "^lo,docker,veth",
}
"""NCCL_DEBUG=INFO, because only NCCL's log says whether EFA was used (`NET/OFI`) or not (`NET/Socket`)."""

ADAPTERS: Final = {
    "p3dn.24xlarge": 1,
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p6-b200.48xlarge": 8,
    "g4dn.8xlarge": 1,
    "g4dn.12xlarge": 1,
    "g4dn.16xlarge": 1,
    "g4dn.metal": 1,
    "g5.8xlarge": 1,
    "g5.12xlarge": 1,
    "g5.16xlarge": 1,
    "g5.24xlarge": 1,
    "g5.48xlarge": 1,
    "g6.8xlarge": 1,
    "g6.12xlarge": 1,
    "g6.16xlarge": 1,
    "g6.24xlarge": 1,
    "g6.48xlarge": 1,
}
"""Adapters of each GPU instance type (docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html, network cards)."""
