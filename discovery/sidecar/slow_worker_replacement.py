"""Has slow workers replaced, where the job asks for that. `rules/slow_workers.py` decides which, and when."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hvd_elastic.discovery.ledger.history.slow_rank_history import slow_words
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.reaper import Reap, ReapReason
from hvd_elastic.discovery.rules.slow_workers import Replacement, SlowWorker, worker_to_replace
from hvd_elastic.discovery.sidecar.cluster_actions import ClusterAction
from hvd_elastic.discovery.sidecar.inbox import SlowWorkerReplaced
from hvd_elastic.discovery.sidecar.record.job_recorder import JobRecorder
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.snapshot import Host

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 120.0
"""A pod that is still there, and is not about to end, was not deleted: the API server was away, or has refused it."""


class SlowWorkerReplacement:
    """That of one job. Not thread-safe."""

    def __init__(self, recorder: JobRecorder, submit: Callable[[ClusterAction], None], options: SidecarOptions) -> None:
        """`recorder` knows who is slow, and is told who is replaced for it. `submit` has an action carried out."""
        self._recorder, self._submit, self._options = recorder, submit, options
        self._asked: list[Replacement] = []
        """By this sidecar."""
        self._next = 0.0

    def look(self, inventory: Inventory, hosts: Iterable[Host], *, now: float, moment: float) -> None:
        """Have the worker deleted whose turn it is. `now`: Unix seconds; `moment`: of a clock that never jumps."""
        if moment < self._next or not (slow := self._recorder.slow_ranks):
            return
        self._next = moment + LOOK_SECONDS
        pods = {pod.uid: pod for pod in inventory.own_pods()}
        self._asked = [one for one in self._asked if not _has_failed(one, pods, now)]
        chosen = worker_to_replace(
            [SlowWorker(uid=one.uid, since=one.unix, times=one.times, words=slow_words(one)) for one in slow],
            [*self._recorder.earlier_replacements, *self._asked],
            pods,
            {host.uid for host in hosts},
            min_workers=self._options.min_workers,
            sizes=self._options.sizes,
            excluded=frozenset(self._recorder.excluded_nodes),
            now=now,
        )
        if chosen is None:
            return
        pod = pods[chosen.uid]
        self._asked.append(Replacement(unix=now, pod=pod.name, uid=pod.uid, node=pod.node))
        reap = Reap(pod=pod, reason=ReapReason.SLOW, known=f"{chosen.words}; {self._successor_words(pod.node)}")
        log.warning("%s: %s", pod.name, reap.message)
        self._recorder.take(SlowWorkerReplaced(uid=pod.uid))  # before the watch tells of the deletion
        self._submit(reap)

    def _successor_words(self, node: str) -> str:
        if node in self._recorder.excluded_nodes:
            return f"its successor keeps off {node}"
        return f"it is only drained, and nothing keeps its successor off {node}"


def _has_failed(one: Replacement, pods: Mapping[str, PodView], now: float) -> bool:
    pod = pods.get(one.uid)
    return pod is not None and pod.deleting_at is None and now - one.unix >= RETRY_SECONDS
