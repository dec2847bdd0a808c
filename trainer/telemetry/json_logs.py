"""The log of a training process as JSON, if the job asks for it: one object per line on stderr.

::

    {"time": "2026-01-01T12:00:00.123+00:00", "level": "info", "logger": "hvd_elastic.trainer.telemetry.events",
     "message": "step", "rank": 0, "size": 2, "step": 41, "epoch": 3, "loss": 0.52}

Every event (`trainer.telemetry.events`) becomes a line, and so does every record of this package's loggers, with the
rank, size and step of the latest event. The script's own logging is not changed.
"""

import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.strict_json import strict_json

JSON: Final = "json"
"""Value of `contract.ENV_LOG_FORMAT`."""

_PACKAGE: Final = "hvd_elastic"
_WORLD: Final = ("rank", "size", "step")
_FIELDS: Final = "event_fields"

log = logging.getLogger(events.__name__)


class JsonLines(logging.Formatter):
    """Renders log records, with the rank, size and step of the latest event."""

    def __init__(self) -> None:
        super().__init__()
        self._world: dict[str, object] = {}

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, object] = getattr(record, _FIELDS, {})
        self._world.update({name: fields[name] for name in _WORLD if name in fields})
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._world,
            **fields,
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return strict_json(entry, ensure_ascii=False)


def configure(environ: Mapping[str, str] = os.environ) -> bool:
    """Log as JSON if the job asks for it. Returns whether it does. A second call changes nothing."""
    if environ.get(ENV_LOG_FORMAT) != JSON:
        return False
    package = logging.getLogger(_PACKAGE)
    if not any(isinstance(handler.formatter, JsonLines) for handler in package.handlers):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        package.addHandler(handler)
        package.setLevel(logging.INFO)
        package.propagate = False
        events.subscribe(_on_event)
    return True


def _on_event(event: events.Event) -> None:
    fields = {name: value for name, value in event.items() if name not in ("time", "event")}
    log.info("%s", event["event"], extra={_FIELDS: fields})
