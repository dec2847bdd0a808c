"""Reads a folder of torch.distributed.checkpoint into a divided model and its optimizer, as a script of torch's does.

Its arguments: the folder, a file in which the processes find each other, how many they are, and which one this is.
"""

import sys
from typing import Any

import torch
from torch import distributed, nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.tensor import DTensor

from tests.trainer.state.divided.divided_cases import divided, is_like, reference_after


def states(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What `load` writes into. An optimizer has a state of its own only after a step."""
    for weight in model.parameters():
        if weight.requires_grad:
            weight.grad = torch.zeros_like(weight)
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def main(folder: str, meeting: str, size: int, rank: int) -> None:
    distributed.init_process_group("gloo", store=FileStore(meeting, size), rank=rank, world_size=size)
    model, optimizer = divided(seed=3)
    found = states(model, optimizer)
    load(found, checkpoint_id=folder)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    reference, known = reference_after(2)
    assert is_like(model, reference)
    for mine, its in zip(model.parameters(), reference.parameters(), strict=True):
        for name, value in known.state.get(its, {}).items():
            own = optimizer.state[mine][name]
            own = own.full_tensor() if isinstance(own, DTensor) else own
            assert torch.allclose(own, value, rtol=1e-4, atol=1e-5), name
    distributed.destroy_process_group()
    print("alike", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
