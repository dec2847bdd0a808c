"""Whether another worker could still take the training state over from workers that leave.

A worker whose pod is about to end keeps the state in its memory, and its GPU with it, for as long as its grace lasts:
another worker may join and take the state over. Where none can, both are kept for nothing, and inference waits.

Neither a worker nor a launcher can tell. They know of the workers that are offered, and not of a pod that still starts.
"""

from collections.abc import Iterable
from typing import Final

from hvd_elastic.discovery.kube.watch import SERVER_SECONDS, SILENCE_SECONDS
from hvd_elastic.discovery.rules.cluster_views import PodView

MAX_AGE_SECONDS: Final = SERVER_SECONDS + SILENCE_SECONDS
"""Of a list of pods that is believed here: a watch that works confirms it sooner. Who has left cannot come back."""


def without_successor(pods: Iterable[PodView], *, age_seconds: float) -> frozenset[str]:
    """UIDs of the workers that leave, if no other one can take their state over; none if one can, or may.

    Every pod that does not leave is a possible successor, whatever else is known of it: it trains, waits, starts or is
    about to be bound. So is one that has ended, because the operator makes it again, and its GPU may still be free. One
    for which the scheduler has found no node is none. It waits for a GPU that others use.

    Args:
        pods: the job's own.
        age_seconds: since the API server last confirmed them.
    """
    if age_seconds > MAX_AGE_SECONDS:
        return frozenset()
    leaving = set[str]()
    for pod in pods:
        if pod.unschedulable:
            continue
        if pod.deleting_at is None or pod.has_ended:
            return frozenset()
        leaving.add(pod.uid)
    return frozenset(leaving)
