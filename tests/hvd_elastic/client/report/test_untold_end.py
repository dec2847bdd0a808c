"""An end that no sidecar could write is told from the objects that know of it."""

from typing import Any

from hvd_elastic.client.report.untold_end import untold_end
from hvd_elastic.discovery.ledger.entries import JobEnded, LauncherEnded, LauncherStarted
from tests.hvd_elastic.client.report.objects import LEDGER, NOW, condition, launcher, mpijob, stamp

STARTED = LauncherStarted(unix=NOW - 900, pod="train-launcher-a1b2c", uid="uid-train-launcher-a1b2c")
OPEN = (STARTED, *LEDGER[1:])
ENDED = LauncherEnded(unix=NOW - 50, pod=STARTED.pod, uid=STARTED.uid, exit_code=3)


def ended_launcher(code: int = 3, **fields: Any) -> dict[str, Any]:
    end = {"exitCode": code, "reason": "Error", "finishedAt": stamp(NOW - 50)}
    return launcher(phase="Failed", containers=[{"name": "launcher", "state": {"terminated": end}}], **fields)


def test_a_ledger_that_tells_all_is_left_alone() -> None:
    assert untold_end(OPEN, [launcher()], mpijob()) == ()
    assert untold_end((*OPEN, ENDED), [ended_launcher()], mpijob()) == ()
    over = JobEnded(unix=NOW - 49, succeeded=False, exit_code=3)
    failed = mpijob(conditions=[condition("Failed")], ended=NOW - 40)
    assert untold_end((*OPEN, ENDED, over), [ended_launcher()], failed) == ()
    assert untold_end((), [ended_launcher()], failed) == ()


def test_a_launcher_that_is_told_to_end_has_not_ended_yet() -> None:
    assert untold_end(OPEN, [launcher(deleting=True)], mpijob()) == ()


def test_a_launchers_end_with_its_code_from_its_pod() -> None:
    assert untold_end(OPEN, [ended_launcher()], mpijob()) == (ENDED,)
    assert untold_end(OPEN, [ended_launcher(name="another")], mpijob()) == ()


def test_the_jobs_end_from_the_mpijob() -> None:
    failed = mpijob(conditions=[condition("Failed")], ended=NOW - 40)
    assert untold_end(OPEN, [ended_launcher()], failed) == (
        ENDED,
        JobEnded(unix=NOW - 40, succeeded=False, exit_code=3),
    )
    succeeded = mpijob(conditions=[condition("Succeeded")], ended=NOW - 40)
    assert untold_end(OPEN, [], succeeded) == (JobEnded(unix=NOW - 40, succeeded=True),)


def test_a_job_that_has_begun_again_has_not_ended() -> None:
    """A worker's eviction leaves Failed on a job that goes on."""
    evicted = mpijob(conditions=[condition("Failed", "MPIJobEvicted")])
    assert untold_end(OPEN, [launcher()], evicted) == ()
