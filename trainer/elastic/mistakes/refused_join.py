"""`hvd.join()` in an elastic training function: refused, because ranks drift apart by it.

A rank that has joined takes no part in the steps of the others, so it does not have their weights afterwards, and an
elastic world has a new number of ranks, and so other shards, at any time.
"""

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.collectives.replaced_functions import replace_join


class JoinError(HvdElasticError):
    """The script has called `hvd.join()` in its training function."""

    exit_code = Exit.SCRIPT_MISTAKE


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Refuse it for the duration of the block."""
    put_back = replace_join(_refuse)
    try:
        yield
    finally:
        put_back()


def _refuse(*_: object) -> NoReturn:
    raise JoinError(
        "hvd.join(): a rank whose data has ended takes no part in the steps of the others, and its weights drift apart "
        "from theirs. Iterate over state.batches(dataset, ...), which gives all ranks as many steps"
    )
