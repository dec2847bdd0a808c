"""What the verbs report of a job, waited for; and what its training may have lost by then."""

from collections.abc import Callable
from typing import Any, Final

from testbed.cluster.jobs import Job
from testbed.cluster.standing import DURABLE, SAMPLES
from testbed.cluster.training import Account
from testbed.kube import waiting
from tests.cluster.test_operating import told
from tests.cluster.test_random_faults import surviving, went_back

DURABLE_SECONDS: Final = 2 * float(DURABLE["every"])
"""Of training. A world that is lost whole goes back to the last durable checkpoint, and the next may be under way."""


def until_status(job: Job, what: str, is_so: Callable[[dict[str, Any]], bool], *, within_seconds: float = 90) -> None:
    """Wait until `status` says it; the failure shows what it said last."""
    seen: list[dict[str, Any]] = []

    def look() -> bool:
        seen[:] = [told(job.kubectl, "status", job.name, exit_code=None)]
        return is_so(seen[0])

    waiting.until(what, look, within_seconds=within_seconds, every_seconds=1, seen=lambda: str(seen))


def until_events(job: Job, *parts: str, within_seconds: float = 90) -> None:
    """Wait until one line of `events` has all of these parts."""
    seen: list[str] = []

    def look() -> bool:
        seen[:] = [f"{one['about']}: {one['what']}" for one in told(job.kubectl, "events", job.name)]
        return any(all(part in line for part in parts) for line in seen)

    waiting.until(" ".join(parts), look, within_seconds=within_seconds, every_seconds=1, seen=lambda: "\n".join(seen))


def worker(status: dict[str, Any], name: str) -> dict[str, Any]:
    """What a status says of one worker; empty if it does not name it."""
    return next((one for one in status["workers"] if one["pod"] == name), {})


def little_lost(account: Account, *, seconds: float = DURABLE_SECONDS) -> None:
    """No step was skipped, no epoch that is over is wrong, and no world that was lost undid more of training."""
    assert account.skipped() == []
    ends = {step["epoch"]: step["samples"] for step in surviving(account)}
    del ends[max(ends)]
    assert set(ends.values()) <= {SAMPLES}, ends
    assert all(undone < seconds for _, _, undone in went_back(account)), went_back(account)
