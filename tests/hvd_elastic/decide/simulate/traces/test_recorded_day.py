"""Which hours of which trace become a day, and what is not in a trace."""

from pathlib import Path

import pytest

from hvd_elastic.decide.simulate.traces.recorded_day import NodeKind, TraceChoice, recorded_day
from hvd_elastic.mpijob.problems import InvalidInputError

NODES = "trace,t_s,available\na,0,2\na,7200,1\na,9000,3\na,14400,3\nb,0,1\nb,3600,1\n"
PODS = (
    "pod,app,gpus,created_s,scheduled_s,deleted_s\nbefore,a,1,,,5400\nwithin,a,2,4000,4010,4110\nafter,a,1,9000,9000,\n"
)


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    path = tmp_path / "nodes.csv"
    path.write_text(NODES)
    return path


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    path = tmp_path / "pods.csv"
    path.write_text(PODS)
    return path


def test_a_window_begins_at_zero_and_keeps_the_end_of_its_nodes(nodes: Path) -> None:
    choice = TraceChoice(names=("a",), begins=3600, seconds=3600)
    day = recorded_day([nodes], choice, NodeKind(gpus=8, machine="p3.16xlarge", notice_seconds=120))
    assert day.seconds == 3600
    assert sorted((node.since, node.until) for node in day.nodes) == [(0, 3600), (0, float("inf"))]
    assert {(node.gpus, node.machine, node.notice_seconds, node.spot) for node in day.nodes} == {
        (8, "p3.16xlarge", 120, True)
    }
    assert "nodes.csv a (numbers of nodes); from hour 1" in day.source


def test_a_day_ends_with_its_trace(nodes: Path) -> None:
    assert recorded_day([nodes], TraceChoice(names=("a",)), NodeKind()).seconds == 14400


def test_inference_asks_for_the_gpus_of_nodes_that_are_always_there(pods: Path) -> None:
    day = recorded_day([pods], TraceChoice(begins=3600, seconds=3600, nodes=3), NodeKind(gpus=4))
    assert [(node.gpus, node.since, node.until, node.spot) for node in day.nodes] == [(4, 0, float("inf"), False)] * 3
    assert [(pod.name, pod.created, pod.seconds) for pod in day.pods] == [("before", 0, 1800), ("within", 400, 100)]


def test_nodes_of_one_trace_and_pods_of_another_make_a_day(nodes: Path, pods: Path) -> None:
    day = recorded_day([nodes, pods], TraceChoice(names=("a",), seconds=7200), NodeKind())
    assert len(list(day.nodes)) == 2
    assert len(list(day.pods)) == 2
    assert day.seconds == 7200


@pytest.mark.parametrize(
    ("files", "choice", "said"),
    [
        (["nodes"], TraceChoice(), "--trace-name: 'nodes.csv': has several traces: choose one of a (4 h), b (1 h)"),
        (["nodes"], TraceChoice(names=("c",)), "names none of these traces"),
        (["pods"], TraceChoice(), "inference asks for up to 3 GPUs at once: --nodes 3 holds them"),
        (["nodes"], TraceChoice(names=("b",), begins=3600), "is after the end of b: it has 1.0 hours"),
        (["pods", "pods"], TraceChoice(nodes=1), "are several traces of inference pods"),
    ],
)
def test_a_choice_that_cannot_be_made_is_bad_input(
    request: pytest.FixtureRequest, files: list[str], choice: TraceChoice, said: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        recorded_day([request.getfixturevalue(file) for file in files], choice, NodeKind())
    assert said in str(raised.value)
