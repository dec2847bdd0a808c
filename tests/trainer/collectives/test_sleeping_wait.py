"""A rank that waits for an operation: its thread sleeps, and what a signal asks for is done."""

import json

import pytest

from tests.trainer.elastic.bare_world import ends, world

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

WAIT_MS = 1000
"""How long the one rank of a world waits for its own background thread."""

SCRIPT = """
import json, os, signal, threading, time
import horovod.torch as hvd
import torch

hvd.init()
states, over = [], threading.Event()
MAIN = f"/proc/self/task/{threading.get_native_id()}/stat"

def look():
    while not over.wait(0.005):
        with open(MAIN) as file:
            states.append(file.read().rpartition(")")[2].split()[0])

class Alarm(Exception): ...

def ring(*_):
    raise Alarm

thread = threading.Thread(target=look)
thread.start()
hvd.allreduce(torch.ones(1))
over.set()
thread.join()
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.1)
interrupted = False
try:
    hvd.synchronize(hvd.allreduce_async(torch.ones(1), name="interrupted"))
except Alarm:
    interrupted = True
print(json.dumps({"states": states, "interrupted": interrupted}))
"""


@pytest.mark.core
@pytest.mark.needs_patch("sleeping-wait")
def test_a_rank_that_waits_sleeps() -> None:
    with world(["-c", SCRIPT], 1, HOROVOD_CYCLE_TIME=str(WAIT_MS)) as [process]:
        code, output = ends(process)
    assert code == 0, output
    said = json.loads(output.splitlines()[-1])
    assert said["states"].count("S") > 0.8 * len(said["states"]) > 0
    assert said["interrupted"], "a handler of a signal runs in the wait, and may end it"
