"""A training script that kills itself where a test orders it, and logs for each step what must not depend on that."""

import contextlib
import os
import signal
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch

import hvd_elastic as elastic
from hvd_elastic.trainer.checkpoint import claim, writing
from hvd_elastic.trainer.elastic.world import rendezvous_client
from hvd_elastic.trainer.elastic.world.world_membership import WorldMember
from hvd_elastic.trainer.state import present_state

ORDERS = Path(os.environ["TEST_ORDERS"])
LENGTH, BATCH = int(os.environ["TEST_LENGTH"]), int(os.environ["TEST_BATCH"])
EPOCHS = int(os.environ.get("TEST_EPOCHS", "1000000"))
BALLAST = int(os.environ.get("TEST_BALLAST", "0"))
"""The number of useless parameters, which take long on the wire."""
PART_BYTES = 16 << 20
"""More than a connection holds of its own, and a small part of a ballast."""
PROCESS_SETS = os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS") == "1"
"""Whether all ranks but the last have a process set of their own."""


def die() -> None:
    """End as a killed process does."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_sending(peers: int) -> None:
    """Die as soon as so many peers have read a part of what is sent to each of them from now on."""
    before = sent()
    while sum(count - before.get(number, 0) > PART_BYTES for number, count in sent().items()) < peers:
        time.sleep(0.0005)
    die()


def sent() -> dict[int, int]:
    """How many bytes the other side has acknowledged, by the descriptor of each TCP connection (TCP_INFO)."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
                found[int(entry.name)] = struct.unpack_from("Q", info, 120)[0]  # tcpi_bytes_acked of linux/tcp.h
    return found


def die_at(owner: Any, name: str, point: str, *, after: bool = False) -> None:
    """Die before or after a call of `owner.name`, once `ORDERS/HOST@point` is there: if it holds a number, so many
    seconds later; if it holds `sending N`, in the middle of messages to N peers.
    """
    call = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        result = call(*args, **options) if after else None
        order = ORDERS / f"{os.environ['HOROVOD_HOSTNAME']}@{point}"
        if order.exists():
            how = order.read_text()
            order.unlink()
            if how.startswith("sending "):
                threading.Thread(target=die_while_sending, args=[int(how.split()[1])]).start()
            else:
                threading.Timer(float(how or 0), die).start()
            if not how:
                time.sleep(60)
        return result if after else call(*args, **options)

    setattr(owner, name, wrapped)


die_at(elastic.State, "_save", "commit")
die_at(elastic.State, "_agree", "committed")
die_at(rendezvous_client, "take_place", "rendezvous")
die_at(WorldMember, "_watched", "init")
die_at(hvd, "allgather", "sync", after=True)
die_at(hvd, "add_process_set", "add")
die_at(present_state, "broadcast", "broadcast")
die_at(writing, "upload", "uploaded", after=True)
die_at(claim.Claim, "advance", "manifest")

elastic.init()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
ballast = torch.nn.Parameter(torch.zeros(BALLAST))
model.register_parameter("ballast", ballast)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), named_parameters=model.named_parameters()
)
state = elastic.State(model=model, optimizer=optimizer)


def meet(chosen: hvd.ProcessSet) -> None:
    """Sum something up over a process set."""
    if chosen.included():
        count = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=chosen, name="chosen")
        assert count.item() == hvd.size() - 1


@elastic.run
def train(state: elastic.State) -> None:
    chosen = hvd.add_process_set(range(hvd.size() - 1)) if PROCESS_SETS and hvd.size() > 1 else None
    for state.epoch in state.remaining_epochs(EPOCHS):
        for batch in state.batches(range(LENGTH), global_batch_size=BATCH, seed=4):
            loss = model(batch[:, None] / LENGTH).square().mean() * state.weight + ballast.sum() * 0
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
            if chosen is not None:
                meet(chosen)
            total = sum(weight.detach().double().sum().item() for weight in model.parameters())
            state.commit(taken=batch.tolist() if state.weight else [], total=total)


train(state)
