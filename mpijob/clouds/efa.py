"""Elastic Fabric Adapters of EC2: what a pod needs to use them. How many a machine has: machine_types.py."""

from typing import Final

RESOURCE: Final = "vpc.amazonaws.com/efa"
HUGE_PAGES: Final = {"hugepages-2Mi": "5120Mi"}
"""Huge pages for libfabric's buffers. A pod with EFA does not start without them."""

ENVIRONMENT: Final = {
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
    "NCCL_DEBUG": "INFO",
    "NCCL_SOCKET_IFNAME": "^lo,docker,veth",
}
"""NCCL_DEBUG=INFO, because only NCCL's log says whether EFA was used (`NET/OFI`) or not (`NET/Socket`).

No RDMAV_FORK_SAFE: the plugin makes forks safe by itself, and that variable breaks things on newer kernels
(aws-ofi-nccl, `doc/efa-env-var.md`)."""
