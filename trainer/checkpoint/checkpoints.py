"""The public interface of durable checkpoints: when one is due, saving it, finding the newest."""

import logging
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.policy.checkpoint_interval import FIRST_SECONDS
from hvd_elastic.stores.location import Location
from hvd_elastic.stores.retry import StoppedError
from hvd_elastic.system.background_threads import ErrorLog
from hvd_elastic.trainer.checkpoint.claim import Claim
from hvd_elastic.trainer.checkpoint.errors import CheckpointError, CheckpointUrlError, FencedError
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import CheckpointId, Manifest
from hvd_elastic.trainer.checkpoint.interval import Interval
from hvd_elastic.trainer.checkpoint.reading import Checkpoint, Rejected, find_newest
from hvd_elastic.trainer.checkpoint.writing import SaveRequest, prune, write

log = logging.getLogger(__name__)

OUTCOMES: Final = 16
"""Outcomes that are kept for a caller that does not ask for them."""


CLAIM_SECONDS: Final = 10.0
"""Between two looks for a newer claim. It is a small read in the background, and what is trained after a newer claim is
lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCounts:
    """Numbers and outcome of this process's saves, for metrics and the log."""

    started: int = 0
    durable: int = 0
    failed: int = 0
    durable_step: int | None = None
    """Step of the newest checkpoint that this process made durable or found with `latest()`."""
    durable_time: float | None = None
    """UNIX seconds of that checkpoint."""
    seconds: float = 0.0
    """Duration of the last successful save, from `save()` to its manifest."""
    size_bytes: int = 0
    """Size of that save."""
    error: str = ""
    """Why the last save failed; empty if it did not."""
    rejected: str = ""
    """The newest checkpoint that `latest()` did not use, and why; empty: it used the newest."""
    interval_seconds: float | None = None
    """A save is due this long after the last one began; None: never for this reason."""
    writer_seconds: float = 0.0
    """Since this process became the writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOutcome:
    """How one save ended."""

    step: int
    seconds: float
    """From `save()` to its end."""
    size_bytes: int = 0
    """Size of the archive; 0 if the save failed."""
    error: str = ""
    """Why the save failed; empty if it is durable."""


class Checkpoints:
    """The durable tier of one job, as its only writer sees it. Made by `open_checkpoints`, used by one thread.

    Who owns the snapshot's buffers, and when:

    * `save()` walks the snapshot at once: it copies containers and plain values, and keeps CPU tensors **by
      reference**. It returns without reading a tensor's bytes.
    * From then on the tensors belong to the checkpoint, until `busy` is False. The caller may read them (to restore
      from memory) but must write its next commit into another set of buffers. Two sets are enough: at most one snapshot
      is held, because a `save()` while `busy` waits for the previous one.
    * If a tensor was written to while it was held (its version counter changed), that save fails with `CaptureError`
      before its manifest is written: a torn checkpoint never becomes visible.

    Tensors on an accelerator, non-contiguous tensors and numpy arrays are copied to new host memory within `save()`,
    which blocks for that time.

    A caller whose snapshot is a copy already passes `owned=True`: then `save()` reads nothing of it. All of it is read
    in the background, and nothing in it, containers included, may be changed until `busy` is False.

    A failed save is logged and counted, and training continues: the next save is due within half a minute. Only a
    writer that was fenced out is stopped, by the FencedError of its next `save()`.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        interval: Interval,
        keep: int,
        stop: threading.Event,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._claim = claim
        self._interval = interval
        self._keep = keep
        self._stop = stop
        self._clock = clock
        self._wall = wall
        self._thread: threading.Thread | None = None
        self._counts = SaveCounts()
        self._rejected: tuple[Rejected, ...] = ()
        self._found: CheckpointId | None = None
        self._fenced: FencedError | None = None
        self._failure: Exception | None = None
        self._outcomes: deque[SaveOutcome] = deque(maxlen=OUTCOMES)
        self._snapshot_released = threading.Event()
        self._snapshot_released.set()
        self._errors = ErrorLog(log)
        self._has_ended = threading.Event()
        """The last save and the deletions after it. Its thread lives on for a moment: nothing waits for that."""
        self._has_ended.set()
        self._last_step = 0
        self._last_clock = self._opened_clock = self._looked_clock = clock()
        self._look: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a snapshot is still held because it is being stored in the background. Costs nothing."""
        return not self._snapshot_released.is_set()

    @property
    def counts(self) -> SaveCounts:
        return replace(
            self._counts, interval_seconds=self._interval.seconds, writer_seconds=self._clock() - self._opened_clock
        )

    @property
    def failure(self) -> Exception | None:
        """Why the last save failed; None if it did not, or is in progress."""
        return self._failure

    def take_outcomes(self) -> tuple[SaveOutcome, ...]:
        """Return how the saves ended that ended since the last call, at most OUTCOMES."""
        return tuple(self._outcomes.popleft() for _ in range(len(self._outcomes)))

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The manifests that the last `latest()` rejected, newest first."""
        return self._rejected

    def due(self, step: int) -> bool:
        """Whether the interval in steps or seconds, whichever is first, has passed since the last save began.

        False while `busy`. After a failed save it is True before a whole interval has passed. Also True for a writer
        that was fenced out, so that it calls `save()` and gets the FencedError. Costs nothing, but that it looks for a
        newer claim in the background, each CLAIM_SECONDS.
        """
        if not self.idle:
            return False
        self._look_for_claims()
        elapsed = self._clock() - self._last_clock
        failed = bool(self._counts.error)
        return self._fenced is not None or self._interval.due(
            steps=step - self._last_step, seconds=elapsed, failed=failed
        )

    def _look_for_claims(self) -> None:
        if self._clock() - self._looked_clock < CLAIM_SECONDS or (self._look is not None and self._look.is_alive()):
            return
        self._looked_clock = self._clock()
        self._look = threading.Thread(target=self._look_at_claim, name="checkpoint-claim", daemon=True)
        self._look.start()

    def _look_at_claim(self) -> None:
        try:
            self._claim.check_newest()
        except FencedError as error:
            if not self._stop.is_set():
                log.warning("%s", error)
                self._fenced = error
        except Exception as error:  # noqa: BLE001 - nothing is known; the next save tells, or the next look
            log.debug("no look for a newer claim: %s", error)

    def set_interval(self, seconds: float) -> None:
        """From now on a save is due this long after the last one began; the interval in steps stays."""
        self._interval = replace(self._interval, seconds=seconds)

    @property
    def idle(self) -> bool:
        """Whether a `save()` would not wait for the previous one and the deletions after it. Costs nothing."""
        return self._has_ended.is_set()

    def save(
        self, snapshot: Mapping[str, object], *, step: int, world_size: int, reason: str, owned: bool = False
    ) -> None:
        """Store the snapshot in the background; the class describes who owns its buffers.

        Args:
            snapshot: nested containers of tensors, numpy arrays and plain values.
            step: number of commits so far.
            world_size: number of processes that train.
            reason: goes into the manifest: "interval", "below-min", "sigterm" ...
            owned: the snapshot is read in the background. Default False: it is walked before this returns.

        Raises:
            CaptureError: a value could only be stored as a pickle; the message names every such value by its path. With
                `owned` the save fails instead, as it does when the store is away.
            FencedError: a newer writer owns the prefix; this process should end.
        """
        self._join(None)
        if self._fenced:
            raise self._fenced
        capture = Capture() if owned else Capture.take(snapshot)
        started = self._counts.started + 1
        request = SaveRequest(
            capture=capture, sequence=started, step=step, world_size=world_size, reason=reason, time=self._wall()
        )
        self._counts, self._failure = replace(self._counts, started=started), None
        self._last_step, self._last_clock = step, self._clock()
        self._snapshot_released.clear()
        self._has_ended.clear()
        to_walk = snapshot if owned else None
        self._thread = threading.Thread(target=self._run, args=(request, to_walk), name="checkpoint", daemon=True)
        self._thread.start()

    def _run(self, request: SaveRequest, to_walk: Mapping[str, object] | None) -> None:
        try:
            self._save(request, to_walk)
        finally:
            # Whatever became of it: no later save would ever be due, and no buffer would ever be free.
            self._has_ended.set()
            self._snapshot_released.set()
            if self._stop.is_set():
                self._claim.store.close()

    def _save(self, request: SaveRequest, to_walk: Mapping[str, object] | None) -> None:
        try:
            if to_walk is not None:
                request = replace(request, capture=Capture.take(to_walk))
            rejected = [each.manifest for each in self._rejected]
            manifest = write(self._claim, request, stop=self._stop, rejected=rejected)
        except Exception as error:  # noqa: BLE001 - whatever it is, training continues and the next save tries again
            self._record_failure(request, error)
            self._has_ended.set()  # first: who waits for the snapshot may ask at once whether a save is due
            self._snapshot_released.set()
            return
        self._record_success(request, manifest)
        self._snapshot_released.set()
        self._prune(manifest)

    def _record_success(self, request: SaveRequest, manifest: Manifest) -> None:
        seconds = self._clock() - self._last_clock
        self._outcomes.append(SaveOutcome(step=request.step, seconds=seconds, size_bytes=manifest.size_bytes))
        self._counts = replace(
            self._counts,
            durable=self._counts.durable + 1,
            durable_step=request.step,
            durable_time=request.time,
            seconds=seconds,
            size_bytes=manifest.size_bytes,
            error="",
        )
        log.info("step %d is durable as %s (%s)", request.step, manifest.key, request.reason)

    def _prune(self, manifest: Manifest) -> None:
        try:
            prune(self._claim, manifest, keep=self._keep, rejected=[r.manifest for r in self._rejected])
        except CheckpointError as error:
            log.warning("old checkpoints could not be deleted; the next save tries again: %s", error)
        except Exception as error:  # noqa: BLE001 - the save itself is done
            self._errors.say("old checkpoints could not be deleted; the next save tries again", error)

    def _record_failure(self, request: SaveRequest, error: Exception) -> None:
        if isinstance(error, FencedError):
            self._fenced = error
        self._failure, why = error, str(error) or repr(error)
        self._outcomes.append(SaveOutcome(step=request.step, seconds=self._clock() - self._last_clock, error=why))
        self._counts = replace(self._counts, failed=self._counts.failed + 1, error=why)
        log.warning("step %d is not durable: %s", request.step, error, exc_info=not isinstance(error, CheckpointError))

    def _join(self, timeout_seconds: float | None) -> None:
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Wait until a `save()` would not wait for the previous one. Returns False if that takes longer."""
        return self._has_ended.wait(timeout_seconds)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the last save is durable. Returns False if that takes longer, or if the save failed."""
        return self._snapshot_released.wait(timeout_seconds) and not self._counts.error

    def latest(self) -> Checkpoint | None:
        """Find the newest checkpoint that verifies, and read it whole. Returns None if there is none.

        Checkpoints that do not verify are logged and listed in `rejected`.

        Raises:
            StoreError: the store did not answer. Nothing is known then, so do not start from zero.
            CorruptError: there are checkpoints, but none verifies: a person must decide.
        """
        found, self._rejected = find_newest(
            self._claim.store, self._claim.owner, self._stop, latest_manifest=self._claim.head.manifest
        )
        self._found = CheckpointId.from_key(found.name) if found else None
        if found:
            self._last_step, self._last_clock = found.step, self._clock()
            self._counts = replace(self._counts, durable_step=found.step, durable_time=found.time)
        self._counts = replace(self._counts, rejected=next((f"{r.manifest}: {r.why}" for r in self._rejected), ""))
        return found

    def protect_found(self) -> None:
        """Never delete the checkpoint that the last `latest()` found, nor any before it: they are of another state."""
        if self._found is not None:
            self._claim.protect(self._found)

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop saving. An unfinished save is given up and leaves no manifest: call `flush()` first.

        Waits at most `timeout_seconds` for the background thread. A request that hangs ends after that by itself.
        """
        _open.discard(self)
        self._stop.set()
        self._join(timeout_seconds)
        self._claim.store.close()


_open: "weakref.WeakSet[Checkpoints]" = weakref.WeakSet()


_opening_error = ""


def saves_of_this_process() -> SaveCounts | None:
    """Return the SaveCounts of the durable tier that is open in this process; None on all ranks but the writer."""
    return next((checkpoints.counts for checkpoints in tuple(_open)), None)


def save_error_of_this_process() -> str:
    """Why nothing gets durable: the error of the last save, or of the last attempt to open the tier; else empty."""
    saves = saves_of_this_process()
    return saves.error if saves is not None else _opening_error


def open_checkpoints(
    url: str,
    *,
    job: str,
    incarnation: str,
    interval_seconds: float | None = FIRST_SECONDS,
    interval_steps: int | None = None,
    keep: int = 3,
    stop: threading.Event | None = None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> Checkpoints:
    """Open the durable tier as its writer: claim the prefix for `job` and fence out every earlier writer.

    Call it on rank 0 only, after `hvd.init()`, and again in a process that becomes rank 0. No thread outlives the call
    before the first `save()`.

    Args:
        url: `s3://bucket/prefix` (query: `endpoint`, `region`, `part_mib`, `threads`), `gs://bucket/prefix` or
            `file:///path`.
        job: identity of the job, `namespace/name`. A prefix belongs to the first job that opens it.
        incarnation: identity of the launcher (`contract.ENV_INCARNATION`). A superseded launcher cannot claim again. An
            empty string means unknown and always counts as newer.
        interval_seconds: a save is due this long after the last one began; None: never for this reason. Default 60, as
            a State begins.
        interval_steps: a save is due this many steps after the last one; None: never for this reason.
        keep: number of complete checkpoints to keep, at least 1.
        stop: once it is set, in another thread, this call ends with StoreError at its next retry at the latest, and
            claims nothing. Default None: it cannot be stopped.
        clock: monotonic seconds, for the intervals.
        wall: UNIX seconds, for the manifest.

    Raises:
        CheckpointUrlError: the URL, an interval or `keep` cannot be used.
        PrefixOwnedError: another job owns the prefix.
        FencedError: a newer launcher of this job has already opened it.
        StoreFullError: the store is full and has nothing to resume from. Otherwise it opens: saves fail until there is
            space.
        StoreError: the store did not answer, or does not honour conditional writes.
    """
    global _opening_error  # noqa: PLW0603 - of the process, as the writer's role is
    location = _validate(url, interval_seconds, interval_steps, keep)
    stop = stop or threading.Event()

    def pause(seconds: float) -> None:
        if stop.wait(seconds):
            raise StoppedError("closed during a retry")

    try:
        store = location.open(sleep=pause)
        claim = Claim.acquire(
            store,
            job=job,
            incarnation=incarnation,
            nonce=secrets.token_hex(16),
            time=wall(),
            check_wanted=lambda: pause(0),
        )
    except Exception as error:
        _opening_error = "" if isinstance(error, StoppedError) else str(error) or repr(error)
        raise
    _opening_error = ""
    log.info("checkpoints of %s at %s: epoch %d", job, url, claim.head.epoch)
    interval = Interval(seconds=interval_seconds, steps=interval_steps)
    checkpoints = Checkpoints(claim, interval=interval, keep=keep, stop=stop, clock=clock, wall=wall)
    _open.add(checkpoints)
    return checkpoints


def _validate(url: str, seconds: float | None, steps: int | None, keep: int) -> Location:
    problems = []
    if seconds is not None and not seconds > 0:
        problems.append(f"interval_seconds: {seconds}: write a number above 0, or None")
    if steps is not None and steps < 1:
        problems.append(f"interval_steps: {steps}: write a whole number of at least 1, or None")
    if keep < 1:
        problems.append(f"keep: {keep}: write a whole number of at least 1")
    try:
        location = Location.parse(url)
    except CheckpointUrlError as error:
        problems.insert(0, str(error))
    if problems:
        raise CheckpointUrlError("\n".join(problems))
    return location
