"""Where a slot of a worker stands, and what follows when its process ends. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FAILED_STARTS_LIMIT: Final = 2
"""A script that ended this often before its first `hvd.init()` is left to the launcher: the pod becomes Ready without a
standby, and the launcher's command starts the script, so that its message and exit code reach the job."""

_FIRST_DELAY_SECONDS: Final = 1.0
_LONGEST_DELAY_SECONDS: Final = 30.0


class SlotPhase(StrEnum):
    """Of one slot."""

    RESTING = "resting"
    """Nothing runs; a start is due."""
    WARMING = "warming"
    """A standby runs the script, on its way to `hvd.init()`."""
    WAITING = "waiting"
    """The standby is there."""
    COLD = "cold"
    """No standby, by choice or because the script cannot be run ahead: a command is started when it comes."""
    TRAINING = "training"
    """A launcher's command runs."""
    DONE = "done"
    """The training process ended with 0 and the launcher knows: nothing is left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHistory:
    """What a slot has been through since it last trained."""

    failed_starts: int = 0
    """Standbys in a row that ended on their way to `hvd.init()`."""

    lost_standbys: int = 0
    """Standbys in a row that ended while they waited (killed, out of memory)."""

    cold: bool = False
    """The script was left to the launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What to do after a process ended."""

    phase: SlotPhase
    """RESTING (start a standby after the delay), COLD or DONE."""

    record: SlotHistory
    delay_seconds: float = 0.0


def after_end(phase: SlotPhase, code: int, record: SlotHistory, *, delivered: bool, claimed: bool) -> Next:
    """Say what follows when the process of a slot in `phase` ended with `code`.

    `delivered`: the launcher has taken the code. `claimed`: another command waits for the slot already.
    """
    if phase is SlotPhase.TRAINING:
        return _after_training(code, record, delivered=delivered, claimed=claimed)
    if phase is SlotPhase.WAITING:
        lost = record.lost_standbys + 1
        return _rest(SlotHistory(lost_standbys=lost), _delay(lost - 1))
    failed = record.failed_starts + 1
    if code == 0 or failed >= FAILED_STARTS_LIMIT:
        return Next(phase=SlotPhase.COLD, record=SlotHistory(failed_starts=failed, cold=True))
    return _rest(SlotHistory(failed_starts=failed, lost_standbys=record.lost_standbys), _delay(failed))


def _after_training(code: int, record: SlotHistory, *, delivered: bool, claimed: bool) -> Next:
    if code == 0 and delivered and not claimed:
        return Next(phase=SlotPhase.DONE, record=SlotHistory())
    # What kept the script from starting ahead may be over: one try more, not two.
    failed = FAILED_STARTS_LIMIT - 1 if record.cold else 0
    return _rest(SlotHistory(failed_starts=failed), 0.0)


def _rest(record: SlotHistory, delay_seconds: float) -> Next:
    return Next(phase=SlotPhase.RESTING, record=record, delay_seconds=delay_seconds)


def _delay(times: int) -> float:
    """0, 1, 2, 4 ... seconds for the first, second, third, fourth time, 30 at most."""
    if times <= 0:
        return 0.0
    return min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2.0 ** min(times - 1, 10))
