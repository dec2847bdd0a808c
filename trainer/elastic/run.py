"""`elastic.run`: `hvd.elastic.run` with its known holes closed.

It takes any Horovod state, so that scripts written for `hvd.elastic.run` get the cures too (`rendezvous.install`).
What it does otherwise than Horovod 0.28.1 (`horovod/common/elastic.py`, `run_fn`):

* After every reset everybody syncs. Horovod lets survivors of a mere removal skip it, while a newcomer of the same
  rendezvous waits for their broadcast for ever (horovod issue 3494).
* A host update that arrives while the next world is being formed is not thrown away, and two in one second are two.
* Leaving, a lost launcher and a mistake in the script end the process with codes of their own (`contract.Exit`).
* A failure while the state is synced, or in a reset callback, is one more reset.
"""

import contextlib
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from hvd_elastic.mpijob.contract import ENV_METRICS, Exit, HvdElasticError
from hvd_elastic.trainer.elastic import rendezvous, script_checks
from hvd_elastic.trainer.telemetry import events, json_logs
from hvd_elastic.trainer.telemetry.heartbeat import HeartbeatWriter

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class ElasticState(Protocol):
    """What `run` needs of a state: `horovod.common.elastic.State`."""

    def commit(self) -> None: ...  # noqa: D102
    def restore(self) -> None: ...  # noqa: D102
    def sync(self) -> None: ...  # noqa: D102
    def on_reset(self) -> None: ...  # noqa: D102
    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None: ...  # noqa: D102


def run(func: Callable[P, R]) -> Callable[P, R]:
    """Run `func(state, ...)` over any number of worlds, until it returns.

    Raises:
        rendezvous.Removed: this worker is no longer part of the job (SystemExit, code `Exit.REMOVED`).
        rendezvous.RendezvousLost: the launcher is gone (SystemExit, code `Exit.HOST_CHANGE`).
        SystemExit: code `Exit.SCRIPT_MISTAKE`, with what is wrong on stderr.
    """

    @functools.wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        state: ElasticState = args[0] if args else kwargs["state"]  # type: ignore[assignment]
        rendezvous.init()
        if rendezvous.pass_gate():
            state.on_reset()
        if rendezvous.is_oldest():  # all run the same script, and a newcomer would keep the others waiting
            _refuse(script_checks.find(state))
            _look_again_at_first_commit(state)
        json_logs.configure()
        _serve_metrics()
        with _notices(state) as notices, _misuse_ends_the_script():
            return _over_worlds(state, notices, lambda: func(*args, **kwargs))

    return wrapper


class HostUpdates:
    """Host updates on their way from the launcher to a state.

    Horovod compares whole seconds and empties the queue at a reset. Here every update has a stamp of its own, and one
    that came after this worker had asked for its new place, so that the place may not reflect it, is delivered after
    the reset.
    """

    def __init__(self, state: ElasticState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._late = False

    def on_hosts_updated(self, timestamp: int, update_res: object) -> None:
        """Called by Horovod's notification service, in a thread of its own."""
        with self._lock:
            self._late = True
            self._deliver()

    def forget(self) -> None:
        """All that came so far is known to the launcher that is about to be asked for a place."""
        with self._lock:
            self._late = False

    def redeliver(self) -> None:
        """Give the state, which has emptied its queue, what came since `forget`."""
        with self._lock:
            if self._late:
                self._deliver()

    def _deliver(self) -> None:
        from horovod.runner.elastic.worker import HostUpdateResult

        stamp = getattr(self._state, "_last_updated_timestamp", 0) + 1
        self._state.on_hosts_updated(max(stamp, time.time_ns()), HostUpdateResult.mixed)


@contextlib.contextmanager
def _notices(state: ElasticState) -> Iterator[HostUpdates]:
    """Listen for host updates."""
    from horovod.common.elastic import notification_manager

    notices = HostUpdates(state)
    try:
        notification_manager.init()
    except (RuntimeError, OSError) as error:
        logger.warning("cannot register with the launcher: %s", error)
        raise rendezvous.RendezvousLost from error
    notification_manager.register_listener(notices)
    try:
        yield notices
    finally:
        notification_manager.remove_listener(notices)


def _over_worlds(state: ElasticState, notices: HostUpdates, func: Callable[[], R]) -> R:
    from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

    voyage = ResetTimer(state)
    while True:
        try:
            if voyage.cause is not None:
                _next_world(state, notices, voyage)
            state.sync()
            rendezvous.synced()
            voyage.arrived()
            return func()
        except HostsUpdatedInterrupt:  # a RuntimeError too
            voyage.interrupted(events.Cause.HOSTS)
        except (RuntimeError, ConnectionError, EOFError) as error:
            if not isinstance(error, HorovodInternalError) and not _is_lost_loader(error):
                raise
            voyage.interrupted(events.Cause.FAILURE)
            logger.warning("a process was lost, back to the last commit: %s", error)
            state.restore()


def _is_lost_loader(error: Exception) -> bool:
    """A killed loader process is no mistake of the script: its training process goes on without."""
    from hvd_elastic.trainer.data.loader import is_lost_process

    return is_lost_process(error)


def _next_world(state: ElasticState, notices: HostUpdates, voyage: "ResetTimer") -> None:
    notices.forget()
    try:
        rendezvous.reset(getattr(state, "dispensable", _never))
    except rendezvous.Removed:
        voyage.left()
        raise
    state.on_reset()
    notices.redeliver()


def _never() -> bool:
    """Horovod's own states live in memory alone."""
    return False


class ResetTimer:
    """One process's way through worlds, as events tell it: how long it stood still, and why."""

    def __init__(self, state: ElasticState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state, self._clock = state, clock
        self._since = clock()
        self._world = (0, 0)
        self.cause: events.Cause | None = None
        self._heartbeat = HeartbeatWriter()
        self._commits = 0
        if not hasattr(state, "step_count"):
            self._count_commits()

    def interrupted(self, cause: events.Cause) -> None:
        """Training stops; a failure on the way to the next world does not start the clock again."""
        if self.cause is None:
            self._since = self._clock()
            self.cause = cause
        elif cause is events.Cause.FAILURE:
            self.cause = cause

    def arrived(self) -> None:
        """Training goes on."""
        before, self._world = self._world, _rank_and_size()
        pause = round(self._clock() - self._since, 4)
        rank, size = self._world
        if self.cause is None:
            events.emit(events.Kind.JOINED, rank=rank, size=size, step=self._step, seconds=pause)
        else:
            cause = self.cause.value
            events.emit(
                events.Kind.RESET,
                rank=rank,
                size=size,
                step=self._step,
                cause=cause,
                seconds=pause,
                **{"from": before[1]},
            )
            logger.info("rank %d of %d after %.2f s (%s)", rank, size, pause, cause)
        self.cause = None

    def left(self) -> None:
        """The worker has left the job."""
        rank, size = self._world
        events.emit(events.Kind.LEFT, rank=rank, size=size, step=self._step)

    @property
    def _step(self) -> int:
        return int(getattr(self._state, "step_count", self._commits))

    def _count_commits(self) -> None:
        """A state of Horovod's own gets the heartbeat and the step events of ours."""
        stock_commit = self._state.commit

        @functools.wraps(stock_commit)
        def commit() -> None:
            self._commits += 1
            rank, size = self._world
            self._heartbeat.beat(step=self._commits, rank=rank, size=size)
            events.emit(events.Kind.STEP, rank=rank, size=size, step=self._commits)
            stock_commit()

        self._state.commit = commit  # type: ignore[method-assign]


def _serve_metrics() -> None:
    """Their library is imported only where the job asks for them; a worker without it trains all the same."""
    if os.environ.get(ENV_METRICS, "") in {"", "0"}:
        return
    with contextlib.suppress(ImportError):
        import horovod.torch as hvd

        from hvd_elastic.trainer.telemetry.worker_metrics import serve

        serve(hvd.local_rank())


def _rank_and_size() -> tuple[int, int]:
    import horovod.torch as hvd

    return hvd.rank(), hvd.size()


@contextlib.contextmanager
def _misuse_ends_the_script() -> Iterator[None]:
    """What no restart will mend ends with a code that says so, not with a trace."""
    try:
        yield
    except HvdElasticError as error:
        if error.exit_code in (Exit.SCRIPT_MISTAKE, Exit.BAD_INPUT):
            _refuse([str(error)])
        raise


def _look_again_at_first_commit(state: ElasticState) -> None:
    commit, to_check = state.commit, [script_checks.plain_optimizers(state)]
    if not to_check[0]:
        return

    @functools.wraps(commit)
    def looking_once(*args: Any, **kwargs: Any) -> None:
        if to_check:
            _refuse(script_checks.find_wrapped_since(state, to_check.pop()))
        commit(*args, **kwargs)

    state.commit = looking_once  # type: ignore[method-assign]


def _refuse(found: Sequence[str]) -> None:
    if found:
        print("\n".join(f"hvd-elastic: {mistake}" for mistake in found), file=sys.stderr, flush=True)  # noqa: T201
        raise SystemExit(int(Exit.SCRIPT_MISTAKE))
