"""What replayed windows ask for, and the figures that are made of what they have measured."""

from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.peers.inference_demand import InferenceDemand
from benchmarks.replay.measured_window import Measured, goodput, lost_by_change, pauses, repeated, untaken
from benchmarks.replay.sample_account import SampleAccount, sample_account
from benchmarks.replay.trace_window import (
    CUT_HOURS,
    DLRM,
    HELD_OUT,
    REAL_TIME,
    SKYPILOT,
    SKYPILOT_HELD_OUT,
    TRACES,
    WINDOWS,
    AskedGpus,
    TraceWindow,
    asked,
    chosen_windows,
    given,
    middle_windows,
)
from benchmarks.replay.window_tables import system_table, window_table
from hvd_elastic.decide.simulate.day import InferencePod
from hvd_elastic.decide.simulate.traces.recorded_trace import NodePresence, RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_file import read_traces

HOUR = 3600.0
HELD = (SKYPILOT_HELD_OUT, DLRM)
FIRST_HOUR = TraceWindow(name="first", file="", trace="")


def asks(*changes: tuple[float, int]) -> list[AskedGpus]:
    return [AskedGpus(second=second, gpus=gpus) for second, gpus in changes]


# --- what is asked for -----------------------------------------------------------------------------------------------


def test_inference_asks_for_what_nodes_that_left_do_not_give() -> None:
    nodes = [NodePresence(name=str(number), since=0.0, until=10 * HOUR) for number in range(4)]
    nodes += [NodePresence(name=str(number), since=0.0, until=0.5 * HOUR) for number in range(4, 8)]
    trace = RecordedTrace(name="", seconds=10 * HOUR, nodes=tuple(nodes))
    assert asked(trace, FIRST_HOUR, seconds=60.0) == asks((30.0, 2))


def test_inference_asks_for_what_its_pods_need_beyond_the_least_of_the_window() -> None:
    always = InferencePod(name="always", gpus=8, created=0.0, seconds=float("inf"))
    burst = InferencePod(name="burst", gpus=4, created=0.25 * HOUR, seconds=0.5 * HOUR)
    trace = RecordedTrace(name="", seconds=10 * HOUR, pods=(always, burst))
    assert asked(trace, FIRST_HOUR, seconds=60.0) == asks((15.0, 2), (45.0, 0))


def test_a_window_that_begins_with_inference_asks_at_once() -> None:
    pod = InferencePod(name="pod", gpus=1, created=0.0, seconds=1.5 * HOUR)
    window = TraceWindow(name="second", file="", trace="", begins=1.0)
    assert asked(RecordedTrace(name="", seconds=9e9, pods=(pod,)), window, seconds=60.0) == asks((0.0, 2), (30.0, 0))


def test_what_a_window_leaves_to_training() -> None:
    assert given(asks((10.0, 2), (20.0, 1)), seconds=30.0) == pytest.approx(10 * 3 + 10 * 1 + 10 * 2)


def test_the_windows_in_the_middle_by_the_number_of_changes() -> None:
    cut = CUT_HOURS * HOUR
    bursts = {1: 1, 2: 4, 3: 2, 4: 3}  # window: pods that come and go in it; the first window has none
    pods = tuple(
        InferencePod(name=f"{window}-{number}", gpus=1, created=window * cut + 100.0 + 200 * number, seconds=100.0)
        for window, count in bursts.items()
        for number in range(count)
    )
    trace = RecordedTrace(name="made-up", seconds=5 * cut, pods=pods)
    assert [window.name for window in middle_windows(trace, "day", "file.csv")] == ["day-18h", "day-24h"]


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded traces are not there")
@pytest.mark.parametrize(("file", "name"), [SKYPILOT, DLRM])
def test_the_windows_that_are_played_are_those_that_the_rule_chooses(file: str, name: str) -> None:
    trace = next(trace for trace in read_traces(TRACES / file) if trace.name == name)
    played = [window for window in WINDOWS if window.trace == name]
    assert middle_windows(trace, played[0].name.partition("-")[0], file) == played


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded traces are not there")
def test_the_rule_chooses_those_that_are_held_out_and_the_hour_in_real_time() -> None:
    traces = {name: next(each for each in read_traces(TRACES / file) if each.name == name) for file, name in HELD}
    half = traces[DLRM[1]]
    first = replace(half, seconds=half.seconds / 2)
    assert middle_windows(traces[SKYPILOT_HELD_OUT[1]], "skypilot4", SKYPILOT_HELD_OUT[0]) == [*HELD_OUT[:2]]
    assert middle_windows(first, "dlrm", DLRM[0]) == [*HELD_OUT[2:]]
    assert middle_windows(half, "dlrm", DLRM[0], hours=1.0)[0] == REAL_TIME[1]
    assert not {*HELD_OUT} & {*WINDOWS}


def test_windows_are_chosen_by_number_or_name() -> None:
    assert chosen_windows("held-out") == HELD_OUT
    assert chosen_windows("skypilot4-96h,dlrm-246h") == (HELD_OUT[1], REAL_TIME[1])
    assert chosen_windows("2") == WINDOWS[:2]
    assert chosen_windows("dlrm-228h,trace_ll_10_11") == (WINDOWS[6], WINDOWS[3])
    with pytest.raises(ArgumentTypeError, match="no such windows: dlrm, x"):
        chosen_windows("dlrm,x")


# --- what was measured -----------------------------------------------------------------------------------------------


def measured(steps: Sequence[tuple[float, int, int]], **fields: Any) -> Measured:
    """`steps`: second, number and size."""
    found = [{"time": time, "step": step, "size": size} for time, step, size in steps]
    return Measured(
        **{"window": "w", "system": "s", "seconds": 10.0, "asks": [], "steps": found, "waits": [], **fields}
    )


def test_goodput_counts_neither_pauses_nor_steps_that_were_done_again() -> None:
    whole = measured([(0.1 * number, number, 3) for number in range(100)])
    assert goodput(whole) == pytest.approx(1.0)
    stood = measured([(0.1 * number + (5.0 if number > 25 else 0.0), number, 3) for number in range(50)])
    assert goodput(stood) == pytest.approx(0.5)
    again = measured([(0.1 * number, number % 50, 3) for number in range(100)])
    assert goodput(again) == pytest.approx(0.5)
    assert repeated(again) == 50


def test_goodput_is_of_what_the_window_gives() -> None:
    smaller = [(0.1 * number, number, 3 if number < 50 else 1) for number in range(100)]
    one = measured(smaller, asks=[{"second": 5.0, "gpus": 2}])
    assert goodput(one) == pytest.approx(1.0)


def test_a_gpu_is_not_taken_until_the_world_is_larger() -> None:
    """Inference leaves two GPUs at second 4; the world has the first at 6 and the other at 7, after a pause."""
    sizes = [(0.1 * number, 1) for number in range(60)] + [(6.0, 2), (6.5, 2)]
    sizes += [(7.0 + 0.1 * number, 3) for number in range(30)]
    steps = [(second, number, size) for number, (second, size) in enumerate(sizes)]
    one = measured(steps, asks=[{"second": 0.0, "gpus": 2}, {"second": 4.0, "gpus": 0}])
    assert untaken(one) == pytest.approx((1.9 * 2 + 0.6 * 1) / (4 + 6 * 3))
    assert untaken(measured([], asks=[{"second": 0.0, "gpus": 2}])) == pytest.approx(1.0)


def test_what_a_take_and_a_give_cost() -> None:
    """Two taken at second 4 cost half a second of one together; one is given at 6, and comes at 7."""
    sizes = [(0.1 * number, 3) for number in range(40)] + [(4.5 + 0.1 * number, 1) for number in range(15)]
    sizes += [(6.0 + 0.1 * number, 1) for number in range(10)] + [(7.0 + 0.1 * number, 2) for number in range(30)]
    steps = [(second, number, size) for number, (second, size) in enumerate(sizes)]
    changes = [{"second": 4.0, "gpus": 2}, {"second": 6.0, "gpus": 1}]
    takes, gives = lost_by_change(measured(steps, asks=changes))
    assert takes == [pytest.approx(0.25)] * 2
    assert gives == [pytest.approx(4 * 2 - 10 * 0.1 - 30 * 0.2)]


def test_what_befalls_training_long_after_a_change_is_not_its_cost() -> None:
    """One is given at second 10, and comes at 12; training stands still from 60 to 80."""
    times = [0.1 * number for number in range(600)] + [80 + 0.1 * number for number in range(200)]
    steps = [(at, number, 2 if number < 120 else 3) for number, at in enumerate(times)]
    changes = [{"second": 0.0, "gpus": 1}, {"second": 10.0, "gpus": 0}]
    _, gives = lost_by_change(measured(steps, asks=changes, seconds=100.0))
    assert gives == [pytest.approx(2.0)]


def test_a_pause_is_a_time_without_a_step_to_the_end_of_the_window() -> None:
    one = measured([(0.1 * number + (1.5 if number > 50 else 0.0), number, 3) for number in range(70)])
    assert pauses(one) == [pytest.approx(1.6), pytest.approx(10.0 - 8.4)]


def test_tables_have_a_row_for_each_window_and_each_system() -> None:
    steps = [(0.1 * number, number, 3) for number in range(100)]
    found = [
        measured(steps, window="b", waits=[1.0, 3.0], epochs=2, samples_wrong=0),
        measured(steps[:90], window="a", system="other"),
        measured(steps[:50], window="a", waits=[2.0], epochs=3, samples_wrong=4),
    ]
    windows, systems = window_table("name", "fast", found, ["b, other: stood still"]), system_table("name", "", found)
    assert [row[:2] for row in windows.texts()] == [["a", "other"], ["a", "s"], ["b", "s"]]
    assert [row[2] for row in windows.texts()] == ["90.0%", "50.0%", "100.0%"]
    assert [row[8] for row in windows.texts()] == ["-", "4", "0"]
    assert windows.note == "b, other: stood still"
    assert systems.texts()[0][:9] == ["s", "2", "75.0%", "-", "-", "0.0%", "0", "5", "4"]
    assert systems.texts()[0][-3:] == ["3", "2.00", "2.98"]


# --- samples ---------------------------------------------------------------------------------------------------------


def line(step: int, rank: int, size: int, samples: Sequence[int], epoch: int = 0) -> dict[str, object]:
    return {
        "event": "samples",
        "step": step,
        "rank": rank,
        "size": size,
        "samples": list(samples),
        "epoch": epoch,
    }


NEXT_EPOCH = line(9, 0, 1, [0], epoch=1)


def test_an_epoch_that_uses_each_sample_once_is_right() -> None:
    other: dict[str, object] = {"event": "step"}
    events = [line(1, 0, 2, [0, 1]), line(1, 1, 2, [2]), line(2, 0, 1, [3]), NEXT_EPOCH, other]
    assert sample_account(events, 4) == SampleAccount(epochs=1, wrong=0)


def test_samples_are_wrong_that_were_left_out_or_used_again() -> None:
    events = [line(1, 0, 1, [0, 1]), line(2, 0, 1, [1, 2]), NEXT_EPOCH]
    assert sample_account(events, 4) == SampleAccount(epochs=1, wrong=2)


def test_an_epoch_that_has_not_ended_is_not_counted() -> None:
    assert sample_account([line(1, 0, 1, [0, 0])], 4) == SampleAccount(epochs=0, wrong=0)


@pytest.mark.parametrize(
    ("lost", "again"),
    [
        ([line(2, 0, 2, [2]), line(2, 1, 2, [3]), line(3, 0, 2, [4]), line(3, 1, 2, [5])], [2, 3]),
        ([line(3, 0, 2, [4]), line(3, 1, 2, [5])], [3]),
        ([line(3, 0, 2, [4])], [3]),
    ],
    ids=["back to a checkpoint", "the last step", "the last step of one rank"],
)
def test_what_was_undone_does_not_count(lost: list[dict[str, object]], again: list[int]) -> None:
    first = [line(1, 0, 2, [0]), line(1, 1, 2, [1])]
    kept = [] if 2 in again else [line(2, 0, 2, [2]), line(2, 1, 2, [3])]
    redone = [line(step, 0, 1, [2 * step - 2, 2 * step - 1]) for step in again]
    assert sample_account([*first, *kept, *lost, *redone, NEXT_EPOCH], 6) == SampleAccount(epochs=1, wrong=0)


def test_a_step_that_one_size_does_again_replaces_the_first() -> None:
    twice = [line(1, 0, 2, [0]), line(1, 1, 2, [1]), line(1, 1, 2, [1]), line(1, 0, 2, [0])]
    assert sample_account([*twice, NEXT_EPOCH], 2) == SampleAccount(epochs=1, wrong=0)


# --- inference on one machine ----------------------------------------------------------------------------------------


def test_inference_waits_until_a_gpu_is_free() -> None:
    demand = InferenceDemand()
    demand.ask(2, now=10.0)
    demand.take(free=0, now=11.0)
    demand.take(free=1, now=12.0)
    demand.take(free=2, now=15.0)
    demand.take(free=3, now=16.0)
    assert demand.waits == [2.0, 5.0]


def test_an_idle_gpu_is_taken_at_once() -> None:
    demand = InferenceDemand()
    demand.ask(1, now=10.0)
    demand.take(free=1, now=10.0)
    assert demand.waits == [0.0]


def test_inference_has_waited_for_what_it_gives_up() -> None:
    demand = InferenceDemand()
    demand.ask(2, now=10.0)
    demand.take(free=1, now=11.0)
    demand.ask(1, now=12.0)
    demand.take(free=2, now=13.0)
    demand.ask(0, now=14.0)
    demand.ask(1, now=20.0)
    demand.take(free=2, now=21.0)
    assert demand.waits == [1.0, 2.0, 1.0]
