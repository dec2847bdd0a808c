"""Replaces slow workers, as the sidecar decides it; and keeps their successors off the nodes, as the platform kit's
`slow-nodes` decides that.
"""

from collections import defaultdict
from typing import Final

from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.job_run import JobRun, RunPhase
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase, WorkerPod
from hvd_elastic.decide.slow_nodes.exclusion_decision import SlowNode, WorkerRoom, exclude
from hvd_elastic.discovery.ledger.history.slow_rank_history import ASKED_SECONDS
from hvd_elastic.discovery.ledger.history.slow_ranks import LONG, SHORT
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.slow_workers import Replacement, SlowWorker, worker_to_replace

LOOK_SECONDS: Final = 30.0
_THERE: Final = (WorkerPhase.STARTING, WorkerPhase.READY, WorkerPhase.MEMBER, WorkerPhase.LEAVING)


class SlowReplacement:
    """That of all jobs that ask for it."""

    def __init__(self, cluster: ClusterDay, *, excludes: bool) -> None:
        """`excludes`: whether successors keep off the nodes."""
        self._cluster, self._excludes = cluster, excludes
        self._past: defaultdict[JobRun, list[Replacement]] = defaultdict(list)

    def begin(self) -> None:
        """Look as long as the day lasts."""
        self._cluster.at(0.0, self._tick)

    def _tick(self, now: float) -> None:
        for run in self._cluster.runs:
            if run.job.replaces_slow and run.phase is RunPhase.TRAINING and run.progress.slowest > 1.0:
                self._look(run, now)
        self._cluster.at(now + LOOK_SECONDS, self._tick)

    def _look(self, run: JobRun, now: float) -> None:
        members = {_uid(worker): worker for worker in run.workers.of(WorkerPhase.MEMBER)}
        chosen = worker_to_replace(
            [
                SlowWorker(uid=uid, since=worker.slow_since + _named_seconds(worker), times=worker.slow, words="")
                for uid, worker in members.items()
                if worker.slow >= LONG.times
            ],
            self._past[run],
            {_uid(worker): _view(worker, now) for phase in _THERE for worker in run.workers.of(phase)},
            members.keys(),
            min_workers=run.job.min,
            sizes=run.job.sizes,
            excluded={str(node) for node, until in run.workers.excluded.items() if until > now},
            now=now,
        )
        if chosen is None:
            return
        worker = members[chosen.uid]
        pod = _view(worker, now)
        self._past[run].append(Replacement(unix=now, pod=pod.name, uid=pod.uid, node=pod.node))
        if self._excludes:
            self._exclude(run, pod.node, now)
        run.workers.tell(worker, now)

    def _exclude(self, run: JobRun, node: str, now: float) -> None:
        rooms = [
            WorkerRoom(name=str(number), workers=room.gpus // run.job.gpus)
            for number, room in self._cluster.table.rooms.items()
            if room.open and number not in run.workers.excluded
        ]
        before = {str(number): until for number, until in run.workers.excluded.items()}
        decided = exclude([SlowNode(name=node, since=now)], before, rooms, min_workers=run.job.min, now=now)
        run.workers.excluded = {int(name): until for name, until in decided.until.items()}


def _uid(worker: WorkerPod) -> str:
    return f"{worker.index}-{worker.created}"


def _view(worker: WorkerPod, now: float) -> PodView:
    leaving = now if worker.leaving else None
    return PodView(name=str(worker.index), uid=_uid(worker), node=str(worker.node), deleting_at=leaving)


def _named_seconds(worker: WorkerPod) -> float:
    """Until the sidecar names it."""
    return ASKED_SECONDS * (SHORT if worker.slow >= SHORT.times else LONG).blocks
