"""What controllers that look at jobs from time to time have in common: their turns, and the reading of workers."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from threading import Event
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.mpijob.contract import LABEL_JOB_ROLE, Role

log = logging.getLogger(__name__)

_WORKERS: Final = f"{LABEL_JOB_ROLE}={Role.WORKER}"


def take_turns(turn: Callable[[], object], stop: Event, *, period: float, alive: Callable[[], None]) -> None:
    """Call `turn` each `period` seconds until `stop`. `alive` is called after each in which the API server answered."""
    while not stop.is_set():
        try:
            turn()
            alive()
        except ClusterError as error:
            log.warning("not looked at this time: %s", error)
        stop.wait(period)


def workers_by_owner(cluster: ClusterClient, reading: ObjectReading) -> Mapping[str, list[PodView]]:
    """The workers of all jobs by the UID of their job, which may have none. Raises ClusterError."""
    pods = defaultdict[str, list[PodView]](list)
    for pod in reading.each(cluster.list("/api/v1/pods", labelSelector=_WORKERS), PodView.from_json):
        pods[pod.owner_uid].append(pod)
    return pods
