"""The processes of a met world: each joins it, says what it finds there, and leaves."""

import json
import os
import socket
import struct
import sys
from collections.abc import Sequence

import horovod.torch as hvd
import torch

from hvd_elastic.trainer.elastic.world import rendezvous_client
from hvd_elastic.trainer.elastic.world.world_membership import WorldMember


def main(case: str) -> None:
    if case == "mixed" and os.environ["HOROVOD_RANK"] == "1":
        rendezvous_client._ABLE.pop("X-Horovod-Meets")  # as one whose Horovod lacks the patch
    member = WorldMember()
    member.enter(hvd.init)
    if hvd.size() > 1:
        ends = [0, hvd.size() - 1] if hvd.size() > 2 else [1]
        connections = member._sockets.descriptors()
        said: dict[str, object] = {"connections": len(connections)}
        if case == "sums":
            said = summed(connections)
        else:
            said |= found(list(range(1, hvd.size())) if case == "all-but-0" else ends)
        print(json.dumps(said), flush=True)
    hvd.shutdown()
    if case == "leave":
        print(json.dumps(len(member._sockets.descriptors())), flush=True)


def found(members: list[int]) -> dict[str, object]:
    """What this process and operations of all kinds say of the world."""
    mine = torch.tensor([float(hvd.rank())])
    some = hvd.add_process_set(members)
    said = {
        "place": [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()],
        "homogeneous": hvd.mpi_ops.is_homogeneous(),
        "all": hvd.allgather(mine).tolist(),
        "sum": hvd.allreduce(mine, op=hvd.Sum).item(),
        "some": hvd.allreduce(mine, op=hvd.Sum, process_set=some).item() if some.included() else None,
        "objects": hvd.allgather_object(hvd.rank()),
    }
    hvd.remove_process_set(some)
    return said


def summed(descriptors: Sequence[int]) -> dict[str, object]:
    """Sums of few values and of many, and how many peers have sent something for the few."""
    mine = torch.arange(3) + hvd.rank()
    for _ in range(5):  # until all processes have it in their cache
        small = hvd.allreduce(mine, op=hvd.Sum, name="small")
    before = [_bytes_received(each) for each in descriptors]
    for _ in range(20):
        hvd.allreduce(mine, op=hvd.Sum, name="small")
    peers = sum(_bytes_received(each) > earlier for each, earlier in zip(descriptors, before, strict=True))
    hvd.allreduce(mine, op=hvd.Sum, name="small")  # all have counted: the next tensors are agreed on over other ways
    large = hvd.allreduce(torch.full((200_000,), hvd.rank()), op=hvd.Sum, name="large")
    most = hvd.allreduce(mine, op=hvd.Max, name="most")
    return {"peers": peers, "small": small.tolist(), "large": large.unique().tolist(), "most": most.tolist()}


def _bytes_received(descriptor: int) -> int:
    """`tcpi_bytes_received` of Linux's `struct tcp_info`."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        return int(struct.unpack_from("=Q", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), 128)[0])


if __name__ == "__main__":
    main(sys.argv[1])
