"""How `benchmarks.recorded_days` plays windows of one system."""

from argparse import Namespace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from benchmarks import recorded_days
from benchmarks.recorded_days import played
from benchmarks.replay.cluster_window import NODES
from benchmarks.replay.measured_window import Measured
from benchmarks.replay.trace_window import REAL_TIME, TraceWindow
from benchmarks.systems.product import LAUNCH
from benchmarks.systems.queued import ELASTIC_KUEUE
from benchmarks.systems.system import System
from testbed.cluster.site import Site
from testbed.kube.errors import DeadlineError

SITE = Site(kubectl=None, image="", machine=None)  # type: ignore[arg-type]


def told(system: System, window: TraceWindow) -> Measured:
    return Measured(window=window.name, system=system.name, seconds=1.0, asks=[], steps=[], waits=[])


def test_in_real_time_each_node_has_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, both = set[str](), Barrier(2)

    def measure(_: Site, system: System, window: TraceWindow, *__: Any, node: str) -> Measured:
        nodes.add(node)
        both.wait(timeout=60)
        return told(system, window)

    monkeypatch.setattr(recorded_days, "measure", measure)
    found = played(SITE, LAUNCH, REAL_TIME, Namespace(real_time=True, seconds=1.0), [])
    assert [one.window for one in found] == [window.name for window in REAL_TIME]
    assert nodes == {*NODES}


@pytest.mark.parametrize(("system", "real_time"), [(LAUNCH, False), (ELASTIC_KUEUE, True)])
def test_else_one_is_played_after_the_other(
    system: System, real_time: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = tmp_path / "running"

    def measure(_: Site, system: System, window: TraceWindow, *__: Any, node: str) -> Measured:
        running.touch(exist_ok=False)
        assert node == NODES[0]
        running.unlink()
        return told(system, window)

    monkeypatch.setattr(recorded_days, "measure", measure)
    assert len(played(SITE, system, REAL_TIME, Namespace(real_time=real_time, seconds=1.0), [])) == len(REAL_TIME)


def test_what_does_not_come_to_train_is_said_and_the_next_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(_: Site, system: System, window: TraceWindow, *__: Any, **___: Any) -> Measured:
        if window is REAL_TIME[0]:
            raise DeadlineError("it never trained")
        return told(system, window)

    broken: list[str] = []
    monkeypatch.setattr(recorded_days, "measure", measure)
    found = played(SITE, LAUNCH, REAL_TIME, Namespace(real_time=False, seconds=1.0), broken)
    assert [one.window for one in found] == [window.name for window in REAL_TIME[1:]]
    assert broken == [f"{REAL_TIME[0].name}, {LAUNCH.name}: it never trained"]
