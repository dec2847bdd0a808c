"""Watches whether this rank gets on: says in the log where it waits or computes for too long, and leaves word of it.

A thread looks at what the training thread does (`collective_calls`). If it waits for a rank that has left its training
function, the process ends: nobody else could end the wait. Each rank knows of itself alone; which ranks wait for which
is put together by who hears all of them: the sidecar, which asks each worker for its ranks' files while no step gets
done (`contract.WAIT_FILE`). Only the training function is watched: the start, a resize and the end have waits of their
own, and so has a commit that must become durable.
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
from hvd_elastic.trainer.collectives.collective_calls import CollectiveCalls, Occupation
from hvd_elastic.trainer.elastic.mistakes import early_end, script_mistake, swallowed_interrupt
from hvd_elastic.trainer.elastic.mistakes.early_end import EarlyEnd
from hvd_elastic.trainer.elastic.stalls.stall_reports import StallReport, StallReports
from hvd_elastic.trainer.telemetry.code_places import place_of
from hvd_elastic.trainer.telemetry.heartbeat import run_dir

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_LOOKS: Final = 4
"""At least so many within the time after which a stall is told."""
_WORD_SECONDS: Final = 5.0
"""Word is left sooner than the log says it: when the first rank's wait is told, the others have left theirs."""
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
        *,
        clock: Callable[[], float] = time.monotonic,
        give_up: Callable[[str], None] = script_mistake.end_process,
    ) -> None:
        """`clock`: the one of `calls`. `give_up` ends the process with a sentence."""
        self._calls, self._early_end, self._clock, self._give_up = calls, early_end, clock, give_up
        self._reports = StallReports(STALL_SECONDS)
        self._after = STALL_SECONDS
        self._rank = self._size = self._local_rank = 0
        self._step: int | None = None
        self._thread = 0
        self._watching = 0
        """Above 0: the training function runs, and waits for nothing of ours."""
        self._started = self._has_word = False

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
        self._rank, self._size, self._local_rank, self._thread = rank, size, local_rank, threading.get_ident()
        self._calls.install()
        self._calls.restart()
        self._start()
        self._watching = 1
        try:
            yield
        finally:
            self._watching = 0
            if self._has_word:
                self._withdraw_word()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not watch for the duration of the block: this wait has a reason, and a report of its own."""
        self._watching -= 1
        try:
            yield
        finally:
            self._calls.mark()
            self._watching += 1

    def note_step(self, step: int) -> None:
        """A commit: the training gets on."""
        self._step = step
        self._calls.mark()

    def look(self) -> None:
        """Say and write what is due. The thread does this every second."""
        watched = self._watching > 0
        present, now = self._calls.occupation() if watched else None, self._clock()
        for report in self._reports.look(present, now):
            logger.warning("%s", self._sentence(report))
        if present is not None and now - present.since >= min(_WORD_SECONDS, self._after / 2):
            self._leave_word(present, now - present.since)
            if present.operation:
                self._look_for_early_end(present)
        elif self._has_word:
            self._withdraw_word()

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
            threading.Thread(target=self._run, name="stall-watch", daemon=True).start()

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
        return "" if self._step is None else f" (step {self._step})"

    def _place(self, operation: str) -> str:
        """Where it computes in a library is worth knowing; where it waits in Horovod is known."""
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


THIS_PROCESS: Final = StallWatch(CollectiveCalls(failed=swallowed_interrupt.THIS_PROCESS.note), early_end.THIS_PROCESS)
"""`elastic.run` begins the watch and a `State` tells it of steps: a script makes each of them without the other."""
