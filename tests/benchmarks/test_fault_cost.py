"""What `benchmarks.faults` reads from a job's account: standstills, repeated steps, samples that were taken wrongly."""

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from benchmarks.faulted import fault_cost
from benchmarks.replay.sample_account import sample_account
from benchmarks.report.record import NEVER, spread
from testbed.cluster.training import Account, GrowingAccount

PACE = 0.05


def paced(begin: float, steps: Iterable[int], size: int = 3) -> list[dict[str, Any]]:
    """Steps at a steady pace, the first of them at `begin`."""
    return [{"time": begin + PACE * number, "step": step, "size": size} for number, step in enumerate(steps)]


def test_a_killed_process_costs_a_short_pause_and_the_time_until_its_place_is_taken() -> None:
    steps = [*paced(0, range(21)), *paced(1.35, range(20, 80), size=2), *paced(4.7, range(80, 160))]
    struck, now = 1.02, steps[-1]["time"] + PACE
    assert fault_cost.longest_pause(steps, since=struck, until=now) == pytest.approx(0.4)
    assert fault_cost.whole_after(steps, since=struck, until=now, size=3) == pytest.approx(4.7 - struck)
    assert fault_cost.repeated_steps(steps, since=struck) == 1
    assert fault_cost.is_settled(steps, since=struck, now=now, sizes=[3])
    assert not fault_cost.is_settled(steps, since=steps[-5]["time"], now=now, sizes=[3]), "too few yet"


def test_who_starts_anew_at_full_size_is_whole_from_its_first_step_on() -> None:
    steps = [*paced(0, range(100)), *paced(12.0, range(90, 150))]
    assert fault_cost.whole_after(steps, since=4.9, until=15.0, size=3) == pytest.approx(12.0 - 4.9)
    assert fault_cost.repeated_steps(steps, since=4.9) == 10


def test_who_is_not_disturbed_is_whole_at_once() -> None:
    steps = paced(0, range(400))
    assert fault_cost.longest_pause(steps, since=3.0, until=20.0) == pytest.approx(PACE)
    assert fault_cost.whole_after(steps, since=3.0, until=20.0, size=3) == 0
    assert fault_cost.repeated_steps(steps, since=3.0) == 0


def test_who_stands_still_at_the_end_never_goes_on() -> None:
    steps = paced(0, range(100))
    assert fault_cost.longest_pause(steps, since=4.9, until=60.0) == NEVER
    assert not fault_cost.is_settled(steps, since=0.0, now=60.0, sizes=[3])
    assert fault_cost.whole_after(steps, since=4.9, until=60.0, size=3) == NEVER
    smaller = [*steps, *paced(30, range(100, 130), size=2)]
    assert fault_cost.whole_after(smaller, since=4.9, until=31.6, size=3) == NEVER
    assert spread([1.0, 2.0, NEVER]) == (1.0, 2.0, "never")


def noted(step: int, epoch: int, shares: Sequence[Sequence[int]], *, time: float) -> list[dict[str, Any]]:
    """What the processes of a world tell of a step, each of its share."""
    common = {"event": "samples", "time": time, "step": step, "epoch": epoch, "size": len(shares)}
    return [{**common, "rank": rank, "samples": [*share]} for rank, share in enumerate(shares)]


EPOCH = [*noted(1, 0, [[0, 1], [2]], time=1), *noted(2, 0, [[3], [4, 5]], time=2)]
NEXT = noted(3, 1, [[0], [1]], time=9)


def wrong(*told: dict[str, Any], since: float = 0) -> int:
    return sample_account(told, 6, since=since).wrong


def test_a_step_that_is_done_again_counts_once() -> None:
    again = noted(2, 0, [[3, 4, 5]], time=5)
    assert wrong(*EPOCH, *NEXT) == 0
    assert wrong(*EPOCH, *again, *NEXT) == 0
    assert wrong(*EPOCH[:2], *noted(2, 0, [[3], [4]], time=2), *NEXT) == 1


def test_an_epoch_that_begins_anew_takes_its_samples_twice() -> None:
    anew = [*noted(3, 0, [[0, 1], [2]], time=5), *noted(4, 0, [[3], [4, 5]], time=6)]
    assert wrong(*EPOCH, *anew, *noted(5, 1, [[0]], time=9)) == 6


def test_only_epochs_count_that_were_touched_and_have_ended() -> None:
    short = EPOCH[:2]
    assert wrong(*short) == 0, "it is under way"
    assert wrong(*short, *noted(2, 1, [[0]], time=8)) == 3
    assert wrong(*short, *noted(2, 1, [[0]], time=8), since=5) == 0, "it was over before"


@given(some.lists(some.tuples(some.sampled_from(["a.jsonl", "b.jsonl"]), some.integers(0, 40)), max_size=8))
def test_a_growing_account_is_at_each_time_the_whole_account(writes: list[tuple[str, int]]) -> None:
    """Files grow by any number of bytes, so that a line may be torn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        growing, left = GrowingAccount(folder), {"a.jsonl": LINES, "b.jsonl": LINES}
        for file, size in writes:
            with (folder / file).open("a") as out:
                out.write(left[file][:size])
            left[file] = left[file][size:]
            assert growing.look() == Account.read(folder)


LINES = "".join(json.dumps({"time": number}) + "\n" for number in range(20))
