"""Which slow worker is replaced, where the job asks for that (`slow_workers: replace`): values in, a worker out.

All of these hold, so that it costs little where it does not help:

- One of its ranks has been slow for HOLD_SECONDS, and the launcher uses it.
- Without it, training still has its min workers.
- No other worker leaves, and the one that took the last replaced worker's place is in use; or an hour has passed.
- At most MOST_AN_HOUR were replaced within an hour.
- On its node none was replaced within a day, as the next pod may come to it: one that is slow there again tells that
  another pod does not help. Where a platform account excludes that node (`hvd_elastic/decide/slow_nodes`), only a pod
  that has waited since before can be there, and the pod after that one keeps off.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.policy.allowed_sizes import largest_size

HOLD_SECONDS: Final = 300.0
"""A machine that is busy for some minutes is no reason for a resize."""
HOUR_SECONDS: Final = 3600.0
MOST_AN_HOUR: Final = 2
SAME_NODE_SECONDS: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowWorker:
    """A worker with a slow rank."""

    uid: str
    since: float
    """Unix seconds."""
    times: float
    """How many times as long as the others it takes."""
    words: str
    """The same, for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A worker that was replaced because it was slow, or was to be."""

    unix: float
    pod: str
    uid: str
    node: str


def worker_to_replace(
    slow: Iterable[SlowWorker],
    past: Sequence[Replacement],
    pods: Mapping[str, PodView],
    offered: Set[str],
    *,
    min_workers: int,
    sizes: tuple[int, ...] = (),
    excluded: Set[str] = frozenset(),
    now: float,
) -> SlowWorker | None:
    """The one to replace now, of several the slowest; None: none.

    Args:
        slow: those that are slow now.
        past: all that is known of earlier ones.
        pods: by UID, those of the job.
        offered: UIDs of the pods that the launcher uses.
        min_workers: the job's.
        sizes: the only numbers of workers to train with; empty: any.
        excluded: nodes that workers to come keep off.
        now: Unix seconds.
    """
    recent = [one for one in past if now - one.unix < HOUR_SECONDS]
    if len(recent) >= MOST_AN_HOUR or largest_size(sizes, len(offered) - 1) < min_workers:
        return None
    if any(_leaves(pod) for pod in pods.values()) or any(not _has_successor(one, pods, offered) for one in recent):
        return None
    tried = {one.node for one in past if now - one.unix < SAME_NODE_SECONDS} - excluded
    fit = [one for one in slow if one.uid in offered and now - one.since >= HOLD_SECONDS]
    fit = [one for one in fit if (pod := pods.get(one.uid)) is not None and pod.node not in tried]
    return max(fit, key=lambda one: one.times, default=None)


def _leaves(pod: PodView) -> bool:
    return pod.deleting_at is not None or bool(pod.disruption) or pod.leave


def _has_successor(one: Replacement, pods: Mapping[str, PodView], offered: Set[str]) -> bool:
    """Whether another pod of its name is in use."""
    return any(pod.name == one.pod and uid != one.uid and uid in offered for uid, pod in pods.items())
