"""Anything is killed at any moment, in seeded random order; afterwards the pod is warm, and nothing is left over."""

import contextlib
import os
import random
import re
import signal

import pytest

from tests.hvd_elastic.worker.pods import Pod, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import INIT, first_line

pytestmark = pytest.mark.process

SCRIPT = INIT + "time.sleep(0.05)\nhvd.init()\nprint('training', flush=True)\ntime.sleep(0.05)\nsys.exit(3)\n"


def disturb(pod: Pod, dice: random.Random, slots: int) -> str:
    """Do one thing that a bad day may bring."""
    event = dice.choice(["adopt", "adopt", "adopt and wait", "kill a process", "kill a client", "signal a client"])
    running = [client for client in pod.clients if client.poll() is None]
    if event.startswith("adopt"):
        client = pod.adopt(env={"HOROVOD_LOCAL_RANK": str(dice.randrange(slots))})
        if event == "adopt and wait":
            first_line(client)
    elif event == "kill a process":
        for pid in sorted(pod.processes())[: dice.randint(1, 2)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, dice.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))
    elif running:
        dice.choice(running).send_signal(signal.SIGKILL if event == "kill a client" else signal.SIGTERM)
    return event


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_is_killed_the_pod_recovers_and_leaks_nothing(yard: Yard, seed: int) -> None:
    yard.write(SCRIPT)
    dice, slots = random.Random(seed), 1 + seed % 2
    with yard.pod(slots=slots, end_seconds=0.3) as pod:
        pod.ready()
        before = pod.descriptors()
        for _ in range(12):
            disturb(pod, dice, slots)
        for client in pod.clients:
            if client.poll() is None:
                client.kill()
            client.wait()
        generations = [1]

        def warm() -> bool:
            answer = pod.ask()
            if answer is None:
                return False
            assert answer.generation >= generations[-1]
            generations.append(answer.generation)
            return answer.state == "waiting" and pod.descriptors() <= before

        eventually(warm, lambda: f"the pod is warm again; log:\n{pod.log_text}")
        standbys = re.findall(r"--slot=(\d)", " ".join(pod.processes().values()))
        # One each, but for a slot whose standby was killed on its way to init so often that it went cold.
        assert sorted(standbys) == sorted({*standbys} & {str(slot) for slot in range(slots)})
        assert "a handler failed" not in pod.log_text
        assert pod.run(cwd=yard.folder)[0] == 3
        assert pod.end() == 0
