"""The sidecar: threads that listen, one at a time that decides and writes.

    watch of the pods ──────────────────┐
    watch of the job ───┐               ▼         ┌─► Announcer: snapshot, log
    watch of the nodes ─┼─► mail ─► the loop ─────┤
    asking the workers ─┤               ▲         └─► Upkeep: chores (reap, set replicas) ──┐
    SIGTERM ────────────┴───────────────┼◄────────────────────────────────────────────────┘
                                      clock

All that is known sits behind one lock. News of pods is acted on by the thread that heard it: to wake another for it
would cost an eighth of the CPU of a busy sidecar. It ends on SIGTERM at once: it is PID 1 of its container, where an
unhandled SIGTERM is ignored and every launcher pod would take its whole grace to end.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from hvd_elastic.discovery.hosts_script import write_script
from hvd_elastic.discovery.kube import watch
from hvd_elastic.discovery.kube.api_server import Access, ApiServer, ApiStatusError
from hvd_elastic.discovery.rules import first_list, reaper
from hvd_elastic.discovery.rules.eligibility import AtRisk, EligibilityRules, EligibleHosts
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.scale_down import JobView
from hvd_elastic.discovery.rules.views import NodeView, PodView, WorkerView
from hvd_elastic.discovery.sidecar.announcer import Announcer
from hvd_elastic.discovery.sidecar.cluster_actions import ClusterActions, Done
from hvd_elastic.discovery.sidecar.maintenance import Maintenance
from hvd_elastic.discovery.sidecar.publisher import Publisher
from hvd_elastic.discovery.sidecar.reach_test import Prober, ask_for_checkpoint
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics
from hvd_elastic.mpijob.contract import READY_PORT, RUN_DIR, SNAPSHOT_MAX_AGE_SECONDS

log = logging.getLogger(__name__)

REST_SECONDS: Final = 0.04
"""After it has heard something, a watch is not read for so long: what comes meanwhile is one batch, at half the price
of single events. An event that comes alone waits for nothing."""
GAP_SECONDS: Final = 0.01
"""Between two lists, at least, whoever brings the news."""
TURN_SECONDS: Final = 1.0
"""The loop turns so often where nothing comes: ages, reaping and scaling go by the clock."""
SETTLING_SECONDS: Final = 0.1
"""The same while something waits for time to pass: the first list, an address that changes hands."""
AT_ONCE_SECONDS: Final = 0.002
"""What a watch hears so soon after its rest was there before."""
STALLED_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions:
    """What one sidecar serves. Defaults are the contract's."""

    job: str
    namespace: str
    version: str = "v2beta1"
    """Of kubeflow.org: `v1` is the legacy training operator."""
    run_dir: Path = Path(RUN_DIR)
    min_workers: int = 1
    max_workers: int = 1
    slots: int = 1
    settle_seconds: float = first_list.SETTLE_SECONDS
    at_risk: AtRisk = AtRisk.SPARE
    reap: bool = True
    stuck_seconds: float = reaper.STUCK_SECONDS
    nodes: bool = True
    """Read nodes where that is allowed."""
    ready_port: int = READY_PORT


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM."""


@dataclass(frozen=True, slots=True)
class Crash:
    """A thread has died of what nobody foresaw: better to start anew than to serve half of the truth."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Heard:
    """What the watch named `source` said. `at`: clock when the first of it came, at the earliest."""

    source: str
    messages: watch.Messages[Any]
    at: float


@dataclass(frozen=True, slots=True)
class Answered:
    """Workers answered otherwise than before."""

    views: Mapping[str, WorkerView]
    at: float


@dataclass(frozen=True, slots=True)
class Unsaid:
    """Something is known that the launcher could not be told at once."""


Mail = Stop | Crash | Heard | Answered | Unsaid | Done


def boot_clock() -> float:
    """Seconds since boot, suspended time included: it does not jump, and it is that of /proc/uptime."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Sidecar:
    """Build it, then `run()` until `stop()`. Threads start in `run`."""

    def __init__(
        self,
        options: SidecarOptions,
        access: Access,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = boot_clock,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._options, self._access, self._metrics = options, access, metrics
        self._clock, self._wall = clock, wall
        self._mail: SimpleQueue[Mail] = SimpleQueue()
        self._knowing = threading.Lock()
        self._publisher = Publisher(options.run_dir, wall=wall)
        # Who was offered is taken to answer until it misses: a new sidecar beside a running job drops nobody.
        known = {host.uid: WorkerView(generation=host.generation) for host in self._publisher.hosts}
        rules = EligibilityRules(slots=options.slots, min_workers=options.min_workers, at_risk=options.at_risk)
        self._roster = Inventory(rules, known)
        self._prober = Prober(self._answered, known=known, port=options.ready_port)
        self._chores = ClusterActions(
            ApiServer(access),
            job=options.job,
            namespace=options.namespace,
            version=options.version,
            report=self._mail.put,
        )
        self._announcer = Announcer(
            self._publisher,
            warn=lambda addresses, reason: ask_for_checkpoint(addresses, reason, port=options.ready_port),
            metrics=metrics,
            max_workers=options.max_workers,
            settle_seconds=options.settle_seconds,
        )
        self._upkeep = Maintenance(
            self._chores.put,
            metrics,
            min_workers=options.min_workers,
            max_workers=options.max_workers,
            reap=options.reap,
            stuck_seconds=options.stuck_seconds,
        )
        self._job: JobView | None = None
        self._word: float | None = None
        self._listed: float | None = None
        self._oldest_news: float | None = None
        self._announced = self._turned = self._kept_up = clock()
        self._settling = False
        self._faults: dict[str, str] = {}
        self._suspect = False
        self._stopped = threading.Event()
        self._aimed = 0
        metrics.observe(lambda: self.answer, self._prober, self._word_age)

    @property
    def answer(self) -> EligibleHosts:
        """The last decision."""
        return self._announcer.answer

    @property
    def is_alive(self) -> bool:
        """Whether the loop turns."""
        return self._clock() - self._turned < STALLED_SECONDS

    @property
    def is_ready(self) -> bool:
        """Whether a fresh snapshot of this sidecar is there."""
        written = self._publisher.last is not None and not self._publisher.inherited
        return written and self._word_age() <= SNAPSHOT_MAX_AGE_SECONDS

    def stop(self) -> None:
        """End `run` soon. Safe in a signal handler: this queue's `put` may interrupt itself."""
        self._mail.put(Stop())

    def run(self) -> None:
        """Serve until stopped. Raises what a thread died of, and OSError where the folder cannot be written."""
        write_script(self._options.run_dir)
        for name, work in self._threads():
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()
        try:
            while self.turn():
                pass
        finally:
            with self._knowing:
                self._stopped.set()
                self._announcer.close()
        self._prober.stop()
        self._chores.stop()

    def turn(self) -> bool:
        """Wait for mail or for something to fall due, and act on it; False once stopped."""
        try:
            mail = self._mail.get(timeout=self._patience())
        except Empty:
            mail = None
        with self._knowing:
            going = mail is None or self._take(mail)
            try:
                while going:
                    going = self._take(self._mail.get_nowait())
            except Empty:
                pass
            self._act()
        return going

    def _bring(self, heard: Heard) -> None:
        """Act on it at once, in the thread that heard it."""
        with self._knowing:
            if self._stopped.is_set():
                return
            self._take(heard)
            self._act()
            unsaid = self._oldest_news is not None or self._settling
        if unsaid:
            self._mail.put(Unsaid())

    def _act(self) -> None:
        now = self._turned = self._clock()
        if self._job and self._listed is not None:
            self._keep_up(now)
            self._announce(now)
            self._aim()

    def _threads(self) -> Iterator[tuple[str, Callable[[], None]]]:
        options = self._options
        pods = watch.workers_of(options.job, options.namespace, options.version, PodView.from_json)
        yield "pods", lambda: self._listen("pods", pods, self._bring)
        job = watch.one_job(options.job, options.namespace, options.version, JobView.from_json)
        yield "job", lambda: self._listen("job", job, self._mail.put)
        if options.nodes:
            yield "nodes", lambda: self._listen("nodes", watch.nodes(NodeView.from_json), self._mail.put)
        yield "reach", self._prober.run
        yield "chores", self._chores.run

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
            self._mail.put(Crash(error))

    def _listen(self, source: str, selection: watch.Selection[Any], bring: Callable[[Heard], None]) -> None:
        following = watch.Watch(server=ApiServer(self._access), selection=selection, stopped=self._stopped)
        rested = self._clock()
        for messages in following.forever():
            if self._stopped.is_set():
                return
            now = self._clock()
            bring(Heard(source, messages, now - REST_SECONDS if now - rested < AT_ONCE_SECONDS else now))
            if source == "nodes" and any(map(_is_forbidden, messages)):
                return
            # A watch's end and the next one's beginning are no news: resting at both would hold up what comes after.
            if not all(isinstance(message, watch.LastContact) for message in messages):
                time.sleep(REST_SECONDS)
                rested = self._clock()

    def _answered(self, views: Mapping[str, WorkerView]) -> None:
        self._mail.put(Answered(views, self._clock()))

    def _patience(self) -> float:
        if self._oldest_news is not None:
            return max(0.0, self._announced + GAP_SECONDS - self._clock())
        return SETTLING_SECONDS if self._settling else TURN_SECONDS

    def _take(self, mail: Mail) -> bool:
        match mail:
            case Stop():
                return False
            case Crash(error=error):
                raise error
            case Done():
                self._upkeep.take(mail)
            case Answered(views=views, at=at):
                self._news(self._roster.take_workers(views), at)
            case Heard(source=source, messages=messages, at=at):
                for message in messages:
                    if isinstance(message, watch.WatchFault):
                        self._trouble(source, message)
                    else:
                        self._hear(source, message, at)
        return True

    def _hear(self, source: str, message: watch.Message[Any], at: float) -> None:
        if isinstance(message, watch.Listed):
            self._metrics.lists.labels(source).inc()
        if self._faults.pop(source, None):
            log.info("%s: the API server answers again", source)
        match source:
            case "pods":
                self._word = at
                if self._listed is None and isinstance(message, watch.Listed):
                    self._listed = at
                self._news(self._roster.take_pods(message), at)
            case "nodes":
                self._news(self._roster.take_nodes(message), at)
            case _:
                self._take_job(message, at)

    def _take_job(self, message: watch.Message[Any], at: float) -> None:
        match message:
            case watch.Listed(objects=(JobView() as job,)) | watch.Changed(object=JobView() as job):
                # A successor of the same name is another job: it brings a launcher and a sidecar of its own.
                if self._job is None or self._job.uid == job.uid:
                    self._job = job
                    self._news(self._roster.take_owner(job.uid), at)

    def _news(self, changed: bool, at: float) -> None:
        if changed and self._oldest_news is None:
            self._oldest_news = at

    def _keep_up(self, now: float) -> None:
        if now - self._kept_up < TURN_SECONDS:
            return
        self._kept_up = now
        assert self._job is not None
        self._upkeep.reap(self._roster, self._wall())
        self._news(self._upkeep.scale(self._job, self._roster, now), now)
        suspect = self._prober.is_suspect
        if suspect != self._suspect:
            self._suspect = suspect
            log.warning("no worker answers: this side may be at fault, the list stays" if suspect else "workers answer")

    def _announce(self, now: float) -> None:
        due = self._oldest_news is not None or self._settling or now >= self._announced + TURN_SECONDS
        if not due or now < self._announced + GAP_SECONDS:
            return
        assert self._listed is not None
        assert self._word is not None
        before = self._publisher.last
        settled = self._announcer.announce(self._roster, listed=self._listed, word=self._word, now=now)
        self._announced, self._settling = now, not settled
        if self._oldest_news is not None and self._publisher.last is not before:
            self._metrics.latency.observe(self._clock() - self._oldest_news)
        self._oldest_news = None

    def _aim(self) -> None:
        if self._aimed != self._roster.moves:
            self._aimed = self._roster.moves
            self._prober.aim(dict(self._roster.addresses))

    def _trouble(self, source: str, trouble: watch.WatchFault) -> None:
        self._metrics.faults.labels(source).inc()
        if source == "nodes" and _is_forbidden(trouble):
            log.info("nodes may not be read: draining and spot nodes show only by what happens to their pods")
        elif self._faults.get(source) != str(trouble.error):
            self._faults[source] = str(trouble.error)
            log.warning("%s: %s; trying again", source, trouble.error)

    def _word_age(self) -> float:
        return float("inf") if self._word is None else self._clock() - self._word


def _is_forbidden(message: watch.Message[Any]) -> bool:
    error = message.error if isinstance(message, watch.WatchFault) else None
    return isinstance(error, ApiStatusError) and error.status in {401, 403}
