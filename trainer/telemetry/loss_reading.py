"""The last loss as a number, read without waiting for a GPU."""

import math
from typing import Any

from hvd_elastic.trainer.telemetry.strict_json import single_value


class LossReading:
    """Holds the last value that the script logged, and turns it into a number when somebody asks.

    To read a value on a GPU is to wait until the GPU has done all that was queued before. So such a value is copied in
    the background, and the number is that of the question before: a second older.
    """

    def __init__(self) -> None:
        self._last: Any = None
        self._copy: tuple[Any, Any] | None = None
        """A copy in host memory, and the event after which it is complete."""
        self._known: float | None = None

    def note(self, value: object) -> None:
        """Keep a value: a number, or a tensor or array of one element. Its graph, if it has one, is not kept."""
        detach = getattr(value, "detach", None)
        self._last = detach() if callable(detach) else value

    def number(self, *, wait: bool = False) -> float | None:
        """The last value that is known; None if there is none, or if it is not one finite number.

        `wait`: for the GPU, too. Then it is the last value itself.
        """
        if wait or not getattr(self._last, "is_cuda", False):
            return _finite(self._last)
        if self._copy is not None and self._copy[1].query():
            self._known, self._copy = _finite(self._copy[0]), None
        if self._copy is None:
            self._copy = _copy_in_background(self._last)
        return self._known


def _copy_in_background(value: Any) -> tuple[Any, Any]:
    """Begin to copy a tensor from its GPU to pinned host memory."""
    import torch

    copy = value.to("cpu", non_blocking=True)
    done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record(torch.cuda.current_stream(value.device))
    return copy, done


def _finite(value: Any) -> float | None:
    number = single_value(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    try:
        return float(number) if math.isfinite(number) else None
    except OverflowError:
        return None
