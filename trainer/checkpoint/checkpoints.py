"""The public face of durable checkpoints: when one is due, handing it over, finding the newest."""

import logging
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hvd_elastic.trainer.checkpoint.claim import Claim
from hvd_elastic.trainer.checkpoint.errors import CheckpointError, CheckpointUrlError, FencedError
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import Manifest
from hvd_elastic.trainer.checkpoint.interval import Interval
from hvd_elastic.trainer.checkpoint.reading import Checkpoint, Rejected, newest
from hvd_elastic.trainer.checkpoint.stores.location import Location
from hvd_elastic.trainer.checkpoint.stores.retry import StoppedError
from hvd_elastic.trainer.checkpoint.writing import SaveOrder, prune, write

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCounts:
    """What became of the saves of this process, for metrics and the log."""

    started: int = 0
    durable: int = 0
    failed: int = 0
    durable_step: int | None = None
    """Step of the newest checkpoint that this process made durable or found with `latest()`."""
    durable_time: float | None = None
    """UNIX seconds of that checkpoint."""
    seconds: float = 0.0
    """Duration of the last finished save, from the hand-over to its manifest."""
    size_bytes: int = 0
    """Bytes of that save."""
    error: str = ""
    """Why the last save failed; empty when it did not."""


class Checkpoints:
    """The durable tier of one job, as its one writer sees it. Made by `open_checkpoints`, used by one thread.

    Who owns the snapshot's buffers, and when:

    * `save()` walks the snapshot at once: containers and plain values are copied, CPU tensors are taken **by
      reference**. It returns without having read a tensor's bytes.
    * From then on the tensors belong to the checkpoint, until `busy` is False. The owner of the snapshot may read
      them (a restore from memory) but must write its next commit into another set of buffers. Two sets are enough:
      one snapshot at most is held, because a `save()` while `busy` waits for the one before it.
    * A tensor that was written to while it was held (its version counter moved) makes that save fail with
      `SnapshotError` before its manifest is written: a torn checkpoint never becomes visible.

    Tensors on an accelerator, or not contiguous, and numpy arrays are copied to new host memory within `save()`, which
    then blocks for as long as that takes.

    A save that fails is logged and counted, and training goes on: it is due again within half a minute. Only a writer
    that was fenced out is stopped, by the FencedError of its next `save()`.
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
        self._fenced: FencedError | None = None
        self._settled = threading.Event()
        self._settled.set()
        self._last_step = 0
        self._last_clock = clock()

    @property
    def busy(self) -> bool:
        """Whether a snapshot is still held, being stored in the background. Costs nothing."""
        return not self._settled.is_set()

    @property
    def counts(self) -> SaveCounts:
        """What became of the saves so far."""
        return self._counts

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The manifests that the last `latest()` passed over, newest first."""
        return self._rejected

    def due(self, step: int) -> bool:
        """Whether the interval in steps or in seconds, whichever comes first, has gone by since the last save began.

        False while `busy`. After a failed save it is true again sooner than a whole interval. Costs nothing. True for a
        writer that was fenced out, so that it learns of it from `save()`.
        """
        if self._thread is not None and self._thread.is_alive():
            return False
        gone = self._clock() - self._last_clock
        failed = bool(self._counts.error)
        return self._fenced is not None or self._interval.due(steps=step - self._last_step, seconds=gone, failed=failed)

    def save(self, snapshot: Mapping[str, object], *, step: int, world_size: int, reason: str) -> None:
        """Take the snapshot over and store it in the background; see the class for who owns its buffers.

        `step` counts commits. `reason` goes into the manifest: "interval", "below-min", "sigterm" ...

        Raises:
            SnapshotError: a value that could only be stored as a pickle; every such value is named by its path.
            FencedError: a newer writer owns the prefix; this process should end.
        """
        self._join(None)
        if self._fenced:
            raise self._fenced
        capture = Capture.take(snapshot)
        started = self._counts.started + 1
        order = SaveOrder(
            capture=capture, sequence=started, step=step, world_size=world_size, reason=reason, time=self._wall()
        )
        self._counts = replace(self._counts, started=started)
        self._last_step, self._last_clock = step, self._clock()
        self._settled.clear()
        self._thread = threading.Thread(target=self._run, args=(order,), name="checkpoint", daemon=True)
        self._thread.start()

    def _run(self, order: SaveOrder) -> None:
        try:
            manifest = write(self._claim, order, stop=self._stop)
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on and the next save tries again
            self._failed(order, error)
            self._settled.set()
            return
        self._stored(order, manifest)
        self._settled.set()
        self._prune(manifest)

    def _stored(self, order: SaveOrder, manifest: Manifest) -> None:
        self._counts = replace(
            self._counts,
            durable=self._counts.durable + 1,
            durable_step=order.step,
            durable_time=order.time,
            seconds=self._clock() - self._last_clock,
            size_bytes=manifest.size_bytes,
            error="",
        )
        log.info("step %d is durable as %s (%s)", order.step, manifest.key, order.reason)

    def _prune(self, manifest: Manifest) -> None:
        try:
            prune(self._claim, manifest, keep=self._keep, rejected=[r.manifest for r in self._rejected])
        except CheckpointError as error:
            log.warning("old checkpoints could not be deleted, the next save tries again: %s", error)

    def _failed(self, order: SaveOrder, error: Exception) -> None:
        if isinstance(error, FencedError):
            self._fenced = error
        self._counts = replace(self._counts, failed=self._counts.failed + 1, error=str(error) or repr(error))
        log.warning("step %d is not durable: %s", order.step, error, exc_info=not isinstance(error, CheckpointError))

    def _join(self, timeout_seconds: float | None) -> None:
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def idle(self, timeout_seconds: float) -> bool:
        """Wait until a `save()` would not have to wait for the one before it; False: not in time."""
        self._join(timeout_seconds)
        return self._thread is None or not self._thread.is_alive()

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until all that was handed to `save()` is durable. False: not in time, or the last save failed."""
        return self._settled.wait(timeout_seconds) and not self._counts.error

    def latest(self) -> Checkpoint | None:
        """Find the newest checkpoint that verifies, reading it whole; None when there is none.

        Those that do not verify are logged, and listed in `rejected`.

        Raises:
            StoreError: the store did not answer. Nothing is known then, so do not start from zero.
            CorruptError: there are checkpoints, and none verifies: a person must decide.
        """
        found, self._rejected = newest(
            self._claim.store, self._claim.owner, self._stop, named=self._claim.head.manifest
        )
        if found:
            self._last_step, self._last_clock = found.step, self._clock()
            self._counts = replace(self._counts, durable_step=found.step, durable_time=found.time)
        return found

    def close(self, timeout_seconds: float = 5.0) -> None:
        """End the background thread. A save that is not finished is given up, with no manifest: `flush()` first."""
        _open.discard(self)
        self._stop.set()
        self._join(timeout_seconds)
        self._claim.store.close()


_open: "weakref.WeakSet[Checkpoints]" = weakref.WeakSet()


def saves_of_this_process() -> SaveCounts | None:
    """What became of the saves of the durable tier that is open in this process; None on all ranks but the writer."""
    return next((checkpoints.counts for checkpoints in tuple(_open)), None)


def open_checkpoints(
    url: str,
    *,
    job: str,
    incarnation: str,
    interval_seconds: float | None = 300.0,
    interval_steps: int | None = None,
    keep: int = 3,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> Checkpoints:
    """Open the durable tier as its writer: claims the prefix for `job` and fences every earlier writer out.

    Call it on rank 0 only, after `hvd.init()`, and again in a process that becomes rank 0. No thread outlives the call
    before the first `save()`.

    Args:
        url: `s3://bucket/prefix` (query: `endpoint`, `region`, `part_mib`, `threads`) or `file:///path`.
        job: identity of the job, `namespace/name`. A prefix belongs to the first job that opens it.
        incarnation: identity of the launcher (`contract.ENV_INCARNATION`). One that was superseded may not come back;
            the empty string is unknown, and always counts as a newer one.
        interval_seconds: a save is due this long after the last began; None: never for this reason.
        interval_steps: a save is due this many steps after the last; None: never for this reason.
        keep: complete checkpoints to keep, at least 1.
        clock: monotonic seconds, for the intervals.
        wall: UNIX seconds, for the manifest.

    Raises:
        CheckpointUrlError: the URL, an interval or `keep` cannot be used.
        PrefixOwnedError: another job owns the prefix.
        FencedError: a newer launcher of this job has already opened it.
        StoreError: the store did not answer, or does not honour conditional writes.
    """
    location = _checked(url, interval_seconds, interval_steps, keep)
    stop = threading.Event()

    def pause(seconds: float) -> None:
        if stop.wait(seconds):
            raise StoppedError("closed while the store was being tried again")

    store = location.open(sleep=pause)
    claim = Claim.make(store, job=job, incarnation=incarnation, nonce=secrets.token_hex(16), time=wall())
    log.info("checkpoints of %s at %s: epoch %d", job, url, claim.head.epoch)
    interval = Interval(seconds=interval_seconds, steps=interval_steps)
    checkpoints = Checkpoints(claim, interval=interval, keep=keep, stop=stop, clock=clock, wall=wall)
    _open.add(checkpoints)
    return checkpoints


def _checked(url: str, seconds: float | None, steps: int | None, keep: int) -> Location:
    problems = []
    if seconds is not None and not seconds > 0:
        problems.append(f"interval_seconds: {seconds}: write a number above 0, or None")
    if steps is not None and steps < 1:
        problems.append(f"interval_steps: {steps}: write a whole number of at least 1, or None")
    if keep < 1:
        problems.append(f"keep: {keep}: at least 1 must stay")
    try:
        location = Location.parse(url)
    except CheckpointUrlError as error:
        problems.insert(0, str(error))
    if problems:
        raise CheckpointUrlError("\n".join(problems))
    return location
