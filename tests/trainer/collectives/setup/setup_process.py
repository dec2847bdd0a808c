"""A process on its way to its training function, without a launcher."""

from collections.abc import Callable
from typing import NoReturn

import torch

from hvd_elastic.trainer.collectives.setup.setup_calls import Replace, SetupCalls
from testbed.thread_world import ThreadTrainingWorld, in_each_rank


class RefusedError(Exception):
    """The script is refused."""


def refuse(mistake: str) -> NoReturn:
    raise RefusedError(mistake)


def went(
    calls: SetupCalls, replace_functions: Replace, script: Callable[[], object], *brought: torch.Tensor
) -> SetupCalls:
    """A process that has gone through `script`, and has these tensors in its State."""
    calls.begin(refuse, replace_functions)
    try:
        script()
    finally:
        calls.stop()
    calls.end(lambda: brought)
    return calls


def newcomer(*others: SetupCalls, joins: SetupCalls | None = None) -> SetupCalls:
    """A process that joins them, as the last rank of their next world."""
    everyone = [*others, joins or SetupCalls()]

    def meet(world: ThreadTrainingWorld) -> None:
        everyone[world.rank()].meet(world)

    in_each_rank(len(everyone), meet)
    return everyone[-1]
