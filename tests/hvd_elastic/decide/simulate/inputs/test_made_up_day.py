"""A day made up from a seed keeps what docs/simulate.md says of it."""

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.day import InferencePod
from hvd_elastic.decide.simulate.inputs.made_up_day import MadeUpCluster, inference_share, made_up_day
from hvd_elastic.mpijob.problems import InvalidInputError

QUIET = MadeUpCluster(bursts=0)


def running(pods: Iterable[InferencePod], second: float) -> int:
    return sum(pod.created <= second < pod.created + pod.seconds for pod in pods)


def test_the_same_seed_gives_the_same_day() -> None:
    first, again, other = (made_up_day(seed, MadeUpCluster()) for seed in (7, 7, 8))
    assert list(first.pods) == list(again.pods) != list(other.pods)
    assert list(first.nodes) == list(again.nodes) != list(other.nodes)


def test_a_longer_day_begins_as_the_shorter_one() -> None:
    day, days = (made_up_day(7, MadeUpCluster(hours=hours)) for hours in (24, 72))
    for short, long in (([pod.created for pod in day.pods], [pod.created for pod in days.pods]),
                        ([node.since for node in day.nodes], [node.since for node in days.nodes])):  # fmt: skip
        assert len(short) < len(long)
        assert long[: len(short)] == short


def test_a_year_is_read_in_the_room_of_a_day() -> None:
    def read(days: int) -> int:
        """Bytes that are held at most."""
        made = made_up_day(1, MadeUpCluster(hours=24.0 * days))
        tracemalloc.start()
        try:
            assert sum(1 for _ in made.pods) + sum(1 for _ in made.nodes) > 100 * days
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert read(60) < 2 * read(2), "thirty times the days"


def test_inference_follows_the_hour() -> None:
    day = made_up_day(0, QUIET)
    for hour in (1, 4, 10, 16, 22):
        wanted = inference_share(hour, QUIET) * QUIET.fixed_gpus
        assert running(day.pods, hour * 3600) == pytest.approx(wanted, abs=1.5)
    assert inference_share(4, QUIET) == pytest.approx(0.3)
    assert inference_share(16, QUIET) == pytest.approx(0.7)


def test_bursts_ask_for_several_gpus_in_one_second() -> None:
    burst = [pod for pod in made_up_day(0, MadeUpCluster()).pods if pod.name.startswith("burst-")]
    at_once = [sum(pod.created == moment for pod in burst) for moment in {pod.created for pod in burst}]
    assert len(at_once) > 5
    assert max(at_once) > 5


@given(st.integers(0, 10_000), st.integers(1, 6), st.data())
def test_inference_fits_on_the_nodes_that_stay(seed: int, nodes: int, data: st.DataObject) -> None:
    cluster = MadeUpCluster(nodes=nodes, spot_nodes=data.draw(st.integers(0, nodes)), hours=6, bursts=48)
    pods = list(made_up_day(seed, cluster).pods)
    assert [pod.created for pod in pods] == sorted(pod.created for pod in pods)
    assert all(running(pods, pod.created) <= cluster.fixed_gpus for pod in pods)
    assert len({pod.name for pod in pods}) == len(pods)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_a_spot_node_is_there_once_at_a_time(seed: int, spot: int) -> None:
    day = made_up_day(seed, MadeUpCluster(nodes=spot, spot_nodes=spot))
    nodes = list(day.nodes)
    assert len({node.name for node in nodes}) == len(nodes)
    assert [node.since for node in nodes] == sorted(node.since for node in nodes)
    assert all(node.since < node.until and node.since < day.seconds for node in nodes)
    for node in nodes:
        there = sum(other.since <= node.since < other.until for other in nodes)
        assert there <= spot


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (MadeUpCluster(nodes=2, spot_nodes=3), "--spot-nodes: 3: is more than --nodes: 2"),
        (MadeUpCluster(quiet=0.8, busy=0.2), "--inference: '0.8:0.2'"),
        (MadeUpCluster(quiet=0.8, busy=1.2), "--inference: '0.8:1.2'"),
    ],
)
def test_a_cluster_that_cannot_be_is_bad_input(cluster: MadeUpCluster, said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        made_up_day(0, cluster)
    assert said in str(raised.value)
