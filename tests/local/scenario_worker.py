"""The training script of test_horovod_scenarios.py: epochs of a few batches, and exits at moments that are told.

Environment: PLAN, JSON with `epochs`, `exits` ({"EPOCH,BATCH": [RANK, ...]}, the rank with which a process started),
`kill` (die of SIGKILL instead of an exception), `changes` (epochs after which rank 0 waits until it is told of new
hosts), `epoch_seconds`; LINES, a file to which rank 0 appends a line an epoch; PATCHED, the product's worker side.
"""

import json
import os
import signal
import time

if os.environ.get("PATCHED"):
    from hvd_elastic.trainer.elastic import horovod_patches

    horovod_patches.install()

import horovod.torch as hvd
import torch

PLAN = json.loads(os.environ["PLAN"])
START_RANK = int(os.environ["HOROVOD_RANK"])
BATCHES = 4
NOTICE_SECONDS = 20.0

hvd.init()
torch.set_num_threads(1)
model = torch.nn.Linear(2, 2)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)
data = torch.randn(8, 2)


def trouble(epoch: int, batch: int) -> None:
    if START_RANK in PLAN["exits"].get(f"{epoch},{batch}", []):
        if PLAN["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError(f"told to fail at epoch {epoch}, batch {batch}")


def tell(state: hvd.elastic.TorchState) -> None:
    # The line changes the hosts. Stock stamps its notices with whole seconds, and passes over the second of one second.
    while not os.environ.get("PATCHED") and time.time() < state._last_updated_timestamp + 1:
        time.sleep(0.01)
    line = {
        "epoch": state.epoch,
        "host": os.environ["HOROVOD_HOSTNAME"],
        "start_rank": START_RANK,
        "size": hvd.size(),
        "rendezvous": state.rendezvous,
        "commits": state.commits,
        "time": time.time(),
    }
    fd = os.open(os.environ["LINES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, json.dumps(line).encode() + b"\n")
    os.close(fd)


def wait_for_notice(state: hvd.elastic.TorchState) -> None:
    deadline = time.monotonic() + NOTICE_SECONDS
    while state._host_messages.empty():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody told of the new hosts")
        time.sleep(0.01)


@hvd.elastic.run  # type: ignore[untyped-decorator]
def train(state: hvd.elastic.TorchState) -> None:
    state.rendezvous += 1
    while state.epoch < PLAN["epochs"]:
        while state.batch < BATCHES:
            trouble(state.epoch, state.batch)
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
            state.batch += 1
            state.commits += 1
            state.commit()
        if hvd.rank() == 0:
            tell(state)
            if state.epoch in PLAN["changes"]:
                wait_for_notice(state)
        time.sleep(PLAN["epoch_seconds"])
        state.epoch += 1
        state.batch = 0
        state.commits += 1
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0, commits=0, rendezvous=0))
