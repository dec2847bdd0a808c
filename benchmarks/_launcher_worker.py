"""The training job of benchmarks/launcher.py: it logs each step, and kills a worker at a moment that it is told.

With `--patched` it has the product's worker side, else Horovod's own. A file `HOST:LOCAL_RANK@POINT` in WORKER_TROUBLE
names who dies when this process comes to that point: `arriving` (imports done, before `hvd.init()`) or `interrupted`
(this process stops training because the hosts have changed).
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

import horovod.torch as hvd
import torch
import torch._dynamo  # The first optimizer imports it, after hvd.init(); a standby has done it ahead.
from horovod.common.exceptions import HostsUpdatedInterrupt

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


class State(hvd.elastic.TorchState):  # type: ignore[misc]
    """Horovod's own state, which also logs each notification."""

    def on_hosts_updated(self, timestamp: int, update_res: object) -> None:
        log("notified")
        super().on_hosts_updated(timestamp, update_res)


log("started")
trouble("arriving")
hvd.init()
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)
data = torch.randn(8, WIDTH)


@hvd.elastic.run  # type: ignore[untyped-decorator]
def train(state: State) -> None:
    log("joined", rank=hvd.rank(), size=hvd.size(), step=state.step)
    while state.step < STEPS:
        time.sleep(STEP_SECONDS)
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        state.step += 1
        log("step", rank=hvd.rank(), size=hvd.size(), step=state.step)
        try:
            state.commit()
        except HostsUpdatedInterrupt:
            trouble("interrupted")
            raise


train(State(model, optimizer, step=0))
log("finished")
