"""The phases of a slot of a worker, and what follows when its process ends. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.system.backoff import Backoff

FAILED_STARTS_LIMIT: Final = 2
"""After this many ends before the first `hvd.init()` the script is left to the launcher. The pod becomes Ready without
a standby, and the launcher's command starts the script, so that its message and exit code reach the job."""

_BACKOFF: Final = Backoff(first_seconds=1.0, most_seconds=30.0)


class SlotPhase(StrEnum):
    """What a slot is doing."""

    RESTING = "resting"
    """No process runs; a start is due."""
    WARMING = "warming"
    """A standby runs the script, on its way to `hvd.init()`."""
    WAITING = "waiting"
    """The standby waits in `hvd.init()`."""
    COLD = "cold"
    """There is no standby, by choice or because the script cannot be run ahead. A command is started when it comes."""
    TRAINING = "training"
    """A launcher's command runs."""
    DONE = "done"
    """The training process ended with 0 and the launcher knows it. Nothing is left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHistory:
    """What has happened in a slot since it last trained."""

    failed_starts: int = 0
    """Standbys in a row that ended on their way to `hvd.init()`."""

    lost_standbys: int = 0
    """Standbys in a row that ended while they waited (killed, out of memory)."""

    is_cold: bool = False
    """The script was left to the launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextPhase:
    """What to do after a process has ended."""

    phase: SlotPhase
    """RESTING (start a standby after the delay), COLD or DONE."""

    history: SlotHistory
    delay_seconds: float = 0.0


def after_end(phase: SlotPhase, code: int, history: SlotHistory, *, is_delivered: bool, is_replaced: bool) -> NextPhase:
    """Return what follows when the process of a slot in `phase` ends with `code`.

    `is_delivered`: the launcher has received the code. `is_replaced`: another command already waits for the slot.
    """
    if phase is SlotPhase.TRAINING:
        return _after_training(code, history, is_delivered=is_delivered, is_replaced=is_replaced)
    if phase is SlotPhase.WAITING:
        lost = history.lost_standbys + 1
        return _rest(SlotHistory(lost_standbys=lost), _BACKOFF.ceiling(lost - 1))
    failed = history.failed_starts + 1
    if code == 0 or failed >= FAILED_STARTS_LIMIT:
        return NextPhase(phase=SlotPhase.COLD, history=SlotHistory(failed_starts=failed, is_cold=True))
    return _rest(SlotHistory(failed_starts=failed, lost_standbys=history.lost_standbys), _BACKOFF.ceiling(failed))


def _after_training(code: int, history: SlotHistory, *, is_delivered: bool, is_replaced: bool) -> NextPhase:
    if code == 0 and is_delivered and not is_replaced:
        return NextPhase(phase=SlotPhase.DONE, history=SlotHistory())
    # What kept the script from starting ahead may be over: it gets one more try, not two.
    failed = FAILED_STARTS_LIMIT - 1 if history.is_cold else 0
    return _rest(SlotHistory(failed_starts=failed), 0.0)


def _rest(history: SlotHistory, delay_seconds: float) -> NextPhase:
    return NextPhase(phase=SlotPhase.RESTING, history=history, delay_seconds=delay_seconds)
