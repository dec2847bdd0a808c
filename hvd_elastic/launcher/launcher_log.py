"""The launcher's own log: one line per change, on stderr, beside what the workers print."""

import logging
import sys

from hvd_elastic.logs import JsonFormatter


def configure(*, verbose: bool, as_json: bool) -> None:
    """Send this package's log to stderr. Only the command line calls this."""
    handler = logging.StreamHandler(sys.stderr)
    if as_json:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s hvd-elastic: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("hvd_elastic.launcher")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False
