"""What the sidecar's threads send to its loop."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvd_elastic.discovery.kube.watch import Messages
from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.discovery.sidecar.cluster_actions import ActionResult


@dataclass(frozen=True, slots=True)
class StopRequest:
    """SIGTERM."""


@dataclass(frozen=True, slots=True)
class ThreadCrash:
    """A vital thread died of an unforeseen error: better to restart than to serve half of the truth."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Messages that the watch of `resource` received together."""

    resource: str
    """`pods`, `job` or `nodes`."""
    messages: Messages[Any]
    received: float
    """When the first of them came, at the earliest, by the sidecar's clock."""


@dataclass(frozen=True, slots=True)
class WorkerAnswers:
    """Workers answered differently than before, or were lost."""

    views: Mapping[str, WorkerView]
    """By pod UID."""
    received: float


@dataclass(frozen=True, slots=True)
class SlowWorkerReplaced:
    """A worker's pod is about to be deleted because its rank is slow: for the job's record."""

    uid: str


@dataclass(frozen=True, slots=True)
class UpdatePending:
    """Something is known that could not be published at once."""


InboxItem = StopRequest | ThreadCrash | WatchBatch | WorkerAnswers | UpdatePending | ActionResult
