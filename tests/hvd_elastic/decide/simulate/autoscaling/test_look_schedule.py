"""When autoscalers look."""

from hvd_elastic.decide.simulate.autoscaling.look_schedule import LookSchedule
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from tests.hvd_elastic.decide.simulate.made_days import STALLS, day


def looks_of(cluster: ClusterDay, *again: float) -> list[float]:
    """When a look was called that returns these, and then that it need not be called."""
    called: list[float] = []

    def look(now: float) -> float:
        called.append(now)
        return again[len(called) - 1] if len(called) <= len(again) else float("inf")

    LookSchedule(cluster, [look, lambda _now: float("inf")]).begin()
    list(cluster.moments(cluster.seconds))
    return called


def happenings(*seconds: float) -> ClusterDay:
    cluster = ClusterDay(day(), STALLS)
    for second in seconds:
        cluster.at(second, lambda _now: None)
    return cluster


def test_a_look_comes_within_ten_seconds_and_a_quiet_cluster_costs_none() -> None:
    assert looks_of(happenings(3.0, 4.0, 9.9, 471.5)) == [10.0, 480.0]


def test_what_happens_as_it_looks_is_seen_at_the_next_look() -> None:
    cluster = happenings(10.0, 20.0)
    assert looks_of(cluster) == [20.0]


def test_a_look_may_ask_for_one_though_nothing_happens_and_an_earlier_one_comes_before() -> None:
    assert looks_of(happenings(3.0), 345.0) == [10.0, 350.0]
    assert looks_of(happenings(3.0, 101.0), 345.0) == [10.0, 110.0]
    assert looks_of(happenings(3.0, 101.0), 345.0, 345.0) == [10.0, 110.0, 350.0]
