"""Nothing in Horovod looks again and again for what it waits for. A signal's handler runs in the wait for a result."""

import json
from pathlib import Path

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

COUNT = """
import os, threading, time
from pathlib import Path
import horovod.torch as hvd

def wakes(thread):
    lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

MAIN, WAITS = threading.get_native_id(), Path(os.environ["WAITS"])
"""
"""How often a thread of this process began to wait."""
WAITS_FOR_A_WORLD = f"""
{COUNT}
if os.environ["HOROVOD_RANK"] == "0":
    before = wakes(MAIN)
    WAITS.touch()
    hvd.init()
    print(wakes(MAIN) - before)
else:
    while not WAITS.exists():
        time.sleep(0.01)
    time.sleep({WAIT_MS / 1000})
    hvd.init()
"""
WAKES = 50
"""At most, in WAIT_MS; one that looks each millisecond wakes 1,000 times."""


@pytest.mark.core
@pytest.mark.needs_patch("sleeping-wait")
def test_a_rank_that_waits_sleeps() -> None:
    with world(["-c", SCRIPT], 1, HOROVOD_CYCLE_TIME=str(WAIT_MS)) as [process]:
        code, output = ends(process)
    assert code == 0, output
    said = json.loads(output.splitlines()[-1])
    assert said["states"].count("S") > 0.8 * len(said["states"]) > 0
    assert said["interrupted"], "a handler of a signal runs in the wait, and may end it"


@pytest.mark.needs_patch("sleeping-init")
def test_a_process_that_waits_for_its_world_sleeps(tmp_path: Path) -> None:
    with world(["-c", WAITS_FOR_A_WORLD], 2, WAITS=str(tmp_path / "waits")) as processes:
        (code, output), (other, _) = [ends(process) for process in processes]
    assert (code, other) == (0, 0), output
    assert int(output.splitlines()[-1]) < WAKES
