"""The end of a launcher or of a job that the ledger lacks: its sidecar had ended before anybody knew of it."""

from collections.abc import Iterable, Sequence

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.discovery.ledger.entries import Entry, JobEnded, LauncherEnded, LauncherStarted
from hvd_elastic.discovery.ledger.launcher_view import LauncherView, last_launcher
from hvd_elastic.discovery.rules.cluster_views import unix_seconds


def untold_end(ledger: Sequence[Entry], launchers: Iterable[Json], job: Json) -> tuple[Entry, ...]:
    """The entries that are to stand behind a ledger: none, if it tells all that is known.

    Args:
        ledger: all entries.
        launchers: pods of launchers that are there.
        job: the MPIJob.
    """
    views = {view.uid: view for view in map(LauncherView.from_json, launchers)}
    started = last_launcher(ledger)
    untold = _launcher_end(views.get(started.uid)) if started else ()
    return (*untold, *_job_end((*ledger, *untold), job))


def _launcher_end(launcher: LauncherView | None) -> tuple[LauncherEnded, ...]:
    if launcher is None or launcher.ended is None:
        return ()
    code, reason = launcher.exit_code, launcher.reason
    return (LauncherEnded(unix=launcher.ended, pod=launcher.pod, uid=launcher.uid, exit_code=code, reason=reason),)


def _job_end(ledger: Sequence[Entry], job: Json) -> tuple[JobEnded, ...]:
    """From the MPIJob, which has a completion time only if it has ended."""
    status = job.get("status") or {}
    ended = unix_seconds(status.get("completionTime"))
    last = next((entry for entry in reversed(ledger) if isinstance(entry, JobEnded | LauncherStarted)), None)
    if not ended or last is None or isinstance(last, JobEnded):
        return ()
    conditions = {one["type"]: one.get("status") for one in status.get("conditions") or ()}
    code = next((entry.exit_code for entry in reversed(ledger) if isinstance(entry, LauncherEnded)), None)
    return (JobEnded(unix=ended, succeeded=conditions.get("Succeeded") == "True", exit_code=code),)
