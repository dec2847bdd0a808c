"""Logs on stderr: text for people, one JSON object per line for machines. Only the command line configures logging."""

import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from hvd_elastic.system.plain_words import printable_json


class LogFormat(StrEnum):
    """Values of `hvd_elastic.mpijob.contract.ENV_LOG_FORMAT`."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """One object per line: time (RFC 3339, UTC), level, logger, message, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return printable_json(entry)


def configure(format: LogFormat | str = LogFormat.TEXT, level: int = logging.INFO) -> None:  # noqa: A002 - as the flag
    """Send all logs of this process to stderr. Raises ValueError for an unknown format."""
    handler = logging.StreamHandler(sys.stderr)
    if LogFormat(format) is LogFormat.JSON:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
