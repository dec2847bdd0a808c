"""Which nodes the workers to come of a job keep off, and until when: values in, a value out.

A node is excluded while the sidecar still waits before it replaces the slow worker there, so that the successor finds
the exclusion in its template. Bounded, because who says that a worker is slow is the job itself:

- at most MOST_NODES of a job at a time, each for EXCLUDED_SECONDS;
- never so many that the others, with nothing else on them, could not hold the job's min workers;
- none where Karpenter makes nodes for the job: it starts none for a pod that names hostnames
  (https://github.com/kubernetes-sigs/karpenter/issues/3214), and a day without new nodes is worse than a slow one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.kube.node_exclusion import HOSTNAME, MOST_NODES
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.slow_workers import SAME_NODE_SECONDS
from hvd_elastic.system.plain_words import count_words

PATIENCE_SECONDS: Final = 120.0
"""A worker is slow for so long first. The sidecar replaces it after `slow_workers.HOLD_SECONDS`, and says who is slow
within some seconds: there is time for several looks in between."""
EXCLUDED_SECONDS: Final = SAME_NODE_SECONDS
"""For so long the sidecar replaces no other worker on that node either."""
STALE_SECONDS: Final = 90.0
"""A status older than this says nothing about now: the sidecar writes one every half minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowNode:
    """A node on which a worker of the job is slow."""

    name: str
    since: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRoom:
    """A node that the job's workers may be bound to."""

    name: str
    workers: int
    """How many fit on it, with nothing else there."""
    named_by_host: bool = True
    """Whether its label `kubernetes.io/hostname` is its name, so that a pod can be kept off it."""
    by_karpenter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """The nodes that workers to come keep off."""

    until: Mapping[str, float]
    """Unix seconds, by node."""
    refused: tuple[str, ...] = ()
    """Nodes with slow workers that are not excluded, each with the reason."""


def slow_pods(live: LiveStatus | None, now: float) -> dict[str, float]:
    """The pods that have been slow for long enough, as the job says it: name to Unix seconds since when."""
    if live is None or now - live.unix > STALE_SECONDS:
        return {}
    return {pod: since for pod, since in live.slow.items() if now - since >= PATIENCE_SECONDS}


def slow_nodes(slow: Mapping[str, float], pods: Iterable[PodView], *, job_uid: str) -> tuple[SlowNode, ...]:
    """Where they are, as the API server has it, who has been slow for longest first.

    A pod that was made since then is another one of the name.
    """
    found = (
        SlowNode(name=pod.node, since=slow[pod.name])
        for pod in pods
        if pod.name in slow
        and pod.node
        and pod.owner_uid == job_uid
        and pod.created <= slow[pod.name]
        and not (pod.deleting_at is not None or pod.has_ended)
    )
    return tuple(sorted(found, key=lambda one: (one.since, one.name)))


def still_excluded(excluded: Mapping[str, float], now: float) -> dict[str, float]:
    """Those whose time is not over, each for EXCLUDED_SECONDS from now at most, whatever somebody wrote."""
    return {node: min(until, now + EXCLUDED_SECONDS) for node, until in excluded.items() if until > now}


def exclude(
    slow: Iterable[SlowNode],
    excluded: Mapping[str, float],
    rooms: Sequence[WorkerRoom],
    *,
    min_workers: int,
    now: float,
) -> Exclusions:
    """What is excluded from now on.

    Args:
        slow: nodes with slow workers.
        excluded: what is excluded by now.
        rooms: the nodes that workers may be bound to.
        min_workers: the job's.
        now: Unix seconds.
    """
    until, refused = still_excluded(excluded, now), []
    by_name = {room.name: room for room in rooms}
    for one in slow:
        if one.name in until:
            continue
        room = by_name.get(one.name)
        left = sum(each.workers for each in rooms if each.name not in until and each.name != one.name)
        if len(until) >= MOST_NODES:
            refused.append(f"{one.name}: {MOST_NODES} nodes are excluded already")
        elif room is None:
            refused.append(f"{one.name}: no worker may come to it now")
        elif not room.named_by_host:
            refused.append(f"{one.name}: its label {HOSTNAME} is not its name")
        elif any(each.by_karpenter for each in rooms):
            refused.append(f"{one.name}: Karpenter would start no node for the job")
        elif left < min_workers:
            refused.append(f"{one.name}: the other nodes hold {count_words(left, 'worker')}, min is {min_workers}")
        else:
            until[one.name] = now + EXCLUDED_SECONDS
    return Exclusions(until=until, refused=tuple(refused))
