"""Traces in the formats in which their projects publish them, and files that are none."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hvd_elastic.decide.simulate.traces.conversion import FORMATS, convert
from hvd_elastic.decide.simulate.traces.recorded_trace import RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_file import read_traces
from hvd_elastic.mpijob.problems import InvalidInputError

Converted = Callable[..., tuple[RecordedTrace, ...]]
PAGE = Path(__file__).parents[5] / "docs" / "simulate.md"


@pytest.fixture
def converted(tmp_path: Path) -> Converted:
    def from_text(text: str, name: str = "t.csv") -> tuple[RecordedTrace, ...]:
        given, made = tmp_path / name, tmp_path / "new.csv"
        given.write_text(text)
        made.write_text(convert(given))
        return read_traces(made)

    return from_text


PARCAE = """[0, "add", {"nodes": ["n0", "n1", "n2"], "duration": 60000, "throughput_opt_strategy": [8, 4]}]
[60000, "no-op", {"nodes": [], "duration": 60000}]
[120000, "migration", {"nodes": [], "duration": 60000}]
[180000, "remove", {"nodes": ["n0", "n2"], "duration": 60000}]
"""
SAME_DAY = {
    "named nodes": "trace,t_s,op,node,nodes_after\na,0.0,add,x,1\na,0,add,y,2\na,0,add,z,3\na,180,remove,y,2\n"
    "a,180,remove,x,1\n",
    "counted nodes": "trace,t_s,op,nodes,nodes_after\na,0,add,3,3\na,60,no-op,0,3\n"
    "a,120,migration,0,3\na,180,remove,2,1\n",
    "SkyPilot's JSON": '{"metadata": {"gap_seconds": 60}, "data": [3, 3, 3, 1]}',
    "Parcae's events": PARCAE,
    "Bamboo's events": "0,add,x\n0,add,y\n\n0,add,z\n180000,remove,y\n180000,remove,z\n",
    "Bamboo's numbers by date": "2021-12-11, 23:58:00, 3\n2021-12-12, 00:01:00, 1\n",
    "Bamboo's numbers by timestamp": "timestamp,count\n2021-07-26T23:58:00Z,3\n2021-07-27T00:01:00Z,1\n",
    "Parcae's numbers": "0,1\n0,2\n0,3\n180000,2\n180000,1\n",
}


@pytest.mark.parametrize("title", SAME_DAY)
def test_every_format_of_nodes_tells_the_same_day(converted: Converted, title: str) -> None:
    (trace,) = converted(SAME_DAY[title])
    found = [sum(node.since <= second < node.until for node in trace.nodes) for second in (0, 60, 179, 180)]
    assert found == [3, 3, 3, 1]
    assert trace.seconds >= 180
    assert len({node.name for node in trace.nodes}) == len(trace.nodes) == 3


def test_a_trace_without_a_name_has_the_files(converted: Converted) -> None:
    (trace,) = converted(PARCAE, "trace, hh.txt")
    assert (trace.name, trace.seconds) == ("trace, hh", 240)


def test_pods_without_a_gpu_are_left_out_of_alibabas(converted: Converted) -> None:
    header = (
        "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time"
    )
    gpu = "i_1,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,5.0,6.0,16.0"
    stays = "i_2,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,NaN,NaN,"
    cpu = "i_3,CN,app_0,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,,,"
    (trace,) = converted(f"{header}\n{gpu}\n{stays}\n{cpu}\n")
    assert [(pod.name, pod.created, pod.seconds) for pod in trace.pods] == [("i_2", 0, float("inf")), ("i_1", 5, 10)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("submit_s,duration_s\n1,2\n", ":1: 'submit_s,duration_s': begins no trace that SkyPilot, Bamboo, Parcae"),
        ("", ":1: '': begins no trace"),
        ("0,add,x\n5,remove,y\n", ":2: '5,remove,y': cannot be converted: cannot remove y"),
        ("0,add,x\n\n5,add,x\n", ":3: '5,add,x': cannot be converted: cannot add x"),
        ("0,add,x\n5,sell,x\n", ":2: '5,sell,x': cannot be converted"),
        ("trace,t_s,op,node,nodes_after\na,0,add,x\n", ":2: 'a,0,add,x': cannot be converted"),
        ('{"data": []}', ":1: '{\"data\": []}': cannot be converted"),
        ('[1, 2]\n[1, "add", 3]\n', ":1: '[1, 2]': cannot be converted"),
        ('[1, "add", 3]\n', ":1: '[1, \"add\", 3]': cannot be converted"),
        pytest.param("[" * 100_000, ": cannot be converted: maximum recursion depth", id="deep"),
        ('{"metadata": {"gap_seconds": 1e400}, "data": [1, 2]}', "cannot be converted: a number is not finite"),
        ('{"metadata": {"gap_seconds": 1}, "data": [1, 1e400]}', "cannot be converted: cannot convert float infinity"),
        ("2021-13-11, 11:11:30, 55\n", ":1: '2021-13-11, 11:11:30, 55': cannot be converted"),
    ],
)
def test_a_file_that_cannot_be_converted_is_one_error_with_its_line(converted: Converted, text: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        converted(text)
    assert said in str(raised.value)


def test_the_page_has_a_row_for_every_format() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| first line |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
    for pattern in FORMATS:
        assert any(re.fullmatch(pattern, line) for line in shown), pattern
    for line in shown:
        assert any(re.fullmatch(pattern, line) for pattern in FORMATS), line
