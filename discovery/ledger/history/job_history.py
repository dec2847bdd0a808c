"""What happens to a job, as the entries of its ledger: observations in, entries out, each fact once.

Built from the ledger that earlier launchers' sidecars have left, so that nothing is told twice. It begins with a list
of all pods and goes on pod by pod. Nothing here has a clock; all times are Unix seconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed, Message
from hvd_elastic.discovery.ledger.entries import (
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    WantedChanged,
    WorkerLeaving,
)
from hvd_elastic.discovery.ledger.history.departures import Surroundings
from hvd_elastic.discovery.ledger.history.worker_lives import WorkerLives
from hvd_elastic.discovery.ledger.history.world_history import WorldHistory
from hvd_elastic.discovery.ledger.launcher_view import LauncherView, last_launcher
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.discovery.rules.cluster_views import JobView, NodeView, PodView, WorkerView

GONE: Final = "deleted"
"""Why a launcher has ended whose pod is no longer there: a Job keeps the pods that end by themselves."""
SUSPENDED: Final = "suspended"
"""The same if the job was suspended: its Job deletes the launcher's pod."""


class JobHistory:
    """The history of one job, from one sidecar's start on. Not thread-safe. Every iterator must be read to its end."""

    def __init__(self, *, min_workers: int, max_workers: int, slots: int) -> None:
        """`slots`: processes per worker."""
        self.job: JobView | None = None
        self.pods: dict[str, PodView] = {}
        """By UID."""
        self.nodes: dict[str, NodeView] = {}
        """By name."""
        self.nodes_known = False
        self.pods_known = False
        self.world = WorldHistory(slots=slots)
        self._lives = WorkerLives()
        self._range = range(min_workers, max_workers + 1)
        self._launcher: LauncherStarted | None = None
        self._wanted = -1
        self._has_begun = False
        self._asked = 0
        """Up to which of the others figures were asked for."""
        self._replaced: set[str] = set()
        """UIDs of slow workers that this sidecar deletes."""
        self._early: dict[str, WorkerView] = {}
        """Answers that came before the beginning."""

    def begin(
        self,
        ledger: Sequence[Entry],
        launcher: LauncherView,
        earlier: Mapping[str, LauncherView],
        now: float,
        *,
        told: LiveStatus | None = None,
    ) -> Iterator[Entry]:
        """The first entries of this sidecar. Job and pods must be known; what comes before this yields nothing.

        Args:
            ledger: all entries so far.
            launcher: the present one.
            earlier: by UID, launchers' pods that are still there, for the exit code of the one before.
            now: the time.
            told: the job's last live status.
        """
        self._has_begun = True
        self.world = WorldHistory.resume(ledger, slots=self.world.slots, told=told)
        self._lives = WorkerLives.resume(ledger)
        self._launcher = last_launcher(ledger)
        self._wanted = next((entry.workers for entry in reversed(ledger) if isinstance(entry, WantedChanged)), -1)
        if (before := self._launcher) is None or before.uid != launcher.uid:
            if before is not None:
                gone = LauncherView(pod=before.pod, uid=before.uid, is_over=True, reason=GONE)
                yield from self._end_launcher(earlier.get(before.uid, gone), now)
            self._launcher = LauncherStarted(unix=now, pod=launcher.pod, uid=launcher.uid)
            yield self._launcher
        yield from self._note_wanted(now)
        yield from self._see_all(now)
        self.take_answers(self._early, now)
        self._early.clear()

    def take_job(self, job: JobView, now: float) -> Iterator[Entry]:
        """The MPIJob as it is now. A successor of the same name is another job."""
        if self.job is None or self.job.uid == job.uid:
            self.job = job
            yield from self._note_wanted(now)

    def take_nodes(self, message: Message[NodeView]) -> None:
        match message:
            case Listed(objects=nodes):
                self.nodes = {node.name: node for node in nodes}
                self.nodes_known = True
            case Changed(object=node):
                self.nodes[node.name] = node
            case Deleted(object=node):
                self.nodes.pop(node.name, None)

    def take_pods(self, message: Message[PodView], now: float) -> Iterator[Entry]:
        match message:
            case Listed(objects=pods):
                self.pods = {pod.uid: pod for pod in pods}
                self.pods_known = True
                yield from self._see_all(now)
            case Changed(object=pod):
                self.pods[pod.uid] = pod
                yield from self._see(pod, now)
            case Deleted(object=pod):
                self.pods.pop(pod.uid, None)
                self.world.remove(pod.uid)
                if self._is_own(pod):
                    yield from self._lives.lose(pod, self._around(pod), gpus=self._gpus, now=now)

    def take_answers(self, views: Mapping[str, WorkerView], now: float) -> None:
        if not self._has_begun:
            self._early.update(views)
        for uid, view in views.items():
            if (pod := self.pods.get(uid)) and self._is_own(pod):
                self.world.take_answer(pod.name, uid, view, now)

    def note_replaced(self, uid: str) -> None:
        """A slow worker is about to be deleted, so that another one takes its place."""
        self._replaced.add(uid)

    def likely_rank0(self, most: int) -> list[PodView]:
        """Up to `most` pods to ask for figures, which rank 0's alone has: the one that had the last ones first.

        Then by the launcher's order of hosts, a few others at each call.
        """
        trains = [self.pods[uid] for uid in self.world.candidates() if uid in self.pods and self.pods[uid].ip]
        known = [pod for pod in trains if pod.uid == self.world.rank0]
        others = sorted((pod for pod in trains if pod.uid != self.world.rank0), key=self._host_order)
        first = self._asked % max(1, len(others))
        chosen = [*known, *others[first:], *others[:first]][:most]
        self._asked = first + len(chosen) - len(known)
        return chosen

    def _host_order(self, pod: PodView) -> tuple[bool, float, float, str]:
        node = self.nodes.get(pod.node)
        return node is not None and node.spot, pod.ready_since, pod.created, pod.name

    def unexplained(self) -> list[PodView]:
        """Workers whose process was lost, and nobody has said how."""
        return [self.pods[uid] for uid in self.world.unexplained() if uid in self.pods and self.pods[uid].ip]

    def end(self, launcher: LauncherView, *, for_good: bool, now: float) -> Iterator[Entry]:
        """The present launcher has ended; `for_good`: no other one follows.

        An end that nobody knows of is left to the next sidecar: perhaps only this one has to begin again.
        """
        if not launcher.is_over and launcher.exit_code is None:
            return
        yield from self._end_launcher(launcher, now)
        if for_good or (self.job is not None and self.job.suspended):
            yield from self._lives.leave_all(now)
        if for_good:
            step = self.world.figures.step if self.world.figures else -1
            ended, code = launcher.ended or now, launcher.exit_code
            yield JobEnded(unix=ended, succeeded=code == 0, exit_code=code, step=step)

    def _end_launcher(self, launcher: LauncherView, now: float) -> Iterator[Entry]:
        ended = launcher.ended or now
        yield from self.world.end(ended)
        if self._launcher is not None:
            was_suspended = self._is_suspended and launcher.exit_code is None
            yield LauncherEnded(
                unix=ended,
                pod=self._launcher.pod,
                uid=launcher.uid,
                exit_code=launcher.exit_code,
                reason=SUSPENDED if was_suspended else launcher.reason,
            )
            self._launcher = None

    def _note_wanted(self, now: float) -> Iterator[Entry]:
        if self.job is not None and self._has_begun and self.wanted != self._wanted:
            self._wanted = self.wanted
            yield WantedChanged(unix=now, workers=self.wanted)

    @property
    def wanted(self) -> int:
        """How many workers are asked for."""
        if self.job is None:
            return max(self._wanted, 0)
        asked = self.job.wanted_workers
        return asked if asked in self._range else self.job.replicas

    @property
    def _gpus(self) -> int:
        return self.job.gpus if self.job else 0

    def _see_all(self, now: float) -> Iterator[Entry]:
        if not self._has_begun:
            return
        own = {uid for uid, pod in self.pods.items() if self._is_own(pod)}
        yield from self._lives.miss(own, job_over=self._is_suspended, now=now)
        for pod in self.pods.values():
            yield from self._see(pod, now)

    def _see(self, pod: PodView, now: float) -> Iterator[Entry]:
        if not self._is_own(pod):
            return
        for entry in self._lives.see(pod, self._around(pod), gpus=self._gpus, now=now):
            if isinstance(entry, WorkerLeaving):
                self.world.forget(pod.uid)
            yield entry
        if pod.has_ended:
            self.world.remove(pod.uid)

    def _is_own(self, pod: PodView) -> bool:
        return self._has_begun and self.job is not None and pod.owner_uid == self.job.uid

    @property
    def _is_suspended(self) -> bool:
        return self.job is not None and self.job.suspended

    def _around(self, pod: PodView) -> Surroundings:
        replicas = self.job.replicas if self.job else 0
        return Surroundings(
            node=self.nodes.get(pod.node),
            nodes_known=self.nodes_known,
            victim=pod.index is not None and pod.index >= min(self.wanted, replicas),
            slow=pod.uid in self._replaced,
            job_over=self._is_suspended,
        )
