"""A worker of several slots: one host to the launcher, so one generation, whatever happens to a single slot."""

import signal
import subprocess
from pathlib import Path

import pytest
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer

from hvd_elastic.mpijob.contract import Exit
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Pod, Yard, eventually, make_yard
from tests.hvd_elastic.worker.test_adoption import INIT, WAITER, first_line

pytestmark = pytest.mark.process


def adopt(pod: Pod, rank: int) -> subprocess.Popen[bytes]:
    client = pod.adopt(env={"HOROVOD_LOCAL_RANK": str(rank)})
    assert first_line(client).startswith("training")
    return client


@pytest.mark.core
def test_the_pod_is_ready_when_all_its_standbys_wait(yard: Yard) -> None:
    yard.write(INIT + "hvd.init()\nprint(os.environ['HOROVOD_LOCAL_RANK'], os.getpid())\nsys.exit(8)")
    with yard.pod(slots=3) as pod:
        pod.ready()
        standbys = set(pod.processes())
        assert len(standbys) == 3
        clients = [pod.adopt(env={"HOROVOD_LOCAL_RANK": str(rank)}) for rank in (2, 0, 1)]
        lines = [client.communicate(timeout=DEADLINE_SECONDS)[0].decode().split() for client in clients]
        assert [line[0] for line in lines] == ["2", "0", "1"]
        assert {int(line[1]) for line in lines} == standbys
        generation = eventually(pod.ask, "ready again").generation
        assert 2 <= generation <= 4


def test_a_rank_beyond_the_slots_is_refused(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(slots=2) as pod:
        pod.ready()
        code, output = pod.run(env={"HOROVOD_LOCAL_RANK": "2"})
        assert (code, "this worker has 2 slots" in output) == (Exit.BAD_INPUT, True)


@pytest.mark.core
def test_a_lost_slot_closes_the_host_until_the_others_have_left(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(slots=2) as pod:
        pod.ready()
        staying, dying = adopt(pod, 0), adopt(pod, 1)
        pod.ready(state="training")
        dying.send_signal(signal.SIGKILL)
        eventually(lambda: pod.ask() is None, "the host is gone")
        eventually(lambda: pod.log_text.count("slot 1: standby") == 2, "slot 1 has a standby again")
        assert pod.ask() is None
        assert staying.poll() is None
        staying.terminate()
        assert staying.wait(DEADLINE_SECONDS) == 5
        pod.ready(generation=2)


def test_a_slot_that_was_not_used_can_join_later(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(slots=2) as pod:
        pod.ready()
        adopt(pod, 0)
        assert pod.ready(state="training").generation == 1
        adopt(pod, 1)
        assert pod.ready(state="training").generation == 1


def test_a_restarted_launcher_takes_all_slots_over_within_one_generation(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(slots=2) as pod:
        pod.ready()
        old = [adopt(pod, rank) for rank in (0, 1)]
        new = [pod.adopt(env={"HOROVOD_LOCAL_RANK": str(rank)}) for rank in (0, 1)]
        assert [client.wait(DEADLINE_SECONDS) for client in old] == [5, 5]
        assert all(first_line(client).startswith("training") for client in new)
        assert pod.ready(state="training").generation == 1


def test_without_standbys_a_lost_slot_begins_a_generation_too(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(slots=2, standby="off") as pod:
        pod.ready()
        client = pod.adopt(env={"HOROVOD_LOCAL_RANK": "1"}, cwd=yard.folder)
        first_line(client)
        client.kill()
        pod.ready(generation=2)


SOLO = """
import os
import torch
import horovod.torch as hvd
import hvd_elastic

hvd.init()
print("set up as", hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), flush=True)
model = torch.nn.Linear(4, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
state = hvd_elastic.State(model=model, optimizer=optimizer)

@hvd_elastic.run
def train(state):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state.commit()
    print("trained as", hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), flush=True)

train(state)
"""


@pytest.mark.process
def test_solo_standbys_know_their_slots_and_become_one_world(tmp_path: Path) -> None:
    """Alone each is rank 0 of 1, yet takes the GPU that is its own."""
    yard = make_yard(tmp_path, real=True)
    yard.write(SOLO)
    server = RendezvousServer()
    world = get_host_assignments(parse_hosts("pod:2"), 2)
    port = server.start()
    server.init(world)
    with yard.pod(slots=2, standby="solo") as pod:
        pod.ready()
        assert {line for line in pod.log_text.splitlines() if "set up" in line} == {
            "set up as 0 1 0 2",
            "set up as 0 1 1 2",
        }
        common = {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": "lo",
            "HOROVOD_HOSTNAME": "pod",
            "HOROVOD_SIZE": "2",
            "HOROVOD_LOCAL_SIZE": "2",
            "HOROVOD_CROSS_RANK": "0",
            "HOROVOD_CROSS_SIZE": "1",
        }
        ranks = [{**common, "HOROVOD_RANK": rank, "HOROVOD_LOCAL_RANK": rank} for rank in ("0", "1")]
        clients = [pod.adopt(env=rank, cwd=yard.folder) for rank in ranks]
        outputs = [client.communicate(timeout=DEADLINE_SECONDS)[0].decode() for client in clients]
        assert outputs == ["trained as 0 2 0 2\n", "trained as 1 2 1 2\n"]
    server.stop()
