"""The CSV files of recorded traces, and files that are none."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.traces.recorded_trace import RecordedTrace, node_count_trace
from hvd_elastic.decide.simulate.traces.trace_file import read_traces
from hvd_elastic.mpijob.problems import InvalidInputError

Read = Callable[..., tuple[RecordedTrace, ...]]


def there(trace: RecordedTrace, second: float) -> int:
    return sum(node.since <= second < node.until for node in trace.nodes)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def from_text(text: str, name: str = "t.csv") -> tuple[RecordedTrace, ...]:
        path = tmp_path / name
        path.write_text(text)
        return read_traces(path)

    return from_text


def test_numbers_of_nodes_become_nodes(read: Read) -> None:
    (trace,) = read("trace,t_s,available\na,0,3\na,180,1\na,240,1\n")
    assert [there(trace, second) for second in (0, 60, 179, 180)] == [3, 3, 3, 1]
    assert (trace.name, trace.seconds) == ("a", 240)
    assert len({node.name for node in trace.nodes}) == len(trace.nodes) == 3


def test_a_node_that_comes_as_another_goes_is_another_one(read: Read) -> None:
    (trace,) = read("trace,t_s,available\na,0,1\na,60,0\na,60,1\na,90,1\n")
    assert [(node.since, node.until) for node in trace.nodes] == [(0, 60), (60, float("inf"))]


def test_a_file_may_hold_several_traces(read: Read) -> None:
    traces = read("trace,t_s,available\na,0,3\nb,0,1\na,60,1\nb,30,0\n")
    assert [(trace.name, trace.seconds) for trace in traces] == [("a", 60), ("b", 30)]


def test_columns_are_told_by_their_names(read: Read) -> None:
    (trace,) = read('t_s, zone, available, trace\n0, z, 2, "a, b"\n\n60, z, 2, "a, b"\n')
    assert (trace.name, trace.seconds, len(trace.nodes)) == ("a, b", 60, 2)


PODS = "pod,gpus,created_s,scheduled_s,deleted_s\n"


def test_pods_run_from_their_scheduling_on(read: Read) -> None:
    (trace,) = read(f"{PODS}late,2,100,130,190\nbefore,1,,,50\nstays,1,20,20,\nno-gpu,0,1,1,2\n", "pods.csv")
    assert trace.name == "pods"
    assert [(pod.name, pod.gpus, pod.created, pod.seconds) for pod in trace.pods] == [
        ("before", 1, 0, 50),
        ("stays", 1, 20, float("inf")),
        ("late", 2, 100, 60),
    ]


NEW_WAY = "hvd-elastic simulate --convert t.csv > NEW.csv"
WRONG = {
    "an unknown header": ("submit_s,duration_s\n1,2\n", [":1: 'submit_s,duration_s': begins no trace", NEW_WAY]),
    "an earlier format": ("trace,t_s,op,node,nodes_after\na,0,add,x,1\n", ["begins no trace", NEW_WAY]),
    "another's format": ('{"metadata": {"gap_seconds": 60}, "data": [3, 1]}', ["begins no trace", NEW_WAY]),
    "nothing": ("", ["begins no trace"]),
    "a quotation without end": ("trace,t_s,available\n" + '"' + "x" * 200_000, [":2: is not CSV"]),
    "only a header": ("trace,t_s,available\n", ["has no node and no pod in it"]),
    "every wrong line": (
        "trace,t_s,available\na,0,3\na,x,2\na,5,-1\na,6,1.5\na,7\na,4,2\na,3,2\n",
        [
            *(":3: 'x': is not a time from 0 on", ":4: '-1'", ":5: '1.5': is not a whole number"),
            *(":6: 'a,7': has 2 fields", ":8: 3.0: comes before the line above it, at 4"),
        ],
    ),
    "more nodes than any cluster has": (
        "trace,t_s,available\na,0,1\na,10,300000000\n",
        [":3: '300000000': is not a whole number of nodes up to 100000"],
    ),
    "nodes that come and go without end": (
        "trace,t_s,available\n" + "a,0,60000\na,1,0\n" + "a,2,60000\na,3,0\n",
        [":4: 60000: is where more than 100000 nodes have come"],
    ),
    "a pod with more GPUs than there are": (f"{PODS}p,1e300,0,0,5\n", [":2: '1e300': is not a whole number of GPUs"]),
    "a time without end": ("trace,t_s,available\na,1e400,1\n", [":2: '1e400': is not a time from 0 on"]),
    "a pod that ends before it is there": (f"{PODS}p,1,9,10,5\n", [":2: 5.0: is before it was there, at 10"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_bad_file_is_one_error_with_its_lines(read: Read, case: str) -> None:
    text, said = WRONG[case]
    with pytest.raises(InvalidInputError) as raised:
        read(text)
    for words in said:
        assert words in str(raised.value)
    if case == "every wrong line":
        assert len(raised.value.problems) == len(said)


def test_a_file_that_is_all_wrong_is_not_printed_whole(read: Read) -> None:
    with pytest.raises(InvalidInputError, match="is wrong in 80 more lines") as raised:
        read("trace,t_s,available\n" + "a,x,1\n" * 100)
    assert len(raised.value.problems) == 21


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read: No such file"):
        read_traces(tmp_path / "none.csv")


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 12)), min_size=1, max_size=30))
def test_as_many_nodes_are_there_as_were_counted(steps: list[tuple[int, int]]) -> None:
    second, counts = 0, []
    for wait, count in steps:
        counts.append((float(second), count))
        second += wait
    counts.append((float(second), counts[-1][1]))
    trace = node_count_trace("any", counts)
    for (since, count), (until, _) in pairwise(counts):
        assert there(trace, since) == there(trace, (since + until) / 2) == count
    assert trace == node_count_trace("any", counts)
    assert [node.since for node in trace.nodes] == sorted(node.since for node in trace.nodes)
