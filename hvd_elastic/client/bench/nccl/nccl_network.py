"""Which network carried the messages of NCCL, by its log (`NCCL_DEBUG=INFO`), and whether that is the expected one.

Of lines that disagree the one nearest to the messages counts:

1. `Channel 00/0 : 1[0] -> 8[0] [send] via NET/Socket/0` names the transport of a connection (NCCL
   `src/transport/net.cc`).
2. `Using network Socket` is what a rank has chosen (`src/init.cc`).
3. `NET/Socket : Using [0]eth0:10.0.0.1<0>` and the like is what a rank has found (`src/transport/net_socket.cc`,
   `net_ib/init.cc`).

Libfabric's plugin is called `Libfabric`, `AWS Libfabric` or `OFI`. What it drives follows from its own line, `NET/OFI
Selected provider is efa, fabric is efa (found 4 nics)` (aws-ofi-nccl `src/nccl_ofi_net.cpp`; some write `Provider`).
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from hvd_elastic.mpijob.contract import HvdElasticError

_CARRIES: Final = re.compile(r"\bvia NET/([^/]+?)/\d")
_CHOSEN: Final = re.compile(r"\bUsing network (.*\S)")
_FOUND: Final = re.compile(r"\bNET/(IB|Socket) *: *Using\b")
_PROVIDER: Final = re.compile(r"\bSelected provider is ([\w;-]+)", re.IGNORECASE)
_LIBFABRIC: Final = re.compile(r"libfabric|\bofi\b", re.IGNORECASE)
EXIT_WRONG_NETWORK: Final = 3


class Network(StrEnum):
    """What may be expected to carry messages between nodes."""

    EFA = "efa"
    IB = "ib"
    """InfiniBand, or RDMA over Ethernet (RoCE)."""
    SOCKET = "socket"
    """TCP."""


class WrongNetworkError(HvdElasticError):
    """Another network than the expected one has carried messages, or the log does not say which one did."""

    exit_code = EXIT_WRONG_NETWORK


def networks(lines: Iterable[str]) -> tuple[str, ...]:
    """The networks that carried messages, sorted: values of `Network`, or `libfabric:PROVIDER`. Empty if unknown."""
    carried, chosen, found, providers = set[str](), set[str](), set[str](), set[str]()
    for line in lines:
        for pattern, names in ((_CARRIES, carried), (_CHOSEN, chosen), (_FOUND, found), (_PROVIDER, providers)):
            if match := pattern.search(line):
                names.add(match[1])
    named = carried or chosen or found | ({"Libfabric"} if providers else set())
    return tuple(sorted({network for name in named for network in _networks(name, providers)}))


def check_network(found: Sequence[str], expected: Network) -> None:
    """Raises WrongNetworkError unless the expected network, and no other, has carried messages."""
    if not found:
        raise WrongNetworkError(
            f"the log does not say which network was used, so not that it was {expected}: run with NCCL_DEBUG=INFO, "
            "and workers on several nodes"
        )
    if others := [name for name in found if name != expected]:
        raise WrongNetworkError(f"{' and '.join(others)} carried what {expected} should: {_WAYS_OUT[expected]}")


_WAYS_OUT: Final = {
    Network.EFA: (
        "the image needs libfabric and aws-ofi-nccl (NETWORK=efa in docs/image.md), each worker an adapter "
        "(workers.efa), and all of them one security group that allows all traffic within itself"
    ),
    Network.IB: (
        "workers need the RDMA devices of their nodes, and the image libibverbs; NCCL_IB_HCA and NCCL_IB_DISABLE must "
        "not hide them"
    ),
    Network.SOCKET: "unset NCCL_NET and NCCL_NET_PLUGIN to have NCCL choose",
}


def _networks(name: str, providers: set[str]) -> set[str]:
    """From NCCL's name of a network. Libfabric drives one of several providers."""
    if _LIBFABRIC.search(name):
        return {_of_provider(one) for one in providers} or {"libfabric:unknown"}
    return {Network.IB if name.startswith("IB") else name.lower()}  # `IBext_v8` is the plugin of NVIDIA's HPC-X


def _of_provider(provider: str) -> str:
    """Libfabric's `tcp` and `sockets` providers are no better than NCCL's own sockets."""
    core = provider.lower().split(";")[0]
    if core in {"tcp", "sockets", "net"}:
        return Network.SOCKET
    return Network.EFA if core == "efa" else f"libfabric:{core}"
