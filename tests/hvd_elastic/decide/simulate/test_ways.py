"""What each way makes of one change, by hand: 10 samples a second and worker."""

import pytest

from hvd_elastic.decide.simulate.day import NodeLife
from hvd_elastic.decide.simulate.outcome import DayOutcome, JobOutcome
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.workload import Way
from tests.hvd_elastic.decide.simulate.made_days import STALLS, day, job, serving

BEGIN = STALLS.pod_start + STALLS.first_step
"""6 s: from a worker's binding to its job's first step."""


def play(way: Way, nodes: list[int | NodeLife], *pods: tuple[float, float], **fields: object) -> DayOutcome:
    """A thousand seconds of one job."""
    task = job("job", **fields)
    asked = tuple(serving(created, seconds) for created, seconds in pods)
    return simulate(day(nodes=nodes, pods=asked), (task,), way, STALLS)


def only(outcome: DayOutcome) -> JobOutcome:
    (one,) = outcome.jobs
    return one


def sizes(outcome: DayOutcome) -> list[tuple[float, int]]:
    return [(change.second, change.workers) for change in only(outcome).sizes.changes()]


def test_ours_shrinks_within_a_stall_and_grows_when_the_newcomer_is_warm() -> None:
    outcome = play(Way.OURS, [3], (100, 200), start=3, max=3, min=1)
    # told at 100; the GPU is free at 100.75; inference runs at 101.75 and ends at 301.75
    grown = 301.75 + STALLS.pod_start + STALLS.grow
    assert sizes(outcome) == [(0, 0), (BEGIN, 3), (100.25, 2), (grown, 3)]
    assert only(outcome).pauses == 2
    assert only(outcome).paused_seconds == pytest.approx(0.75)
    assert outcome.inference.max == pytest.approx(1.75)
    assert only(outcome).repeated == 0
    trained = 30 * (100 - BEGIN) + 20 * (306.75 - 100.25) + 30 * (1000 - grown)
    assert only(outcome).samples == pytest.approx(trained)


def test_only_allowed_sizes_train_and_who_is_left_over_holds_its_gpu_in_vain() -> None:
    outcome = play(Way.OURS, [4], (100, 200), start=4, max=4, sizes=(1, 2, 4))
    grown = 301.75 + STALLS.pod_start + STALLS.grow
    assert sizes(outcome) == [(0, 0), (BEGIN, 4), (100.25, 2), (grown, 4)]
    assert only(outcome).pauses == 2, "the one that is left over joins with the one that comes"
    assert only(outcome).samples == pytest.approx(40 * (100 - BEGIN) + 20 * (306.75 - 100.25) + 40 * (1000 - grown))
    assert only(outcome).stalled == pytest.approx(0.25 * 3 + 0.75 + (306.75 - 100.25) + 0.5 * 4)


@pytest.mark.parametrize("way", list(Way))
def test_each_way_trains_with_allowed_sizes_alone(way: Way) -> None:
    outcome = play(way, [2, 1], (100, 200), (400, 10), (405, 100), start=1, max=3, sizes=(1, 3))
    assert {size for _, size in sizes(outcome)} <= {0, 1, 3}
    assert only(outcome).samples > 0


def test_workers_that_leave_together_cost_one_stall_and_those_that_come_together_too() -> None:
    outcome = play(Way.OURS, [4], (100, 50), (100, 50), start=4, max=4)
    assert [size for _, size in sizes(outcome)] == [0, 4, 2, 4]
    assert only(outcome).resizes == 2


def test_a_resize_takes_in_who_leaves_meanwhile_and_who_comes_meanwhile_waits_for_the_next() -> None:
    outcome = play(Way.OURS, [1, 1, 1, 1], (100, 50), (100.125, 50), start=4, max=4)
    assert [size for _, size in sizes(outcome)] == [0, 4, 2, 3, 4]
    assert only(outcome).pauses == 3
    assert only(outcome).paused_seconds == pytest.approx(1.375)


def test_below_min_ours_stands_still_and_keeps_its_state() -> None:
    outcome = play(Way.OURS, [2], (100, 50), start=2, min=2, max=2, checkpoint_every_seconds=None)
    assert [size for _, size in sizes(outcome)] == [0, 2, 0, 2]
    assert (only(outcome).repeated, only(outcome).restarts) == (0, 0)


def test_what_ours_saved_as_it_fell_short_outlives_those_that_stood_still() -> None:
    nodes: list[int | NodeLife] = [1, NodeLife(name="lost", gpus=1, until=150)]
    outcome = play(Way.OURS, nodes, (100, 200), start=2, min=2, max=2, checkpoint_every_seconds=900)
    assert only(outcome).samples == pytest.approx(20 * (100 - BEGIN))
    assert only(outcome).repeated == 0


def test_ours_saves_before_its_last_worker_leaves_and_waits_with_it() -> None:
    outcome = play(Way.OURS, [1], (100, 50), start=1, max=1, checkpoint_seconds=3.0, checkpoint_every_seconds=900)
    assert (only(outcome).repeated, only(outcome).restarts) == (0, 1)
    assert outcome.inference.max == pytest.approx(0.75 + 1 + 3 + 1), "leaving, a look for a place, the save, the start"


@pytest.mark.parametrize(("every", "seconds"), [(None, 0.0), (900.0, 25.0)])
def test_what_cannot_be_saved_in_time_is_trained_again(every: float | None, seconds: float) -> None:
    outcome = play(Way.OURS, [1], (100, 50), max=1, checkpoint_every_seconds=every, checkpoint_seconds=seconds)
    assert only(outcome).repeated == pytest.approx(100 - BEGIN)
    assert outcome.inference.max == pytest.approx(1.75)


def test_a_lost_node_costs_ours_the_longer_stall_and_no_step() -> None:
    nodes: list[int | NodeLife] = [NodeLife(name="lost", gpus=1, until=100), 2]
    outcome = play(Way.OURS, nodes, start=3, max=3)
    assert sizes(outcome)[2] == (110, 2)
    assert only(outcome).repeated == 0


def test_who_is_told_during_a_longer_stall_adds_nothing_to_it() -> None:
    nodes: list[int | NodeLife] = [1, 1, NodeLife(name="lost", gpus=1, until=100)]
    outcome = play(Way.OURS, nodes, (105, 2000), start=3, max=3)
    assert sizes(outcome)[2] == (110, 1)


def test_a_lost_nodes_worker_is_asked_for_anew_after_a_while() -> None:
    nodes: list[int | NodeLife] = [NodeLife(name="lost", gpus=1, until=100), 1, NodeLife(name="new", gpus=1, since=101)]
    outcome = play(Way.OURS, nodes, start=2, max=2)
    assert sizes(outcome)[-1] == (200 + STALLS.pod_start + STALLS.grow, 2)


def test_a_node_that_tells_is_left_by_a_drain() -> None:
    nodes: list[int | NodeLife] = [NodeLife(name="spot", gpus=1, until=100, notice_seconds=20), 1]
    outcome = play(Way.OURS, nodes, start=2, max=2)
    assert sizes(outcome)[2] == (80.25, 1)


def test_the_last_copy_lost_without_a_word_costs_what_came_after_the_checkpoint() -> None:
    nodes: list[int | NodeLife] = [NodeLife(name="lost", gpus=1, until=100), NodeLife(name="new", gpus=1, since=100)]
    outcome = play(Way.OURS, nodes, max=1, checkpoint_every_seconds=30)
    assert only(outcome).repeated == pytest.approx(100 - BEGIN - 3 * 30)
    assert only(outcome).repeated_steps == 4
    assert only(outcome).restarts == 1


def test_stock_shrinks_for_good_and_its_replacement_holds_a_gpu_in_vain() -> None:
    outcome = play(Way.STOCK, [3], (100, 200), start=3, max=3)
    assert [size for _, size in sizes(outcome)] == [0, 3, 2]
    back = 301.75 + STALLS.pod_start
    assert only(outcome).stalled == pytest.approx(1000 - back + 3 * 0.25 + 0.5)


def test_stock_begins_again_from_its_checkpoint_once_it_has_waited_for_min() -> None:
    outcome = play(Way.STOCK, [2], (100, 50), start=2, min=2, max=2, checkpoint_every_seconds=50)
    assert [size for _, size in sizes(outcome)] == [0, 2, 0, 2]
    again = 100 + 600 + 10 + STALLS.restart
    assert sizes(outcome)[-1] == (again, 2)
    assert only(outcome).repeated == pytest.approx(2 * (100 - BEGIN - 50))


def test_static_waits_for_all_its_workers_and_begins_at_its_checkpoint() -> None:
    outcome = play(Way.STATIC, [3], (100, 200), start=3, max=3, checkpoint_every_seconds=50)
    back = 301.75 + STALLS.pod_start + STALLS.restart
    assert sizes(outcome) == [(0, 0), (BEGIN, 3), (100, 0), (back, 3)]
    assert only(outcome).repeated == pytest.approx(3 * (100 - BEGIN - 50))


def test_restart_evicts_all_for_each_loss_and_grows_at_a_checkpoint() -> None:
    outcome = play(Way.RESTART, [3], (100, 200), start=3, max=3, checkpoint_every_seconds=50)
    shrunk = 100.75 + STALLS.pod_start + STALLS.restart
    assert sizes(outcome)[:4] == [(0, 0), (BEGIN, 3), (100, 0), (shrunk, 2)]
    assert sizes(outcome)[-1][1] == 3
    assert only(outcome).restarts == 2
    assert only(outcome).repeated == pytest.approx(3 * (100 - BEGIN - 50))


def test_a_job_ends_with_its_last_sample_and_frees_its_gpus() -> None:
    outcome = play(Way.OURS, [2], start=2, max=2, samples=200)
    assert only(outcome).completed == pytest.approx(BEGIN + 10)
    assert only(outcome).held == pytest.approx(2 * (BEGIN + 10))
    assert only(outcome).given == pytest.approx(only(outcome).held)


def test_a_checkpoint_that_training_waits_for_costs_its_time() -> None:
    outcome = play(Way.OURS, [1], max=1, checkpoint_every_seconds=100, checkpoint_seconds=2.0)
    assert only(outcome).stalled == pytest.approx(9 * 2)


def test_pods_from_before_the_day_are_not_counted_as_waiting() -> None:
    outcome = play(Way.OURS, [2], (0, 500), max=2)
    assert outcome.inference.pods == 0
    assert [size for _, size in sizes(outcome)] == [0, 1, 2]
