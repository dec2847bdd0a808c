"""When which worker is asked for its report, and what becomes of it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hvd_elastic.discovery.ledger.entries import Entry
from hvd_elastic.discovery.ledger.history.job_history import JobHistory
from hvd_elastic.discovery.ledger.history.slow_rank_history import PacedWorker, SlowRankHistory
from hvd_elastic.discovery.ledger.history.stall_history import QUIET_SECONDS, StallHistory
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport

FIGURES_SECONDS: Final = 5.0
SOON_SECONDS: Final = 1.0
"""Between questions for rank 0's figures; the second while the world is about to change."""
WAITS_SECONDS: Final = 2.0
"""Between questions for the ranks' waits, while no step gets done."""
PACES_SECONDS: Final = 1.0
"""Between questions for the ranks' paces, while steps get done. Each worker is asked every five seconds at most."""
MAX_ASKED: Final = 8
"""Workers that are asked for figures at a time, where it is not known which is rank 0's; or for a process's end."""


class WorkerInquiry:
    """Asks for a job's histories. Not thread-safe. Every iterator must be read to its end."""

    def __init__(
        self,
        ask: Callable[[str], WorkerReport],
        history: JobHistory,
        *,
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """`ask` asks the worker at an address. `now` gives Unix seconds; `clock` must not jump."""
        self._ask, self._history, self._now, self._clock = ask, history, now, clock
        self.stalls = StallHistory()
        self.slow_ranks = SlowRankHistory(ranks_each=history.world.slots)
        self._figures_asked = self._waits_asked = self._paces_asked = -FIGURES_SECONDS

    def begin(self, ledger: Iterable[Entry]) -> None:
        """Go on with the ledger of an earlier sidecar."""
        ledger = tuple(ledger)
        self.stalls = StallHistory.resume(ledger)
        self.slow_ranks = SlowRankHistory.resume(ledger, ranks_each=self._history.world.slots)

    def ask_all(self) -> Iterator[Entry]:
        """Ask those from whom something is wanted by now."""
        yield from self._ask_for_figures()
        self._ask_for_exits(self._history.unexplained()[:MAX_ASKED])
        yield from self._ask_for_waits()
        yield from self._ask_for_paces()

    def _ask_for_figures(self) -> Iterator[Entry]:
        moment = self._clock()
        if moment < self._figures_asked + (SOON_SECONDS if self._history.world.is_unsettled else FIGURES_SECONDS):
            return
        self._figures_asked = moment
        for pod in self._history.likely_rank0(MAX_ASKED):
            if figures := self._ask(pod.ip).figures:
                if not self._history.world.world:  # what it does again is known from who was there before
                    self._ask_for_exits(self._history.likely_rank0(MAX_ASKED))
                yield from self._history.world.take_figures(pod.uid, figures, self._now())
                return

    def _ask_for_exits(self, pods: Iterable[PodView]) -> None:
        for pod in pods:
            if end := self._ask(pod.ip).last_exit:
                self._history.world.take_exit(pod.uid, end, self._now())

    def _ask_for_waits(self) -> Iterator[Entry]:
        """While no step gets done, ask workers what their ranks do."""
        moment = self._clock()
        if moment < self._waits_asked + WAITS_SECONDS:
            return
        self._waits_asked = moment
        world, now, trains = self._history.world, self._now(), self._in_training()
        for uid in self.stalls.next_to_ask(list(trains), MAX_ASKED, stepped=world.stepped, now=now):
            self.stalls.take(uid, self._ask(trains[uid].ip).waits, self._now())
        step = world.figures.step if world.figures else -1
        yield from self.stalls.pass_time(step, self._now())

    def _ask_for_paces(self) -> Iterator[Entry]:
        """While steps get done, ask workers how long their ranks take for them."""
        moment, world, now = self._clock(), self._history.world, self._now()
        if moment < self._paces_asked + PACES_SECONDS:
            return
        self._paces_asked, trains = moment, self._in_training()
        if world.stepped is not None and now - world.stepped <= QUIET_SECONDS:
            for uid in self.slow_ranks.next_to_ask(list(trains), MAX_ASKED, now=now):
                self.slow_ranks.take(uid, self._ask(trains[uid].ip).paces, self._now())
        workers = {uid: PacedWorker(pod=pod.name, node=pod.node) for uid, pod in trains.items()}
        yield from self.slow_ranks.pass_time(world.world, workers, self._now())

    def _in_training(self) -> dict[str, PodView]:
        """By UID, the workers that may be asked what their ranks do."""
        candidates = self._history.world.candidates()
        return {uid: pod for uid in candidates if (pod := self._history.pods.get(uid)) and pod.ip}
