"""What training says about itself: `contract.FIGURES_FILE` of rank 0's worker, as values.

The document comes from a pod in which anybody's script runs: a value of a wrong type, or outside the range that it can
have, counts as not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from hvd_elastic.system.plain_words import printable
from hvd_elastic.system.untrusted_values import END_OF_DATES, finite_number, one_line, whole_number

_MAX_PAUSES: Final = 8
_MAX_METRICS: Final = 16
_MAX_METRIC_NAME: Final = 64
_MAX_WORDS: Final = 300
_COUNTS: Final = range(10**18)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizePause:
    """One resize: training stood still, and went on in another world."""

    unix: float
    """Its end."""
    seconds: float
    from_size: int
    """Processes before; 0: not known."""
    to_size: int
    """Processes after; 0: not known."""
    step: int
    """The step that training went on with; -1: not known."""
    repeated: int
    """Steps that are done again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFigures:
    """The last figures of rank 0's process. What is not known has its default."""

    unix: float
    """When they were written: at a step, so their age is that of the last step, to a second."""
    step: int = -1
    size: int = 0
    """Processes that train together."""
    epoch: int = -1
    steps_per_second: float | None = None
    """Over the last half minute without a pause."""
    loss: float | None = None
    """None, too, if it is not a number."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last number that the script logged under each other name, sixteen names at most."""
    durable_step: int = -1
    durable: float | None = None
    """Unix seconds of the last durable checkpoint."""
    save_error: str = ""
    """Why nothing gets durable; empty: nothing says that it does not."""
    rejected: str = ""
    """The newest checkpoint, and why training did not begin with it; empty: it did, or there was none."""
    began_step: int = -1
    """The last step that was done when this process came into its first world."""
    began: float | None = None
    """Unix seconds of that."""
    samples: str = ""
    """What the certificate of samples proved at the end of the last epoch."""
    pauses: tuple[ResizePause, ...] = ()
    """The last eight that the process saw, oldest first."""
    age: float | None = field(default=None, compare=False)
    """Seconds since `unix` when the worker answered, by its own clock; None: it does not tell."""

    def shift(self, now: float) -> float:
        """What to add to these times to have them by a clock that shows `now`: a node's own may be an hour off."""
        return 0.0 if self.age is None else now - self.age - self.unix

    @classmethod
    def from_json(cls, value: object, told: object = None) -> "TrainingFigures | None":
        """None if the value is no object that says when it was written. `told`: the worker's time when it answered."""
        document = value if isinstance(value, dict) else {}
        unix = _time(document.get("unix"))
        if unix is None:
            return None
        rate, answered = finite_number(document.get("steps_per_second")), _time(told)
        return cls(
            unix=unix,
            step=_count(document.get("step"), unknown=-1),
            size=_count(document.get("size"), unknown=0),
            epoch=_count(document.get("epoch"), unknown=-1),
            steps_per_second=rate if rate is not None and rate >= 0 else None,
            loss=finite_number(document.get("loss")),
            metrics=metrics_from(document.get("metrics")),
            durable_step=_count(document.get("durable_step"), unknown=-1),
            durable=_time(document.get("durable")),
            save_error=one_line(document.get("save_error"), _MAX_WORDS) or "",
            rejected=one_line(document.get("rejected"), _MAX_WORDS) or "",
            began_step=_count(document.get("began_step"), unknown=-1),
            began=_time(document.get("began")),
            samples=one_line(document.get("samples"), _MAX_WORDS) or "",
            pauses=_pauses(document.get("pauses")),
            age=None if answered is None else max(0.0, answered - unix),
        )


def metrics_from(value: object) -> Mapping[str, float]:
    """The finite numbers by name; names that are too long, and more than sixteen, are left out."""
    numbers = ((name, finite_number(one)) for name, one in (value if isinstance(value, dict) else {}).items())
    known = ((printable(name), one) for name, one in numbers if one is not None and len(name) <= _MAX_METRIC_NAME)
    return dict(islice(known, _MAX_METRICS))


def _pauses(value: object) -> tuple[ResizePause, ...]:
    found = [_pause(each) for each in value[-_MAX_PAUSES:]] if isinstance(value, list) else []
    return tuple(pause for pause in found if pause is not None)


def _pause(value: object) -> ResizePause | None:
    """None without an end and a duration."""
    document = value if isinstance(value, dict) else {}
    unix, seconds = _time(document.get("unix")), _time(document.get("seconds"))
    if unix is None or seconds is None:
        return None
    return ResizePause(
        unix=unix,
        seconds=seconds,
        from_size=_count(document.get("from"), unknown=0),
        to_size=_count(document.get("to"), unknown=0),
        step=_count(document.get("step"), unknown=-1),
        repeated=_count(document.get("repeated"), unknown=0),
    )


def _time(value: object) -> float | None:
    return finite_number(value, least=0, below=END_OF_DATES)


def _count(value: object, *, unknown: int) -> int:
    count = whole_number(value, _COUNTS)
    return unknown if count is None else count
