import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.worker.stopped_processes import STOPPED_SECONDS, StoppedProcesses, is_stopped
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Pod, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import WAITER
from tests.hvd_elastic.worker.test_leaving import TRAINS_UNTIL_REMOVED, train

PIDS = (7, 8)
STANDBY = "hvd_elastic.worker.standby.standby"


@given(st.lists(st.tuples(st.floats(0, 4), st.booleans(), st.booleans()), max_size=40))
def test_only_who_was_stopped_at_every_look_for_so_long_is_overdue(looks: list[tuple[float, bool, bool]]) -> None:
    tested = StoppedProcesses()
    now, since = 0.0, dict.fromkeys(PIDS, 0.0)
    went_on = dict.fromkeys(PIDS, True)
    for pause, *stopped in looks:
        now += pause
        states = dict(zip(PIDS, stopped, strict=True))
        for pid, is_now in states.items():
            if is_now and went_on[pid]:
                since[pid] = now
            went_on[pid] = not is_now
        expected = [pid for pid in PIDS if states[pid] and now - since[pid] >= STOPPED_SECONDS]
        assert tested.overdue(states, now) == expected


def test_a_process_that_has_ended_is_forgotten() -> None:
    tested = StoppedProcesses()
    tested.overdue({7: True}, 0)
    tested.overdue({}, STOPPED_SECONDS)
    assert tested.overdue({7: True}, STOPPED_SECONDS + 1) == []  # another one with the same number


@pytest.mark.process
def test_a_stopped_process_is_told_from_one_that_sleeps() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: is_stopped(process.pid), "it is stopped")
        process.send_signal(signal.SIGCONT)
        eventually(lambda: not is_stopped(process.pid), "it goes on")
        process.kill()
    assert not is_stopped(process.pid)


def standbys(pod: Pod) -> list[int]:
    return [pid for pid, command in pod.processes().items() if STANDBY in command]


@pytest.mark.core
@pytest.mark.process
def test_a_standby_that_is_stopped_is_replaced(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        (standby,) = standbys(pod)
        os.kill(standby, signal.SIGSTOP)
        eventually(lambda: standbys(pod) not in ([standby], []), "another standby")
        pod.ready(generation=2)


@pytest.mark.process
def test_the_launcher_is_told_of_a_training_process_that_is_stopped(yard: Yard) -> None:
    yard.write(TRAINS_UNTIL_REMOVED)
    with yard.pod() as pod:
        client = train(pod, yard)
        (process,) = standbys(pod)
        os.kill(process, signal.SIGSTOP)
        assert client.wait(DEADLINE_SECONDS) == 128 + signal.SIGKILL
        pod.ready(generation=2)
