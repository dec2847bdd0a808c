"""The last number that a script logged under each name, a bounded number of names."""

import re
from collections.abc import Mapping
from typing import Final

from hvd_elastic.trainer.telemetry.events import STEP_FIELDS
from hvd_elastic.trainer.telemetry.loss_reading import LossReading

MAX_METRICS: Final = 16
"""Names that are told: the first that the script logs."""
_NAME: Final = re.compile(r"[A-Za-z0-9_./:-]{1,64}")
"""Needs no escape in JSON, so that sixteen names fit into FIGURES_MAX_BYTES whatever they are."""
_OURS: Final = STEP_FIELDS | {"loss"}
"""Told by themselves, or no metrics."""


class LoggedMetrics:
    """Takes the events of steps, and turns values into numbers when somebody asks."""

    def __init__(self) -> None:
        self._readings: dict[str, LossReading] = {}

    def note(self, event: Mapping[str, object]) -> None:
        for name in event.keys() - _OURS:
            if reading := self._readings.get(name) or self._new(name):
                reading.note(event[name])

    def numbers(self, *, wait: bool = False) -> dict[str, float]:
        """By name, those that are one finite number. `wait`: see LossReading."""
        read = {name: reading.number(wait=wait) for name, reading in sorted(self._readings.items())}
        return {name: number for name, number in read.items() if number is not None}

    def _new(self, name: str) -> LossReading | None:
        if len(self._readings) >= MAX_METRICS or not _NAME.fullmatch(name):
            return None
        return self._readings.setdefault(name, LossReading())
