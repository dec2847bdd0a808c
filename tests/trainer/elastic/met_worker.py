"""The processes of a met world: each joins it, says what it finds there, and leaves."""

import json
import os
import sys

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
        said: dict[str, object] = {"connections": len(member._sockets.descriptors())}
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


if __name__ == "__main__":
    main(sys.argv[1])
