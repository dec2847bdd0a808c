"""What is read next: all situations, without a cluster."""

from dataclasses import replace

from hvd_elastic.client.logs.launcher_runs import JobLaunchers, LauncherRun, job_launchers
from hvd_elastic.client.logs.log_reading import LogRequest, NextStep, Reading, first_runs, next_reading
from tests.hvd_elastic.client.logs.launchers import ended, finished, job, launcher, running

FIRST = launcher("first", minute=1, state=ended(1))
SECOND = launcher("second", minute=2, state=running())
WAITING = launcher("waiting", minute=3, phase="Pending")
BOTH = job_launchers(job(), [FIRST, SECOND])


def reading(launchers: JobLaunchers, index: int, *, is_complete: bool = False) -> Reading:
    run = launchers.runs[index]
    return Reading(run=run, past=launchers.upto(run), is_complete=is_complete)


def pods(runs: list[LauncherRun]) -> list[str]:
    return [run.pod for run in runs]


def test_the_last_launcher_is_read_and_with_since_all() -> None:
    launchers = job_launchers(job(), [FIRST, SECOND, WAITING])
    assert pods(list(first_runs(launchers, LogRequest()))) == ["second"]
    assert pods(list(first_runs(launchers, LogRequest(since_seconds=60)))) == ["first", "second"]
    assert pods(list(first_runs(launchers, LogRequest(previous=True)))) == ["first"]
    assert first_runs(job_launchers(job(), [SECOND]), LogRequest(previous=True)) == []
    assert first_runs(job_launchers(job(), [WAITING]), LogRequest()) == []


def test_a_stream_that_was_cut_is_asked_for_again() -> None:
    step, again = next_reading(reading(BOTH, 1), BOTH)
    assert step is NextStep.READ
    assert again is not None
    assert again.run.pod == "second"


def test_a_launcher_that_has_ended_is_read_to_its_end_before_the_next() -> None:
    _, again = next_reading(reading(BOTH, 0), BOTH)
    assert again is not None
    assert again.run.pod == "first"
    _, after = next_reading(reading(BOTH, 0, is_complete=True), BOTH)
    assert after is not None
    assert after.run.pod == "second"


def test_a_launcher_whose_pod_is_gone_is_followed_by_the_next() -> None:
    _, after = next_reading(reading(BOTH, 0), job_launchers(job(), [SECOND]))
    assert after is not None
    assert after.run.pod == "second"


def test_an_older_launcher_is_never_gone_back_to() -> None:
    assert next_reading(reading(BOTH, 1, is_complete=True), BOTH) == (NextStep.WAIT, None)


def test_a_container_that_was_started_again_is_a_run_of_its_own() -> None:
    before = job_launchers(job(), [launcher(state=running())])
    after = job_launchers(job(), [launcher(state=running(), last=ended(1), restarts=1)])
    _, rest = next_reading(reading(before, 0), after)
    assert rest is not None
    assert (rest.run.number, rest.run.is_previous) == (0, True)
    _, new = next_reading(replace(rest, is_complete=True), after)
    assert new is not None
    assert (new.run.number, new.run.is_previous) == (1, False)


def test_it_waits_while_the_job_goes_on_and_ends_with_it() -> None:
    done = reading(job_launchers(job(), [FIRST]), 0, is_complete=True)
    assert next_reading(done, job_launchers(job(), [FIRST, WAITING])) == (NextStep.WAIT, None)
    assert next_reading(done, job_launchers(finished(), [FIRST])) == (NextStep.END, None)
    assert next_reading(None, job_launchers(job(suspended=True), [])) == (NextStep.WAIT, None)


def test_the_end_of_the_job_cuts_off_no_line() -> None:
    launchers = job_launchers(finished(), [FIRST])
    step, _ = next_reading(reading(launchers, 0), launchers)
    assert step is NextStep.READ
