import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.trainer.collectives.collective_calls import CollectiveCalls
from hvd_elastic.trainer.collectives.errors import HorovodInternalError, HostsUpdatedInterrupt
from hvd_elastic.trainer.elastic.mistakes.swallowed_interrupt import SwallowedInterrupt
from testbed.local.training import HOSTS, training

TRAINING = Path(__file__).with_name("train_swallowing.py")
SCRIPT = """\
def step(fail):
    try:
        try:
            fail()
        finally:
            pass
    except ValueError:
        raise
    except Exception:
        pass
"""


@pytest.fixture
def step(tmp_path: Path) -> Callable[[Callable[[], None]], None]:
    """A step of a script in a file, which catches all that it raises."""
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SCRIPT, str(file), "exec"), names)
    found: Callable[[Callable[[], None]], None] = names["step"]
    return found


@pytest.mark.parametrize(
    "error", [HostsUpdatedInterrupt(skip_sync=False), HorovodInternalError("Horovod has been shut down. This was")]
)
def test_what_a_script_has_caught_is_raised_again_until_it_arrives(
    error: Exception, step: Callable[[Callable[[], None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    interrupt = SwallowedInterrupt()

    def fail() -> None:
        interrupt.note(error)
        raise error

    step(fail)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(type(error)):
                interrupt.raise_again()
    [record] = caplog.records
    assert record.message.startswith(f"the `except` at train.py:7 has caught {type(error).__name__}")
    interrupt.taken()
    interrupt.raise_again()


def test_an_operation_that_horovod_refuses_ends_no_world() -> None:
    interrupt = SwallowedInterrupt()
    interrupt.note(HorovodInternalError("Mismatched ALLREDUCE tensor shapes: ..."))
    interrupt.raise_again()


def test_operations_that_fail_are_told() -> None:
    told: list[RuntimeError] = []
    calls = CollectiveCalls(failed=told.append)

    def wait(handle: int) -> None:
        raise RuntimeError(f"shut down {handle}")

    def begin(name: str, process_set: object = None) -> int:
        raise RuntimeError(f"shut down {name}")

    with contextlib.suppress(RuntimeError):
        calls.watched(wait)(1)
    with contextlib.suppress(RuntimeError):
        calls.named(begin, "allreduce")("loss")
    assert len(told) == 2


@pytest.mark.process
@pytest.mark.timeout(600)
def test_a_script_that_skips_whatever_fails_still_resizes_and_survives(tmp_path: Path) -> None:
    """3 -> 2 workers, one of which is then killed."""
    with training(tmp_path) as job:
        job.hosts(*HOSTS)
        job.horovodrun("-np", "3", "--min-np", "1", "--max-np", "3", script=TRAINING)
        job.trains(3)
        job.hosts(*HOSTS[:2])
        job.trains(2)
        job.kill(HOSTS[1])
        job.trains(1)
        (job.folder / "hurry").touch()
        assert job.ends() == 0, job.said()
        (end,) = job.written("end")
    assert end["samples"] == 600, "none was skipped"
    assert "the `except` at train_swallowing.py:31 has caught" in job.said()
