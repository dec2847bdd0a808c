"""What `benchmarks.operator_scale` makes of logs, watches and lists."""

from pathlib import Path

import pytest

from benchmarks.mpi_operator.measured_scale import (
    Change,
    MeasuredChange,
    MeasuredScale,
    Moment,
    Pace,
    go_seconds,
    sync_times,
)
from benchmarks.mpi_operator.scaled_job import moments, pod_moments
from benchmarks.operator_scale import change_table, start_table
from benchmarks.report.measurements import last_measured
from testbed.cluster.pod_lives import PodLife
from testbed.kube.errors import DeadlineError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1m2.5s", 62.5), ("12.25ms", 0.01225), ("803.2µs", 0.0008032), ("0s", 0.0), ("1h0m1s", 3601.0), ("95ns", 9.5e-8)],
)
def test_durations_as_go_writes_them(text: str, seconds: float) -> None:
    assert go_seconds(text) == pytest.approx(seconds)


def test_syncs_are_read_from_the_operators_log() -> None:
    log = [
        'I1123 20:58:50.000000 1 mpi_job_controller.go:556] Finished syncing job "ns/scale" (1.25s)',
        "I1123 20:58:50.000000 1 mpi_job_controller.go:534] Successfully synced 'ns/scale'",
        'I1123 20:58:51.000000 1 mpi_job_controller.go:556] Finished syncing job "ns/scale" (4.5ms)',
    ]
    assert sync_times(log) == pytest.approx([1.25, 0.0045])


def test_a_pace_is_written_as_it_is_read() -> None:
    pace = Pace.parse("50:1000")
    assert str(pace) == "50:1000"
    assert pace.flags() == [
        "-kube-api-qps=50",
        "-kube-api-burst=100",
        "-controller-queue-rate-limit=1000",
        "-controller-queue-burst=10000",
    ]
    with pytest.raises(ValueError, match="not enough values"):
        Pace.parse("50")


def test_moments_of_a_change_leave_out_what_was_before() -> None:
    old = PodLife(pod="w-0", uid="0", created=1.0, bound=1.0, running=2.0)
    left = PodLife(pod="w-1", uid="1", created=1.0, bound=1.0, running=2.0, told=11.0, gone=13.5)
    made = PodLife(pod="w-1", uid="2", created=14.0, bound=14.5, running=16.0)
    assert pod_moments([old, left, made], 10.0) == {
        Moment.CREATED: 4.0,
        Moment.BOUND: 4.5,
        Moment.RUNNING: 6.0,
        Moment.GONE: 3.5,
    }
    assert pod_moments([old], 10.0) == {}


def test_each_moment_is_when_its_probe_was_first_true() -> None:
    asked = {"early": 0, "late": 0}

    def after(name: str, times: int) -> bool:
        asked[name] += 1
        return asked[name] > times

    probes = {"early": lambda: after("early", 0), "late": lambda: after("late", 2)}
    found = moments(probes, 0.0, within_seconds=5, seen=str)
    assert 0 < found["early"] < found["late"]
    assert asked["early"] == 1, "a moment that has come is not asked for again"


def test_a_moment_that_never_comes_is_named() -> None:
    with pytest.raises(DeadlineError, match="listed"):
        moments({"listed": lambda: False}, 0.0, within_seconds=0, seen=str)


def test_what_was_measured_is_kept_by_size_and_pace(tmp_path: Path) -> None:
    slow, fast = Pace.parse("5:10"), Pace.parse("50:1000")
    changes = {
        Change.START: MeasuredChange(seconds={Moment.CREATED: 1.0, Moment.RUNNING: 2.0}, cpu={"mpi-operator": 0.5})
    }
    for workers, pace in ((512, fast), (64, fast), (64, slow)):
        MeasuredScale(workers=workers, pace=pace, changes=changes, mib={"mpi-operator": 60.0}).keep(tmp_path)
    MeasuredScale(workers=64, pace=slow, broken="not within 5 s: running").keep(tmp_path)
    found = sorted(last_measured(tmp_path, MeasuredScale.from_json).parts, key=lambda one: one.order)
    assert [(one.workers, one.pace) for one in found] == [(64, slow), (64, fast), (512, fast)]
    assert found[1].changes == changes
    table = start_table(found)
    assert "64 workers, 5:10: not within 5 s: running" in table.note
    assert [row[2] for row in table.rows] == [None, 1.0, 1.0]
    assert len(change_table(found).rows) == 3
    assert Change.ONE_LEAVES not in found[0].changes
