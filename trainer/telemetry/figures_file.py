"""FIGURES_FILE: what rank 0's process says about the training, from its events.

Every process hears the events and knows the loss, the speed and the pauses that it saw itself. Only rank 0's writes, so
when rank 0 changes, the new one goes on with what it knows: a survivor with the pauses of its own life, a newcomer with
none. The last durable checkpoint is known to who wrote it or was restored from it: a new rank 0 knows one as soon as it
has stored its first, which it begins at once.

At the end of training the last figures go to the launcher as well: whoever asks for the file now and then may come when
the process is gone.
"""

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from hvd_elastic.mpijob.contract import FIGURES_FILE
from hvd_elastic.system.atomic_file import replace_file
from hvd_elastic.trainer.checkpoint.checkpoints import SaveCounts, save_error_of_this_process, saves_of_this_process
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.heartbeat import PERIOD_SECONDS, run_dir
from hvd_elastic.trainer.telemetry.logged_metrics import LoggedMetrics
from hvd_elastic.trainer.telemetry.loss_reading import LossReading
from hvd_elastic.trainer.telemetry.step_rate import StepRate

PAUSES: Final = 8
"""Resizes that are told. Who asks every few seconds misses none."""
_MAX_WORDS: Final = 300
"""Characters of what the certificate of samples proves, and of why nothing gets durable."""
_COUNTS: Final = range(10**18)


class FiguresWriter:
    """Replaces FIGURES_FILE at most once a second, after a step. `on_event` is an `events.Listener`."""

    def __init__(
        self,
        *,
        saves: Callable[[], SaveCounts | None] = saves_of_this_process,
        save_error: Callable[[], str] = save_error_of_this_process,
        samples: Callable[[], str] = str,
        publish: Callable[[str], None] = lambda _line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._saves, self._save_error, self._clock = saves, save_error, clock
        self.samples = samples
        """What was last proved of the samples; empty: nothing."""
        self.publish = publish
        """Gives the launcher the last figures, as the file has them."""
        self._rate, self._loss, self._metrics = StepRate(), LossReading(), LoggedMetrics()
        self._pauses: deque[dict[str, Any]] = deque(maxlen=PAUSES)
        self._has_stepped = True
        """Whether a step was done since the last pause."""
        self._pause_began = 0.0
        """When the last pause began, by a clock that does not jump."""
        self._reached = 0
        """The last step that this process has done."""
        self._began: tuple[int | None, object] = (None, None)
        """Step and time at which it came into its first world."""
        self._next = float("-inf")
        self._last_step: events.Event | None = None
        self._is_written = False
        self.loss: float | None = None
        """As it was last written; None on all ranks but 0. Any thread may read."""

    def on_event(self, event: events.Event) -> None:
        """Take one event into account, and write the file if it is time."""
        match event["event"]:
            case events.Kind.STEP:
                self._step(event)
            case events.Kind.RESET:
                self._note_pause(event)
            case events.Kind.JOINED:
                self._began = _count(event["step"]), event["time"]
            case events.Kind.ENDED:
                self._end(event)
        if event["rank"] != 0 or event["event"] == events.Kind.LEFT:
            self.loss = None
            if self._is_written:
                self._withdraw()

    def _step(self, event: events.Event) -> None:
        self._reached, self._has_stepped, self._last_step = _count(event["step"]) or 0, True, event
        self._note_logged(event)
        now = self._clock()
        if now < self._next and self._rate.has_begun:
            return
        self._rate.mark(now, self._reached)
        if now >= self._next:
            self._next = now + PERIOD_SECONDS
            if event["rank"] == 0:
                self._write(self._document(event))

    def _end(self, event: events.Event) -> None:
        """Write what the last step has left, however soon it came after the one before, and publish it."""
        self._note_logged(event)
        last = self._last_step or event  # a process that came at the end has seen no step
        if event["rank"] == 0 and last["step"]:
            self.publish(self._write(self._document({**last, "size": event["size"]}, is_last=True)))

    def _note_logged(self, event: events.Event) -> None:
        if "loss" in event:
            self._loss.note(event["loss"])
        self._metrics.note(event)

    def _note_pause(self, event: events.Event) -> None:
        """A world in which no step is done is a part of the pause that it was to end."""
        step = _count(event["step"]) or 0
        pause: dict[str, Any] = {
            "unix": event["time"],
            "seconds": event["seconds"],
            "from": event.get("from", event["size"]),
            "to": event["size"],
            "step": step,
            "repeated": max(0, self._reached - step),
        }
        if not self._has_stepped and self._pauses:
            before = self._pauses.pop()
            pause |= {"from": before["from"], "seconds": round(self._clock() - self._pause_began, 4)}
            pause["repeated"] += before["repeated"]
        else:
            self._pause_began = self._clock() - pause["seconds"]
        self._pauses.append(pause)
        self._reached, self._has_stepped = step, False
        self._rate.restart()

    def _document(self, event: events.Event, *, is_last: bool = False) -> dict[str, object]:
        """What is known at a step. `is_last`: nothing follows, so it may wait for a GPU."""
        saves = self._saves() or SaveCounts()
        rate = self._rate.per_second
        self.loss = self._loss.number(wait=is_last)
        return {
            "unix": event["time"],
            "step": event["step"],
            "size": event["size"],
            "epoch": _count(event.get("epoch")),
            "steps_per_second": round(rate, 6) if rate is not None else None,
            "loss": self.loss,
            "metrics": self._metrics.numbers(wait=is_last) or None,
            "durable_step": saves.durable_step,
            "durable": saves.durable_time,
            "save_error": _short(self._save_error()) or None,
            "rejected": _short(saves.rejected) or None,
            "began_step": self._began[0],
            "began": self._began[1],
            "samples": _short(self.samples()) or None,
            "pauses": list(self._pauses),
        }

    def _write(self, document: dict[str, Any]) -> str:
        """Return the line that was written."""
        known = {name: value for name, value in document.items() if value is not None}
        line = json.dumps(known, separators=(",", ":")) + "\n"
        with contextlib.suppress(OSError):  # nobody reads them then
            replace_file(run_dir() / FIGURES_FILE, line)
            self._is_written = True
        return line

    def _withdraw(self) -> None:
        """Remove the file: another process is rank 0 now."""
        self._is_written = False
        with contextlib.suppress(OSError):
            (run_dir() / FIGURES_FILE).unlink(missing_ok=True)


def _short(words: str) -> str:
    """A name in it may be in any script, which JSON writes in six bytes a character."""
    return words.encode("ascii", "replace").decode()[:_MAX_WORDS]


def _count(value: object) -> int | None:
    """A script's epoch may be anything."""
    return value if isinstance(value, int) and value in _COUNTS else None


_THIS_PROCESS: Final = FiguresWriter()
"""It hears the events of the process, which are one stream, and writes the one file of its pod."""


def loss_of_this_process() -> float | None:
    """The last loss that the script logged, at most a second or two old; None on all ranks but 0."""
    return _THIS_PROCESS.loss


def start(samples: Callable[[], str], publish: Callable[[str], None]) -> None:
    """Write figures from now on if there is an entry point that reads them. A second call does nothing.

    Args:
        samples: returns what was last proved of the samples; empty: nothing.
        publish: gives the launcher the last figures, as the file has them.
    """
    if run_dir().is_dir():
        _THIS_PROCESS.samples, _THIS_PROCESS.publish = samples, publish
        events.subscribe(_THIS_PROCESS.on_event)
