"""What is timed, what is not, and what comes of it, in a world of threads."""

import csv
import io
from collections.abc import Callable, Iterator
from itertools import count
from xml.etree import ElementTree

import pytest

from hvd_elastic.client.bench.allreduce.allreduce_measurement import AllreduceRow, WrongSumError, measure
from hvd_elastic.client.bench.allreduce.allreduce_report import allreduce_csv, allreduce_document, allreduce_picture
from hvd_elastic.client.bench.allreduce.allreduce_world import WorldError, WorldFacts
from tests.hvd_elastic.client.bench.allreduce.thread_world import Meeting, ThreadWorld, in_each_rank

FACTS = WorldFacts(library="horovod", backend="gloo", device="cpu", ranks=4, nodes=2)
ROWS = [
    AllreduceRow(size=2**20, ranks=4, seconds=(0.004, 0.001, 0.002)),
    AllreduceRow(size=2**21, ranks=4, seconds=(0.004, 0.004, 0.005)),
]


def ticking(step: float) -> Callable[[], float]:
    """A clock that goes on by `step` whenever it is read."""
    ticks: Iterator[int] = count()
    return lambda: next(ticks) * step


def test_the_slowest_rank_counts_in_every_iteration() -> None:
    def work(world: ThreadWorld) -> list[AllreduceRow]:
        return list(measure(world, [8, 16], warm_up=3, iterations=4, clock=ticking(float(world.rank + 1))))

    found = in_each_rank(Meeting(3), work)
    assert found[0] == [AllreduceRow(size=size, ranks=3, seconds=(3.0,) * 4) for size in (8, 16)]
    assert found[1] == found[2] == found[0]


def test_a_barrier_is_before_each_timed_all_reduce_and_no_other() -> None:
    def work(world: ThreadWorld) -> list[str]:
        list(measure(world, [8], warm_up=2, iterations=3, clock=ticking(1.0)))
        return world.said

    checked, warm_up, timed = ["allreduce"], ["allreduce"] * 2, ["barrier", "allreduce"] * 3
    assert in_each_rank(Meeting(2), work) == [["message 8", *checked, *warm_up, *timed]] * 2


def test_a_wrong_sum_in_one_rank_is_an_error_in_all() -> None:
    def work(world: ThreadWorld) -> str:
        with pytest.raises(WrongSumError) as caught:
            list(measure(world, [8], warm_up=0, iterations=1, clock=ticking(1.0)))
        return str(caught.value)

    assert (
        in_each_rank(Meeting(2, error=0.5), work) == ["an all-reduce of 8 bytes over 2 ranks returned a wrong sum"] * 2
    )


def test_one_rank_is_no_world() -> None:
    with pytest.raises(WorldError, match="horovodrun -np 2"):
        list(measure(ThreadWorld(Meeting(1), 0), [8], warm_up=0, iterations=1, clock=ticking(1.0)))


def test_bandwidths_are_of_the_median() -> None:
    first, _ = allreduce_document(FACTS, ROWS, warm_up=5, iterations=3)["sizes"]
    assert (first["min_seconds"], first["median_seconds"], first["max_seconds"]) == (0.001, 0.002, 0.004)
    assert first["algorithm_gb_per_second"] == pytest.approx(2**20 / 0.002 / 1e9)
    assert first["bus_gb_per_second"] == pytest.approx(1.5 * 2**20 / 0.002 / 1e9)


def test_each_line_of_the_csv_names_its_world() -> None:
    rows = list(csv.DictReader(io.StringIO(allreduce_csv(FACTS, ROWS))))
    assert [row["bytes"] for row in rows] == ["1048576", "2097152"]
    assert {(row["library"], row["backend"], row["ranks"], row["nodes"]) for row in rows} == {
        ("horovod", "gloo", "4", "2")
    }


def test_the_picture_has_a_dot_for_each_size_and_bandwidth() -> None:
    svg = ElementTree.fromstring(allreduce_picture(FACTS, ROWS))
    assert len(svg.findall("{*}circle")) == 4
    words = {text.text for text in svg.findall("{*}text")}
    assert {"bus bandwidth", "algorithm bandwidth", "1Mi", "2Mi", "0.1", "1"} <= words
