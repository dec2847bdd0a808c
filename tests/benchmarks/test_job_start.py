"""What `benchmarks.job_start` makes of what it is told: the moments of a start, of the last worker each."""

import pytest

from benchmarks.start.start_moments import Said, StartedPod, StartMoment, medians, moments, steps_between
from testbed.cluster.timeline import Sighting

APPLIED = 100.0


def sighting(time: float, *, node: str = "", ready: bool = False) -> Sighting:
    return Sighting(
        time=time,
        change="MODIFIED",
        pod="w",
        uid="u",
        phase="",
        ready=ready,
        leaving=False,
        disrupted="",
        node=node,
    )


def worker(later: float = 0.0) -> StartedPod:
    """A worker of the product, as it was seen; each of its own moments comes so much later."""
    seen = (
        sighting(100.4 + later),
        sighting(100.5 + later, node="spot"),
        sighting(103.0 + later, node="n", ready=True),
    )
    said = ((102.5 + later, "slot 0: standby 7 waits"), (103.5 + later, "slot 0: process 7 trains"))
    return StartedPod(sightings=seen, processes=((1, 101.0 + later, "worker"), (9, 101.1, "standby")), said=said)


def lists(*told: tuple[float, int]) -> Said:
    return [(at, f"change_log: generation {n} to {n + 1}: {hosts} hosts, ok;") for n, (at, hosts) in enumerate(told)]


def test_each_moment_is_the_last_workers() -> None:
    found = moments(
        applied=APPLIED,
        workers=(worker(), worker(later=0.25)),
        launcher=StartedPod(sightings=(), processes=((1, 102.0, "launch"),)),
        stored=100.3,
        sidecar=lists((102.0, 0), (103.2, 1), (103.3, 2)),
        joined=(104.0, 104.2, 120.0),
        stepped=104.5,
    )
    assert found == pytest.approx(
        {
            StartMoment.STORED: 0.3,
            StartMoment.CREATED: 0.65,
            StartMoment.SCHEDULED: 0.75,
            StartMoment.STARTED: 1.25,
            StartMoment.LAUNCHING: 2.0,
            StartMoment.IMPORTED: 2.75,
            StartMoment.READY: 3.25,
            StartMoment.LISTED: 3.3,
            StartMoment.TAKEN: 3.75,
            StartMoment.FORMED: 4.2,
            StartMoment.STEPPED: 4.5,
        }
    )
    assert list(found) == [moment for moment in StartMoment if moment in found], "in their own order"


def test_what_nobody_has_told_is_left_out() -> None:
    silent = StartedPod(sightings=(sighting(100.4),), processes=())
    found = moments(applied=APPLIED, workers=(worker(), silent))
    assert list(found) == [StartMoment.CREATED]


def test_a_list_that_is_logged_after_its_workers_were_taken_tells_nothing() -> None:
    assert StartMoment.LISTED not in moments(applied=APPLIED, workers=(worker(),), sidecar=lists((105.0, 1)))


def test_a_launcher_that_starts_processes_is_seen_by_them() -> None:
    processes = ((1, 101.0, "sshd"), (30, 109.0, "python stock.py"), (29, 108.0, "sh -c python stock.py"))
    pod = StartedPod(sightings=(), processes=processes, program="stock.py")
    assert pod.first(StartMoment.TAKEN) == 108.0


def test_a_moment_takes_from_the_one_before_it_in_time() -> None:
    seconds = {StartMoment.CREATED: 0.5, StartMoment.LAUNCHING: 3.0, StartMoment.IMPORTED: 2.0}
    expected = {StartMoment.CREATED: 0.5, StartMoment.IMPORTED: 1.5, StartMoment.LAUNCHING: 1.0}
    assert steps_between(seconds) == expected


def test_a_median_is_of_moments_that_each_start_has() -> None:
    starts = [
        {StartMoment.CREATED: 1.0, StartMoment.READY: 9.0},
        {StartMoment.CREATED: 3.0},
        {StartMoment.CREATED: 2.0},
    ]
    assert medians(starts) == {StartMoment.CREATED: 2.0}
