"""What happens to a training process, told to whoever listens: the events folder of the job, and metrics.

With `contract.ENV_EVENTS` set, every process appends one JSON object a line to a file of its own in that folder::

    {"time": 1700000000.123, "event": "step", "rank": 0, "size": 2, "step": 41, "epoch": 3, "loss": 0.52}
    {"time": ..., "event": "reset", "rank": 0, "size": 3, "step": 41, "cause": "hosts", "seconds": 0.31, "from": 2}

`step` counts commits since the job began, over all processes that ever held the state. Fields beyond the contract's:

* step: `epoch`, `samples` (global samples of the epoch so far), `seconds` since the commit before, whatever the
  script gave to `state.log()` or `state.commit()`;
* reset: `cause` (a value of Cause), `seconds` that this process stood still, `from` (the size before);
* joined: `seconds` from the process's start of `elastic.run` to its first step's world;
* epoch: `epoch`, the one that begins.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from hvd_elastic.mpijob.contract import ENV_EVENTS


class Kind(StrEnum):
    """Values of `event`."""

    STEP = "step"
    RESET = "reset"
    JOINED = "joined"
    LEFT = "left"
    EPOCH = "epoch"


class Cause(StrEnum):
    """Why training stood still."""

    HOSTS = "hosts"
    """Hosts came or went: nothing was lost."""
    FAILURE = "failure"
    """A peer died: back to the last commit."""


Event = Mapping[str, object]
Listener = Callable[[Event], None]

_listeners: list[Listener] = []


def subscribe(listener: Listener) -> None:
    """Have `listener` called with every event from now on, in the training thread: it must be quick."""
    if listener not in _listeners:
        _listeners.append(listener)


def unsubscribe(listener: Listener) -> None:
    """Undo `subscribe`; does nothing where there was none."""
    if listener in _listeners:
        _listeners.remove(listener)


def heard() -> bool:
    """Whether anybody listens; what costs something to find out need not be found out otherwise."""
    return bool(_listeners) or bool(os.environ.get(ENV_EVENTS))


def emit(kind: Kind, *, rank: int, size: int, step: int, **fields: object) -> None:
    """Tell every listener, and the events folder where there is one."""
    folder = os.environ.get(ENV_EVENTS)
    if not heard():
        return
    event = {"time": time.time(), "event": kind.value, "rank": rank, "size": size, "step": step, **fields}
    if folder:
        _file(folder).write(json.dumps(event, default=plain) + "\n")
    for listener in tuple(_listeners):
        listener(event)


_files: dict[tuple[str, int], TextIO] = {}


def _file(folder: str) -> TextIO:
    """The process's file, opened at its first event; a fork gets one of its own."""
    key = folder, os.getpid()
    if key not in _files:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        host = os.environ.get("HOROVOD_HOSTNAME", socket.gethostname())
        _files[key] = (path / f"{host}-{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1, encoding="utf-8")
    return _files[key]


def plain(value: object) -> object:
    """Tensors and numpy numbers as what they hold, anything else as text: for `json.dumps`."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)
