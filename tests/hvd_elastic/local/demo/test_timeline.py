import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.local.demo.timeline import EventTail, coverage, timeline


def step(
    time: float, step: int, rank: int = 0, size: int = 1, epoch: int = 0, indices: Sequence[int] = ()
) -> dict[str, Any]:
    return {
        "time": time,
        "event": "step",
        "rank": rank,
        "size": size,
        "step": step,
        "epoch": epoch,
        "indices": list(indices),
    }


def test_a_pause_is_what_a_resize_took_beyond_a_usual_step() -> None:
    events = [step(0.1 * n, n, size=2) for n in range(10)] + [step(1.9 + 0.1 * n, 10 + n, size=3) for n in range(10)]

    (pause,) = timeline(events).pauses

    assert (pause.before, pause.after, pause.grows) == (2, 3, True)
    assert pause.seconds == pytest.approx(0.9)


def test_steps_done_again_are_steps_lost() -> None:
    events = [step(n, n) for n in range(5)] + [step(10 + n, 3 + n) for n in range(3)]

    assert timeline(events).steps_lost == 2


def test_only_rank_0_tells_the_steps_and_order_is_that_of_time() -> None:
    events = [step(2, 2), step(1, 1), step(1.5, 1, rank=1), {"time": 0, "event": "joined", "rank": 0, "size": 1}]

    assert [each.step for each in timeline(events).steps] == [1, 2]


def test_coverage_is_exact_only_if_every_sample_was_seen_once() -> None:
    whole = [step(1, 1, 0, 2, indices=[0, 2]), step(1, 1, 1, 2, indices=[1, 3])]

    assert coverage(whole, due=4).exact
    missing = coverage(whole[:1], due=4)
    assert (missing.exact, missing.missed, missing.repeated) == (False, 2, 0)
    repeated = coverage([*whole, step(2, 2, indices=[0])], due=4)
    assert (repeated.exact, repeated.missed, repeated.repeated) == (False, 0, 1)


def test_of_a_step_that_was_lost_only_the_second_time_counts() -> None:
    first = [step(1, 1, rank, 3, indices=[rank]) for rank in range(3)]
    again = [step(2, 1, rank, 2, indices=indices) for rank, indices in enumerate([[0, 2], [1]])]

    assert coverage([*first, *again], due=3).exact


def test_the_same_sample_in_another_epoch_is_another() -> None:
    assert coverage([step(1, 1, epoch=0, indices=[0]), step(2, 2, epoch=1, indices=[0])], due=2).exact


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    tail, file = EventTail(tmp_path), tmp_path / "a.jsonl"
    line = json.dumps(step(1, 1))
    file.write_text(f"{line}\n{line[:7]}")

    assert len(tail.new_events()) == 1
    assert tail.new_events() == []
    with file.open("a") as more:
        more.write(f"{line[7:]}\n")
    assert tail.new_events() == [json.loads(line)]
