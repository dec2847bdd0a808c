"""Worker pods with real torch and Horovod: standbys that become the ranks of a world."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer

from hvd_elastic.mpijob.contract import HEARTBEAT_FILE
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Pod, Yard, eventually, make_yard

pytestmark = pytest.mark.process

SCRIPT = """
import sys
import torch
import horovod.torch as hvd

model = torch.nn.Linear(4, 2)      # before init: what a standby does ahead
hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum).item()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
print("rank", hvd.rank(), "of", hvd.size(), "sum", total, flush=True)
sys.exit(20 + hvd.rank())
"""

ELASTIC = """
import os, sys, time
import torch
import horovod.torch as hvd
import hvd_elastic

model = torch.nn.Linear(4, 2)
hvd.init()
imported_ahead = "hvd_elastic.trainer.state.elastic_state" in sys.modules
if os.environ.get("SLOW"):
    print("set up as rank", hvd.rank(), "of", hvd.size(), flush=True)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

@hvd.elastic.run
def train(state):
    while state.step < 5:
        optimizer.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        state.commit()

train(state)
print("trained", state.step, "as rank", hvd.rank(), "of", hvd.size(), imported_ahead, flush=True)
"""


@pytest.fixture
def real(tmp_path: Path) -> Yard:
    return make_yard(tmp_path, real=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[list[dict[str, str]]]:
    """The environment of each rank of a world, and its rendezvous server."""
    size: int = request.param
    server = RendezvousServer()
    slots = get_host_assignments(parse_hosts(",".join(f"host{rank}:1" for rank in range(size))), size)
    port = server.start()
    server.init(slots)
    yield [
        {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": "lo",
            "HOROVOD_HOSTNAME": slot.hostname,
            "HOROVOD_RANK": str(slot.rank),
            "HOROVOD_SIZE": str(slot.size),
            "HOROVOD_LOCAL_RANK": str(slot.local_rank),
            "HOROVOD_LOCAL_SIZE": str(slot.local_size),
            "HOROVOD_CROSS_RANK": str(slot.cross_rank),
            "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        }
        for slot in slots
    ]
    server.stop()


def of_script(output: str) -> str:
    """The output without the warning of a Horovod that lacks patches."""
    return "".join(line for line in output.splitlines(keepends=True) if "hvd-elastic install-horovod" not in line)


@pytest.mark.core
@pytest.mark.parametrize("world", [2], indirect=True)
def test_two_standbys_become_a_world_of_two(real: Yard, world: list[dict[str, str]]) -> None:
    real.write(SCRIPT)
    with ExitStack() as stack:
        pods: list[Pod] = [stack.enter_context(real.pod()) for _ in world]
        for pod in pods:
            pod.ready()
        clients = [pod.adopt(env=env, cwd=real.folder) for pod, env in zip(pods, world, strict=True)]
        outputs = [of_script(client.communicate(timeout=DEADLINE_SECONDS)[0].decode()) for client in clients]
        assert outputs == ["rank 0 of 2 sum 3.0\n", "rank 1 of 2 sum 3.0\n"]
        assert [client.returncode for client in clients] == [20, 21]


@pytest.mark.parametrize("standby", ["init", "solo"])
def test_an_elastic_script_trains_where_it_waited(real: Yard, standby: str) -> None:
    real.write(ELASTIC)
    with real.pod(standby=standby, env={"SLOW": "1"}) as pod:
        pod.ready()
        assert ("set up as rank 0 of 1" in pod.log_text) == (standby == "solo")
        code, output = pod.run(cwd=real.folder)
        assert code == 0, output
        assert output.splitlines()[-1] == f"trained 5 as rank 0 of 1 {standby == 'init'}"


STORES = """
import os
import hvd_elastic as elastic

@elastic.run
def train(state):
    print("begins after", state.step, flush=True)
    while "ONCE" not in os.environ:
        state.step += 1
        state.commit()
        with open("steps", "a") as steps:
            print(state.step, file=steps)

train(elastic.State(step=0))
"""


def test_a_process_whose_launcher_is_gone_stores_its_last_step(real: Yard) -> None:
    real.write(STORES)
    steps = real.folder / "steps"
    store = {"HVD_ELASTIC_CHECKPOINT": f"file://{real.folder}/store", "HVD_ELASTIC_CHECKPOINT_SECONDS": "3600"}
    with real.pod() as pod:
        pod.ready()
        client = pod.adopt(cwd=real.folder, env=store)
        eventually(lambda: steps.exists() and (pod.run_dir / HEARTBEAT_FILE).exists(), "it trains")
        client.kill()
        pod.ready(generation=2)
        last = int(steps.read_text().split()[-1])
        code, output = pod.run(cwd=real.folder, env={**store, "ONCE": "1"})
        assert code == 0, output
        assert output.splitlines()[-1] == f"begins after {last + 1}"  # its last commit has not returned


LIFE = """
import os, time
import horovod.torch as hvd
hvd.init()
print("up", flush=True)
time.sleep(float(os.environ["SECONDS"]))
raise ValueError("bad batch")
"""


def test_a_killed_rank_is_followed_by_a_standby_and_an_error_is_shown_as_python_shows_it(real: Yard) -> None:
    real.write(LIFE)
    with real.pod() as pod:
        pod.ready()
        client = pod.adopt(cwd=real.folder, env={"SECONDS": "999"})
        assert client.stdout is not None
        client.stdout.readline()
        (trainer,) = pod.processes()
        os.kill(trainer, signal.SIGKILL)
        assert client.wait(DEADLINE_SECONDS) == 128 + signal.SIGKILL
        pod.ready(generation=2)
        code, output = pod.run(cwd=real.folder, env={"SECONDS": "0"})
        assert code == 1
        assert of_script(output) == (
            "up\n"
            "Traceback (most recent call last):\n"
            f'  File "{real.folder}/train.py", line 7, in <module>\n'
            '    raise ValueError("bad batch")\n'
            "ValueError: bad batch\n"
        )
