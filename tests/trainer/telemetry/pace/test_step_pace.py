"""What a process measures of its steps, over a clock that the test sets."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hvd_elastic.trainer.collectives.collective_calls import WaitedTime
from hvd_elastic.trainer.telemetry.pace.step_pace import (
    BLOCK_SECONDS,
    SETTLING_SECONDS,
    SETTLING_STEPS,
    PaceBlock,
    StepPace,
    trains_on_accelerator,
)


class Process:
    """One that trains."""

    def __init__(self) -> None:
        self.now, self.waited, self.on_gpu = 100.0, WaitedTime(), False
        self.pace = StepPace(
            waited=self.waited, is_blind=lambda: self.on_gpu, clock=lambda: self.now, wall=lambda: self.now + 1e9
        )

    def step(self, *, computing: float = 0.0, waiting: float = 0.0, commit: float = 0.0) -> PaceBlock | None:
        self.now += computing
        self.wait(waiting)
        block = self.pace.end_step()
        self.now += commit
        self.pace.begin_step()
        return block

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waited.seconds += seconds

    def settle(self) -> None:
        self.pace.enter_world()
        for _ in range(SETTLING_STEPS):
            assert self.step(computing=SETTLING_SECONDS) is None

    def loads(self, *seconds: float) -> Iterator[int]:
        for number, each in enumerate(seconds):
            self.now += each
            yield number


@pytest.fixture
def process() -> Process:
    process = Process()
    process.settle()
    return process


def test_a_block_has_what_a_rank_does_before_it_waits(process: Process) -> None:
    for _ in range(4):
        assert process.step(computing=0.75, waiting=0.25, commit=0.25) is None
    block = process.step(computing=0.75, waiting=0.25, commit=0.25)
    assert block == PaceBlock(unix=1e9 + process.now - 0.25, steps=5, step_seconds=1.2, computing=0.75, loading=None)


def test_a_step_that_is_none_like_the_others_is_left_out(process: Process) -> None:
    blocks = [process.step(computing=3.0 if number == 2 else 0.5) for number in range(5)]
    assert [block.computing for block in blocks if block] == [0.5]


def test_loading_is_the_mean_and_what_waits_in_it_for_others_is_not_part_of_it(process: Process) -> None:
    """A loader that works ahead lets some steps wait for many."""
    batches = process.pace.timed(process.loads(*[0.0, 0.0, 0.0, 1.0] * 2))
    blocks = []
    for _ in batches:
        process.wait(0.25)
        blocks.append(process.step(computing=0.5))
    (block,) = (each for each in blocks if each)
    assert (block.steps, block.computing) == (6, 0.5)
    assert block.loading == pytest.approx(1 / 6)

    def waits_inside() -> Iterator[None]:
        while True:
            process.wait(1.0)
            process.now += 0.25
            yield

    batches_of_others = process.pace.timed(waits_inside())
    blocks = [process.step(computing=0.25) for _ in zip(range(8), batches_of_others, strict=False)]
    assert [each.loading for each in blocks if each][-1] == 0.25


def test_the_end_of_the_data_is_the_end_of_the_loop(process: Process) -> None:
    assert list(process.pace.timed(process.loads(0.0, 0.0))) == [0, 1]
    assert process.step(computing=BLOCK_SECONDS) is not None


def test_an_error_of_the_loader_reaches_the_script(process: Process) -> None:
    def load(number: int) -> int:
        raise OSError(f"no sample {number}")

    with pytest.raises(OSError, match="no sample 0"):
        next(process.pace.timed(map(load, range(2))))


def test_the_first_steps_of_each_world_do_not_count() -> None:
    process = Process()
    assert process.step(computing=100.0) is None, "there is no world yet"
    for _ in range(2):
        process.pace.enter_world()
        for _ in range(SETTLING_STEPS):
            assert process.step(computing=BLOCK_SECONDS) is None
        assert process.step(computing=BLOCK_SECONDS) is not None
        process.step(computing=1.0)  # of a block that is given up


def test_many_steps_settle_by_time_alone() -> None:
    process = Process()
    process.pace.enter_world()
    blocks = [process.step(computing=0.5) for _ in range(round(SETTLING_SECONDS / 0.5) + 12)]
    assert [number for number, block in enumerate(blocks) if block] == [28]


def test_a_gpu_is_not_seen_by_the_hosts_clock(process: Process) -> None:
    process.on_gpu = True
    assert process.step(computing=BLOCK_SECONDS) is None
    process.on_gpu = False
    assert process.step(computing=BLOCK_SECONDS) is not None


@pytest.mark.parametrize("used", ["cuda", "xpu", "hpu", ""])
def test_which_accelerator_does_not_matter(used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not trains_on_accelerator()
    kinds = {
        kind: SimpleNamespace(is_initialized=lambda kind=kind: kind == used) for kind in {"cuda", "xpu", used} - {""}
    }
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**kinds))
    assert trains_on_accelerator() is bool(used)
    monkeypatch.delitem(sys.modules, "torch")
    assert not trains_on_accelerator()
