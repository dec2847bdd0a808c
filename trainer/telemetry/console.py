"""The few sentences that a person wants to read about the training, whether or not the script configures logging."""

import logging
import sys
from typing import Final

PREFIX: Final = "hvd-elastic: "


def say(logger: logging.Logger, sentence: str) -> None:
    """Log at INFO; where nobody listens to that, write a line to stderr, as the launcher does with its own.

    Python shows no INFO of a script that leaves logging alone. One that configures it gets the record, and no line
    besides.
    """
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info("%s", sentence)
    else:
        print(f"{PREFIX}{sentence}", file=sys.stderr, flush=True)  # noqa: T201
