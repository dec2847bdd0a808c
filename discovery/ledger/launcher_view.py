"""A launcher's pod, as the ledger tells of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hvd_elastic.discovery.ledger.entries import Entry, LauncherEnded, LauncherStarted
from hvd_elastic.discovery.rules import restart_budget
from hvd_elastic.discovery.rules.cluster_views import PodView, unix_seconds
from hvd_elastic.mpijob.contract import FINAL_EXITS

Json = Mapping[str, Any]

_SAYS_NOTHING = frozenset({"Error", "Completed"})
"""What kubelets give as reason where the exit code says it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherView:
    """Whether a launcher's pod has ended, and how."""

    pod: str
    uid: str
    is_over: bool = False
    """Whether it has ended, or was told to."""
    ended: float | None = None
    """Unix seconds; None: it runs, or nobody knows."""
    exit_code: int | None = None
    """None, too, if it was taken away: that counts no restart."""
    reason: str = ""
    """By whom it was taken away, or why it ended if the exit code does not say it: `OOMKilled`, or its last word."""

    @classmethod
    def from_json(cls, pod: Json) -> "LauncherView":
        """Read a Pod as the API server sends it. The sidecar in it is an init container, and is not looked at."""
        view = PodView.from_json(pod)
        ends = [(status.get("state") or {}).get("terminated") for status in _containers(pod)]
        end = next((end for end in ends if end), None) or {}
        taken = restart_budget.was_taken(view)
        return cls(
            pod=view.name,
            uid=view.uid,
            is_over=taken or bool(end),
            ended=unix_seconds(end.get("finishedAt")) or None,
            exit_code=None if taken else end.get("exitCode"),
            reason=(view.disruption or view.reason or "deleted") if taken else _reason(end),
        )

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself, and badly."""
        return bool(self.exit_code)


def _reason(end: Json) -> str:
    reason = str(end.get("reason") or "")
    return "" if reason in _SAYS_NOTHING else reason


def ends_job(launcher: LauncherView, others: Iterable[LauncherView], *, restarts: int) -> bool:
    """Whether no launcher follows this one, which has ended.

    Args:
        launcher: it.
        others: the job's other launchers, as far as their pods are there.
        restarts: how many launchers may fail.
    """
    if launcher.exit_code in FINAL_EXITS:
        return True
    return launcher.has_failed and 1 + sum(other.has_failed for other in others) > restarts


def last_launcher(entries: Iterable[Entry]) -> LauncherStarted | None:
    """The launcher whose end the ledger does not have."""
    last = None
    for entry in entries:
        match entry:
            case LauncherStarted():
                last = entry
            case LauncherEnded() if last is not None and entry.uid == last.uid:
                last = None
    return last


def _containers(pod: Json) -> Iterable[Json]:
    return (pod.get("status") or {}).get("containerStatuses") or ()
