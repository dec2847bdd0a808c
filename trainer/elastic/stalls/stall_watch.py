"""Watches whether this rank gets on: says in the log where it waits or computes for too long, and leaves word of it.

A thread looks at what the training thread does (`collective_calls`). If it waits for a rank that has left its training
function, or all ranks wait in unlike operations (`deadlock_search`), the process ends: nobody else could end the wait.
Which ranks wait for which is put together by who hears all of them: the sidecar, which asks each worker for its ranks'
files while no step gets done (`contract.WAIT_FILE`). Outside the training function only a wait is told, and only in the
log: a script may load its data there for an hour. Waits for what becomes durable, in a commit or at the end, have a
report of their own.
"""

import contextlib
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from hvd_elastic.mpijob.contract import ENV_STALL_SECONDS, STALL_SECONDS, WAIT_FILE, Exit, HvdElasticError
from hvd_elastic.system.atomic_file import replace_file
from hvd_elastic.system.background_threads import start_thread
from hvd_elastic.trainer.collectives import collective_calls
from hvd_elastic.trainer.collectives.collective_calls import CollectiveCalls, Occupation
from hvd_elastic.trainer.elastic.mistakes import early_end, script_mistake, swallowed_interrupt
from hvd_elastic.trainer.elastic.mistakes.early_end import EarlyEnd
from hvd_elastic.trainer.elastic.stalls.deadlock_search import DeadlockSearch, StandingRank
from hvd_elastic.trainer.elastic.stalls.stall_reports import StallReport, StallReports
from hvd_elastic.trainer.telemetry.code_places import place_of
from hvd_elastic.trainer.telemetry.heartbeat import run_dir

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_LOOKS: Final = 4
"""At least so many within the time after which a stall is told."""
_WORD_SECONDS: Final = 5.0
"""Word is left sooner than the log says it: when the first rank's wait is told, the others have left theirs."""
OUTSIDE_SECONDS: Final = 10.0
"""A wait outside the training function is told after so long: nothing that takes time is shared there."""
_MAX_WORDS: Final = 160
"""Characters of an operation or a place: a script may give any name."""


class StallSettingError(HvdElasticError):
    """ENV_STALL_SECONDS is not a number of seconds."""

    exit_code = Exit.BAD_INPUT


class StallWatch:
    """The watch of one process."""

    def __init__(
        self,
        calls: CollectiveCalls,
        early_end: EarlyEnd,
        deadlocks: DeadlockSearch,
        *,
        clock: Callable[[], float] = time.monotonic,
        give_up: Callable[[str], None] = script_mistake.end_process,
    ) -> None:
        """`clock`: the one of `calls`. `give_up` ends the process with a sentence."""
        self._calls, self._early_end, self._deadlocks = calls, early_end, deadlocks
        self._clock, self._give_up = clock, give_up
        self._reports = StallReports(STALL_SECONDS)
        self._outside = StallReports(OUTSIDE_SECONDS, tells_computing=False)
        self._after = STALL_SECONDS
        self._rank = self._size = self._local_rank = 0
        self._step: int | None = None
        self._thread = 0
        self._is_training = False
        self._pauses = 0
        """Above 0: the thread waits for something of ours."""
        self._started = self._has_word = False

    def enter_world(self, rank: int, size: int) -> None:
        """Watch the calling thread from now on, also outside of `training`: it is `rank` of a new world of `size`."""
        with contextlib.suppress(StallSettingError):  # `training` raises it, where it is told
            self._after = stall_seconds()
        self._calls.install()  # how long a process waits is counted whether or not it is told
        if self._after:
            self._rank, self._size, self._thread = rank, size, threading.get_ident()
            self._calls.restart()
            self._start()

    @contextlib.contextmanager
    def training(self, rank: int, size: int, local_rank: int) -> Iterator[None]:
        """Watch the calling thread for the duration of the block.

        Raises:
            StallSettingError: see there.
        """
        self._after = stall_seconds()
        if not self._after:
            yield
            return
        self.enter_world(rank, size)
        self._local_rank = local_rank
        self._is_training = True
        try:
            yield
        finally:
            self._is_training = False
            if self._has_word:
                self._withdraw_word()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not watch for the duration of the block: this wait has a reason, and a report of its own."""
        self._pauses += 1
        try:
            yield
        finally:
            self._calls.mark()
            self._pauses -= 1

    def note_step(self, step: int) -> None:
        """A commit: the training gets on."""
        self._step = step
        self._calls.mark()

    def look(self) -> None:
        """Say and write what is due. The thread does this every second."""
        occupation, now = None if self._pauses else self._calls.occupation(), self._clock()
        present, outside = (occupation, None) if self._is_training else (None, occupation)
        for report in (*self._reports.look(present, now), *self._outside.look(outside, now)):
            logger.warning("%s", self._sentence(report))
        is_long = occupation is not None and now - occupation.since >= min(_WORD_SECONDS, self._after / 2)
        if present is not None and is_long:
            self._leave_word(present, now - present.since)
            if present.operation:
                self._look_for_early_end(present)
        elif self._has_word:
            self._withdraw_word()
        if occupation is not None and occupation.operation and is_long:
            self._look_for_deadlock(occupation)

    def _look_for_deadlock(self, present: Occupation) -> None:
        operation = present.operation
        standing = StandingRank.of(present.number, operation, self._place(operation), self._calls.begun())
        found = self._deadlocks.look(self._rank, self._size, standing) if standing is not None else None
        if found:
            self._give_up(
                f"{found}: neither can ever be done, because each waits for the other. All ranks must call the same "
                "operations in the same order, and state.commit() is one: decide on all alike with elastic.agree(...)"
            )

    def _look_for_early_end(self, present: Occupation) -> None:
        left = self._early_end.find(present.number)
        if left:
            self._give_up(
                f"{left}, while rank {self._rank} waits for it in {present.operation}{self._step_words()}, at "
                f"{self._place(present.operation)}. All ranks must leave it at the same step: decide on all alike with "
                "elastic.agree(...)"
            )

    def _start(self) -> None:
        """Start the thread, the first time that this is called."""
        if not self._started:
            self._started = True
            self._reports = StallReports(self._after)
            start_thread("stall-watch", self._run, log=logger)

    def _run(self) -> None:
        while True:
            time.sleep(min(_LOOK_SECONDS, self._after / _LOOKS))
            self.look()

    def _sentence(self, report: StallReport) -> str:
        if report.is_over:
            did = f"waited in {report.operation}" if report.operation else "computed"
            return f"rank {self._rank} goes on after {report.seconds:.0f} s, in which it {did}"
        where = f", at {self._place(report.operation)}"
        step = self._step_words()
        if report.operation:
            return f"rank {self._rank} has waited {report.seconds:.0f} s in {report.operation}{step}{where}"
        return f"rank {self._rank} has computed for {report.seconds:.0f} s without a collective operation{step}{where}"

    def _step_words(self) -> str:
        return f" (step {self._step})" if self._is_training and self._step is not None else ""

    def _place(self, operation: str) -> str:
        """Where it computes in a library is worth knowing; where it waits there is known."""
        return place_of(self._thread, library=not operation)[:_MAX_WORDS]

    def _leave_word(self, present: Occupation, seconds: float) -> None:
        document = {
            "rank": self._rank,
            "size": self._size,
            "step": self._step,
            "seconds": round(seconds, 1),
            "after": self._after,
            "operation": present.operation[:_MAX_WORDS],
            "place": self._place(present.operation),
        }
        known = {name: value for name, value in document.items() if value not in (None, "")}
        self._has_word = True
        with contextlib.suppress(OSError):  # nobody reads it then
            replace_file(run_dir() / f"{WAIT_FILE}.{self._local_rank}", json.dumps(known, separators=(",", ":")) + "\n")

    def _withdraw_word(self) -> None:
        self._has_word = False
        with contextlib.suppress(OSError):
            (run_dir() / f"{WAIT_FILE}.{self._local_rank}").unlink(missing_ok=True)


def stall_seconds() -> float:
    """The time after which a stall is told; 0: never. Raises StallSettingError."""
    given = os.environ.get(ENV_STALL_SECONDS, "").strip()
    if not given:
        return STALL_SECONDS
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise StallSettingError(f"{ENV_STALL_SECONDS}: {given!r} is not a number of seconds; 0 turns the watch off")
    return seconds


collective_calls.THIS_PROCESS.failed = swallowed_interrupt.THIS_PROCESS.note
THIS_PROCESS: Final = StallWatch(collective_calls.THIS_PROCESS, early_end.THIS_PROCESS, DeadlockSearch())
"""`elastic.run` begins the watch and a `State` tells it of steps: a script makes each of them without the other."""
