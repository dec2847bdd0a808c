"""The training job of benchmarks/launcher.py: it logs each step, and kills a worker at a moment that it is told.

With `--patched` it has the product's worker side, over the engine of HVD_ELASTIC_ENGINE, else Horovod's own. A file
`HOST:LOCAL_RANK@POINT` in WORKER_TROUBLE names who dies when this process comes to that point: `arriving` (imports
done, before `hvd.init()`) or `interrupted` (this process stops training because the hosts have changed).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

if "--patched" in sys.argv:
    from hvd_elastic.trainer.elastic import horovod_patches
    from hvd_elastic.worker.standby.standby import import_what_comes_next

    horovod_patches.install()
    import_what_comes_next()  # as a standby has done

import torch
import torch._dynamo  # The first optimizer imports it, after hvd.init(); a standby has done it ahead.

IS_TORCH = os.environ.get("HVD_ELASTIC_ENGINE") == "torch"
if IS_TORCH:
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    import hvd_elastic as elastic
    from hvd_elastic.trainer.collectives.errors import HostsUpdatedInterrupt

    init, run, StateOfEngine = elastic.init, elastic.run, elastic.State
    rank, size = distributed.get_rank, distributed.get_world_size
else:
    import horovod.torch as hvd
    from horovod.common.exceptions import HostsUpdatedInterrupt

    init, run, StateOfEngine = hvd.init, hvd.elastic.run, hvd.elastic.TorchState
    rank, size = hvd.rank, hvd.size

NAME = f"{os.environ['HOROVOD_HOSTNAME']}:{os.environ['HOROVOD_LOCAL_RANK']}"
STEPS, STEP_SECONDS = int(os.environ["WORKER_STEPS"]), float(os.environ["WORKER_STEP_SECONDS"])
WIDTH = int(os.environ.get("WORKER_WIDTH", "512"))
LOG = Path(os.environ["WORKER_LOG"])
LOG_FD = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def log(event: str, **fields: object) -> None:
    line = {"time": time.time(), "event": event, "name": NAME, "pid": os.getpid(), **fields}
    os.write(LOG_FD, json.dumps(line).encode() + b"\n")


def trouble(point: str) -> None:
    """Kill the process that is to die at this point."""
    order = Path(os.environ["WORKER_TROUBLE"], f"{NAME}@{point}")
    if not order.exists():
        return
    victim = order.read_text()
    order.unlink()
    lines = [json.loads(line) for line in LOG.read_text().splitlines()]
    log("kills", victim=victim)
    os.kill(
        [line["pid"] for line in lines if line["event"] == "started" and line["name"] == victim][-1], signal.SIGKILL
    )


class State(StateOfEngine):  # type: ignore[misc, valid-type]
    """The engine's own state, which also logs each notification."""

    def on_hosts_updated(self, timestamp: int, update_res: object) -> None:
        log("notified")
        super().on_hosts_updated(timestamp, update_res)


log("started")
trouble("arriving")
init()
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
called = DistributedDataParallel(model) if IS_TORCH else model
if not IS_TORCH:
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
data = torch.randn(8, WIDTH)


@run
def train(state: State) -> None:
    log("joined", rank=rank(), size=size(), step=state.step)
    while state.step < STEPS:
        time.sleep(STEP_SECONDS)
        optimizer.zero_grad()
        called(data).square().mean().backward()
        optimizer.step()
        state.step += 1
        log("step", rank=rank(), size=size(), step=state.step)
        try:
            state.commit()
        except HostsUpdatedInterrupt:
            trouble("interrupted")
            raise


train(State(model=model, optimizer=optimizer, step=0))
log("finished")
