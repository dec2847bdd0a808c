"""Events of a training process, for the events folder of the job, for metrics and for other listeners.

If `contract.ENV_EVENTS` names a folder, every process appends JSON objects, one per line, to a file of its own there::

    {"time": 1700000000.123, "event": "step", "rank": 0, "size": 2, "step": 41, "epoch": 3, "loss": 0.52}
    {"time": ..., "event": "reset", "rank": 0, "size": 3, "step": 41, "cause": "hosts", "seconds": 0.31, "from": 2}

`step` counts commits since the job began, over all its workers and restarts. Fields beyond the contract's:

* step: `epoch`, `samples` (samples of the epoch so far, over all workers), `seconds` since the previous commit, and
  the values that the script gave to `state.log()` or `state.commit()`;
* reset: `cause` (a value of PauseCause), `seconds` without training in this process, `from` (the previous size);
* joined: `seconds` from the start of `elastic.run` in this process to its first world;
* epoch: `epoch`, the epoch that begins;
* checkpoint: a save to the durable tier has ended, seen by the writer at its next commit: `saved` (the step that was
  stored), `seconds`, `bytes`, and `error`, which is empty if the step is durable. At the start of a job whose state is
  never stored: `saved` is null, and `error` says why;
* ended: this process has left its training function, and the last commit is as durable as it gets. With the values that
  the script logged after its last commit.

A number that is not finite is null: a loss that is NaN, too. A folder that cannot be written, or is full, costs its
lines, and a listener that fails its events. Training goes on, and the log says once what is lost.
"""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import ENV_EVENTS
from hvd_elastic.system.background_threads import ErrorLog
from hvd_elastic.trainer.telemetry.strict_json import strict_json

log = logging.getLogger(__name__)

STEP_FIELDS: Final = frozenset({"time", "event", "rank", "size", "step", "epoch", "samples", "seconds"})
"""Fields of a step's event that a script cannot log: they are what they say."""


class Kind(StrEnum):
    """Values of `event`."""

    STEP = "step"
    RESET = "reset"
    JOINED = "joined"
    LEFT = "left"
    EPOCH = "epoch"
    CHECKPOINT = "checkpoint"
    ENDED = "ended"


class PauseCause(StrEnum):
    """Why training paused."""

    HOSTS = "hosts"
    """Hosts were added or removed: no step was lost."""
    FAILURE = "failure"
    """A peer died: training went back to the last commit."""


Event = Mapping[str, object]
Listener = Callable[[Event], None]

_listeners: list[Listener] = []
_errors = ErrorLog(log)


def subscribe(listener: Listener) -> None:
    """Call `listener` with every event from now on. It runs in the training thread, so it must be fast.

    What it raises is logged, and goes no further.
    """
    if listener not in _listeners:
        _listeners.append(listener)


def unsubscribe(listener: Listener) -> None:
    """Undo `subscribe`. Does nothing if `listener` is not subscribed."""
    if listener in _listeners:
        _listeners.remove(listener)


def enabled() -> bool:
    """Whether events go anywhere. If not, the caller need not compute their fields."""
    return bool(_listeners) or bool(os.environ.get(ENV_EVENTS))


def emit(kind: Kind, /, *, rank: int, size: int, step: int, **fields: object) -> None:
    """Send an event to every listener, and to the events folder if the job has one."""
    folder = os.environ.get(ENV_EVENTS)
    if not enabled():
        return
    event = {"time": time.time(), "event": kind.value, "rank": rank, "size": size, "step": step, **fields}
    for listener in (*([_file(folder).write] if folder else []), *_listeners):
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - what is told of training must not end it
            _errors.say("an event is lost", error)


class EventsFile:
    """A process's own file of lines. A line is in it whole or not at all."""

    def __init__(self, path: Path) -> None:
        """The file is made at its first line, and tried again at each later one if that fails."""
        self._path = path
        self._descriptor: int | None = None
        self._lost = 0
        """Lines, since the last one that was written."""

    def write(self, event: Event) -> None:
        """Write an event as a line, if that is possible."""
        line = strict_json(event).encode() + b"\n"
        try:
            self._append(line)
        except OSError as error:
            if not self._lost:
                log.warning("events are lost, because %s cannot be written: %s", self._path, error.strerror)
            self._lost += 1
            return
        if self._lost:
            log.warning("%s is written again; %d events were lost", self._path, self._lost)
            self._lost = 0

    def _append(self, line: bytes) -> None:
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise


_files: dict[tuple[str, int], EventsFile] = {}


def _file(folder: str) -> EventsFile:
    """Return the process's file. A forked process gets a file of its own."""
    key = folder, os.getpid()
    if key not in _files:
        host = os.environ.get("HOROVOD_HOSTNAME", socket.gethostname())
        _files[key] = EventsFile(Path(folder) / f"{host}-{os.getpid()}-{time.time_ns()}.jsonl")
    return _files[key]
