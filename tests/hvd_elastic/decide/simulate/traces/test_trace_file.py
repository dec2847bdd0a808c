"""Traces in the formats in which their projects publish them, and files that are none."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.traces.capacity_steps import node_count_trace
from hvd_elastic.decide.simulate.traces.inference_pods import ALIBABA_COLUMNS
from hvd_elastic.decide.simulate.traces.recorded_trace import RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_file import TraceFile, read_traces
from hvd_elastic.mpijob.problems import InvalidInputError

Read = Callable[..., TraceFile]


def there(trace: RecordedTrace, second: float) -> int:
    return sum(node.since <= second < node.until for node in trace.nodes)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def from_text(text: str, name: str = "t.csv") -> TraceFile:
        path = tmp_path / name
        path.write_text(text)
        return read_traces(path)

    return from_text


PARCAE = """[0, "add", {"nodes": ["n0", "n1", "n2"], "duration": 60000, "throughput_opt_strategy": [8, 4]}]
[60000, "no-op", {"nodes": [], "duration": 60000}]
[120000, "migration", {"nodes": [], "duration": 60000}]
[180000, "remove", {"nodes": ["n0", "n2"], "duration": 60000}]
"""
SAME_DAY = {
    "numbers of nodes": "trace,t_s,available\na,0,3\na,180,1\na,240,1\n",
    "named nodes": "trace,t_s,op,node,nodes_after\na,0.0,add,x,1\na,0,add,y,2\na,0,add,z,3\na,180,remove,y,2\n"
    "a,180,remove,x,1\n",
    "nodes that come and go, counted": "trace,t_s,op,nodes,nodes_after\na,0,add,3,3\na,60,no-op,0,3\n"
    "a,120,migration,0,3\na,180,remove,2,1\n",
    "SkyPilot's JSON": '{"metadata": {"gap_seconds": 60}, "data": [3, 3, 3, 1]}',
    "Parcae's events": PARCAE,
    "Bamboo's events": "0,add,x\n0,add,y\n0,add,z\n180000,remove,y\n180000,remove,z\n",
    "Bamboo's numbers by date": "2021-12-11, 23:58:00, 3\n2021-12-12, 00:01:00, 1\n",
    "Bamboo's numbers by timestamp": "timestamp,count\n2021-07-26T23:58:00Z,3\n2021-07-27T00:01:00Z,1\n",
    "Parcae's numbers": "0,1\n0,2\n0,3\n180000,2\n180000,1\n",
}


@pytest.mark.parametrize("title", SAME_DAY)
def test_every_format_of_nodes_tells_the_same_day(read: Read, title: str) -> None:
    file = read(SAME_DAY[title])
    assert file.format.title == title
    (trace,) = file.traces
    assert [there(trace, second) for second in (0, 60, 179, 180)] == [3, 3, 3, 1]
    assert trace.seconds >= 180
    assert len({node.name for node in trace.nodes}) == len(trace.nodes) == 3


def test_a_trace_without_a_name_has_the_files(read: Read) -> None:
    assert [trace.name for trace in read(PARCAE, "trace_hh.txt").traces] == ["trace_hh"]


def test_a_file_may_hold_several_traces(read: Read) -> None:
    file = read("trace,t_s,available\na,0,3\nb,0,1\na,60,1\nb,30,0\n")
    assert [(trace.name, trace.seconds) for trace in file.traces] == [("a", 60), ("b", 30)]


def test_a_node_that_comes_again_is_another_one(read: Read) -> None:
    (trace,) = read("0,add,x\n1000,remove,x\n2000,add,x\n").traces
    assert [(node.name, node.since, node.until) for node in trace.nodes] == [("x", 0, 1), ("x-2", 2, float("inf"))]


PODS = "pod,app,gpus,created_s,scheduled_s,deleted_s\n"


def test_pods_run_from_their_scheduling_on(read: Read) -> None:
    (trace,) = read(f"{PODS}late,a,2,100,130,190\nbefore,a,1,,,50\nstays,a,1,20,20,\n").traces
    assert [(pod.name, pod.gpus, pod.created, pod.seconds) for pod in trace.pods] == [
        ("before", 1, 0, 50),
        ("stays", 1, 20, float("inf")),
        ("late", 2, 100, 60),
    ]


def test_alibabas_own_columns_are_read_and_pods_without_a_gpu_left_out(read: Read) -> None:
    gpu = "i_1,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,5.0,6.0,16.0"
    cpu = "i_2,CN,app_0,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,,,"
    file = read(f"{','.join(ALIBABA_COLUMNS)}\n{gpu}\n{cpu}\n")
    assert [(pod.name, pod.created, pod.seconds) for pod in file.traces[0].pods] == [("i_1", 5, 10)]


WRONG = {
    "an unknown header": ("submit_s,duration_s\n1,2\n", [":1: 'submit_s,duration_s': begins no known trace"]),
    "nothing": ("", ["begins no known trace"]),
    "only a header": ("trace,t_s,available\n", ["has no node and no pod in it"]),
    "every wrong line": (
        "trace,t_s,available\na,0,3\na,x,2\na,5,-1\na,6,1.5\na,7\na,4,2\na,3,2\n",
        [
            *(":3: 'x': is not a time from 0 on", ":4: '-1'", ":5: '1.5': is not a whole number"),
            *(":6: 'a,7': has 2 fields", ":8: 3.0: comes before the line above it, at 4"),
        ],
    ),
    "a node that was never there": ("0,add,x\n5,remove,y\n", [":2: 'y': cannot remove: it is not there"]),
    "a node that is there": ("0,add,x\n5,add,x\n", [":2: 'x': is there already"]),
    "a sum that is not right": (
        "trace,t_s,op,node,nodes_after\na,0,add,x,2\n",
        [":2: 2: is not how many are there then: 1"],
    ),
    "a change that is not right": (
        "trace,t_s,op,nodes,nodes_after\na,0,add,3,3\na,5,remove,1,1\n",
        [":3: 1: is not how many are there after remove 1, with 3 before"],
    ),
    "an unknown act": ("trace,t_s,op,nodes,nodes_after\na,0,sell,3,3\n", [":2: 'sell': is not known: write add, "]),
    "a pod that ends before it is there": (f"{PODS}p,a,1,9,10,5\n", [":2: 5.0: is before it was there, at 10"]),
    "JSON of something else": ('{"data": []}', ["is not SkyPilot's JSON"]),
    "events of something else": ("[1, 2]\n", [":1: '[1, 2]': is not an event of Parcae"]),
    "a date that is none": ("2021-13-11, 11:11:30, 55\n", [":1: '2021-13-11 11:11:30': is not a date and a time"]),
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
    with pytest.raises(InvalidInputError, match="80 more lines are wrong") as raised:
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
