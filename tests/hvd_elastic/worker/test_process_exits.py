"""How the last training process ended: the words of PID 1, whatever ended it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.discovery.sidecar.workers.worker_report import read_report
from hvd_elastic.mpijob.contract import HEARTBEAT_FILE
from hvd_elastic.system.cgroup_memory import oom_kills
from hvd_elastic.worker.process_exits import Ending, OomKills, ProcessExits
from hvd_elastic.worker.stopped_processes import is_stopped
from tests.hvd_elastic.worker.pods import Pod, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import INIT
from tests.hvd_elastic.worker.test_leaving import TRAINS_UNTIL_REMOVED, train
from tests.hvd_elastic.worker.test_stopped_processes import standbys

ENDS_BY_ITSELF = (
    INIT + "hvd.init()\nprint('up', flush=True)\nwhile not os.path.exists('over'):\n    time.sleep(0.01)\nsys.exit(3)\n"
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_of_processes_that_trained_together_the_first_to_end_is_told() -> None:
    exits = ProcessExits(clock=(clock := Clock()))
    before = exits.last
    assert before is None
    first, second, third = Ending(began=10.0), Ending(began=20.0), Ending(began=105.0)
    exits.note(first, 137, 41)
    clock.now = 103.0
    exits.note(second, 143, 41)
    assert exits.last == ProcessExit(seconds=3.0, code=137, step=41)
    clock.now = 110.0
    exits.note(third, 1, 60)
    assert exits.last == ProcessExit(seconds=0.0, code=1, step=60)


def test_a_kill_is_for_want_of_memory_if_the_kernel_has_just_counted_one() -> None:
    counts: list[int | None] = [2]
    kills = OomKills(count=lambda: counts[-1], clock=(clock := Clock()))
    assert kills.look() is False, "what was killed before it began is another's"
    counts.append(3)
    assert kills.look() is True
    clock.now += 29.0
    assert kills.look() is True, "the process may take long to its end"
    clock.now += 2.0
    assert kills.look() is False
    counts.append(None)
    assert kills.look() is None


def kill(pod: Pod, _yard: Yard) -> None:
    os.kill(standbys(pod)[0], signal.SIGKILL)


def stop(pod: Pod, _yard: Yard) -> None:
    os.kill(standbys(pod)[0], signal.SIGSTOP)


def stop_and_write_off(pod: Pod, _yard: Yard) -> None:
    """As a launcher does that finds the process silent."""
    (process,) = standbys(pod)
    os.kill(process, signal.SIGSTOP)
    eventually(lambda: is_stopped(process), "it is stopped")
    pod.clients[0].kill()


def lose_launcher(pod: Pod, _yard: Yard) -> None:
    pod.clients[0].kill()


def let_end(_pod: Pod, yard: Yard) -> None:
    (yard.folder / "over").touch()


@pytest.mark.core
@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "end", "words"),
    [
        (ENDS_BY_ITSELF, kill, ProcessExit(seconds=0.0, code=137, oom=None if oom_kills() is None else False).words),
        (ENDS_BY_ITSELF, let_end, "exit code 3"),
        (ENDS_BY_ITSELF, lose_launcher, "ended by its launcher"),
        (TRAINS_UNTIL_REMOVED, lose_launcher, "ended by its launcher"),
        (ENDS_BY_ITSELF, stop, "hung"),
        (ENDS_BY_ITSELF, stop_and_write_off, "hung"),
    ],
)
def test_what_ended_it(yard: Yard, script: str, end: Callable[[Pod, Yard], None], words: str) -> None:
    yard.write(script)
    with yard.pod(end_seconds=0.3) as pod:
        train(pod, yard)
        (Path(pod.run_dir) / HEARTBEAT_FILE).write_text("41 0 1 1700000000\n")
        assert read_report(pod.address, timeout_seconds=20.0).last_exit is None
        end(pod, yard)
        pod.ready(generation=2)
        ended = eventually(lambda: read_report(pod.address, timeout_seconds=20.0).last_exit, "it says how")
        assert (ended.words, ended.step) == (words, 41)
