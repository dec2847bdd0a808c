"""What a slow node costs each way, by hand: 10 samples a second and worker; and what a replacement wins."""

import pytest

from hvd_elastic.decide.simulate.day import NodeLife
from hvd_elastic.decide.simulate.inputs.slow_nodes import with_slow_nodes
from hvd_elastic.decide.simulate.outcome import JobOutcome
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.workload import Way
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.hvd_elastic.decide.simulate.made_days import STALLS, day, job

SECONDS = 2000.0
SLOW = NodeLife(name="slow", gpus=1, slow_since=100.0, slow_times=2.0)
BEGIN = STALLS.pod_start + STALLS.first_step
FAST = 20 * (SLOW.slow_since - BEGIN)
"""Samples of two workers before the node is slow."""
TOLD = 450.0
"""It is named 45 s after 100, and replaced five minutes later: at the next look, each 30 s."""
LEFT = TOLD + STALLS.shrink
SUCCEEDED = TOLD + STALLS.gpu_free + STALLS.pod_start
GROWN = SUCCEEDED + STALLS.grow


def play(
    way: Way = Way.OURS, nodes: tuple[int | NodeLife, ...] = (SLOW, 1, 1), *, excludes: bool = False, **fields: object
) -> JobOutcome:
    task = job("job", **{"start": 2, "max": 2, **fields})
    (found,) = simulate(day(nodes=nodes, seconds=SECONDS), (task,), way, STALLS, excludes_slow=excludes).jobs
    return found


@pytest.mark.parametrize("way", [way for way in Way if way is not Way.ORACLE])
def test_all_wait_for_the_slowest(way: Way) -> None:
    outcome = play(way)
    assert outcome.samples == pytest.approx(FAST + 10 * (SECONDS - SLOW.slow_since))
    assert outcome.stalled == pytest.approx(SECONDS - SLOW.slow_since), "half of the time of two"
    assert outcome.useful + outcome.stalled + outcome.starting == pytest.approx(outcome.held)
    assert outcome.resizes == 0


@pytest.mark.parametrize("way", [Way.STATIC, Way.STOCK, Way.RESTART])
def test_other_ways_replace_nobody(way: Way) -> None:
    assert play(way, replaces_slow=True, excludes=True) == play(way)


def test_a_successor_on_another_node_is_as_fast_as_all() -> None:
    outcome = play(replaces_slow=True, excludes=True)
    alone = 10 * (TOLD - SLOW.slow_since) + 10 * (SUCCEEDED - LEFT)
    assert outcome.samples == pytest.approx(FAST + alone + 20 * (SECONDS - GROWN))
    assert outcome.resizes == 2


def test_a_successor_on_the_same_node_is_as_slow_and_stays() -> None:
    """Of nodes with the same room the first is taken."""
    outcome = play(replaces_slow=True)
    alone = 10 * (TOLD - SLOW.slow_since) + 10 * (SUCCEEDED - LEFT)
    assert outcome.samples == pytest.approx(FAST + alone + 10 * (SECONDS - GROWN))
    assert outcome.resizes == 2


def test_a_successor_that_has_no_other_node_waits() -> None:
    outcome = play(nodes=(SLOW, 1), replaces_slow=True, excludes=True)
    alone = 10 * (TOLD - SLOW.slow_since) + 10 * (SECONDS - LEFT)
    assert outcome.samples == pytest.approx(FAST + alone)
    assert [change.workers for change in outcome.sizes.changes()] == [0, 2, 1]


def test_nobody_is_replaced_whom_training_needs() -> None:
    assert play(min=2, replaces_slow=True, excludes=True) == play(min=2)


def test_a_job_on_a_slow_node_ends_later() -> None:
    assert play(samples=FAST + 500).completed == pytest.approx(SLOW.slow_since + 50)


def test_nodes_are_named_on_the_command_line() -> None:
    slowed = with_slow_nodes(day(nodes=[1, 1]), ["node-1=2h:1.8"])
    assert [(node.slow_since, node.slow_times) for node in slowed.nodes] == [(float("inf"), 1.0), (7200.0, 1.8)]
    with pytest.raises(InvalidInputError) as caught:
        with_slow_nodes(day(nodes=[1]), ["node-0=2h", "node-0=x:1.8", "node-0=2h:0.5", "node-7=0:2"])
    assert len(caught.value.problems) == 4
    assert "node-7" in str(caught.value)
