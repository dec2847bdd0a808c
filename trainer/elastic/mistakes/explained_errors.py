"""Errors of a script that say nothing of their cause, where the cause is known: a sentence with the way out.

The traceback stays: it has the line.
"""

import sys
import traceback
from typing import Final

from hvd_elastic.trainer.elastic.mistakes import script_mistake
from hvd_elastic.trainer.telemetry.code_places import place_of_error

_NO_LINE: Final = "EOF when reading a line"
"""What `input()` says at the end of its input. Other EOFErrors have other words."""
_TOO_MANY: Final = "Gradients were computed more than backward_passes_per_step times"
"""Horovod 0.28.1, `torch/optimizer.py`."""
_TWICE: Final = "Expected to mark a variable ready only once"
"""torch 2.15, DistributedDataParallel."""
_SAME_NAME: Final = "tensor with the same name as another tensor that is currently being processed"
"""Horovod 0.28.1, `common/common.h`. Of two optimizers, or of a script's own two operations."""
_NONE: Final = "'NoneType' object has no attribute"


def leave_if_known(error: BaseException, *, began_as: int = 0, rank: int = 0) -> None:
    """End the program if what has caused the error is known.

    Args:
        error: what the script has raised.
        began_as: this process's rank in its first world.
        rank: its rank now.

    Raises:
        SystemExit: it is known.
    """
    cause = find(error, began_as=began_as, rank=rank)
    if cause is not None:
        traceback.print_exception(error)
        script_mistake.leave_if([cause])


def find(error: BaseException, *, began_as: int = 0, rank: int = 0) -> str | None:
    """Return the sentence; None: the cause is not known. For the arguments see `leave_if_known`."""
    place, words = place_of_error(error), str(error)
    if isinstance(error, EOFError) and words == _NO_LINE and not _has_terminal():
        return (
            f"input() at {place}: a worker has no terminal to read from. Take the answer from the script's arguments "
            "or the environment"
        )
    if type(error).__name__ == "BdbQuit" and not _has_terminal():
        return (
            f"the debugger has stopped at {place}: a worker has no terminal to type in. Take the breakpoint out, or "
            "run the script alone (`python SCRIPT`)"
        )
    if isinstance(error, AssertionError | RuntimeError) and words.startswith((_TOO_MANY, _TWICE)):
        is_horovods = words.startswith(_TOO_MANY)
        averages = "hvd.DistributedOptimizer" if is_horovods else "DistributedDataParallel"
        return (
            f"a gradient was complete twice in one step, at {place}, and {averages} averages it when it is complete. "
            "A block under torch.utils.checkpoint needs use_reentrant=False; several calls of backward() in a step "
            f"need state.batches(micro_batch_size=...){', or backward_passes_per_step' if is_horovods else ''}"
        )
    if isinstance(error, ValueError) and _SAME_NAME in words:
        return (
            f"two operations of the same name were under way, at {place}. Parameters of two models need names of their "
            'own: named_parameters=model.named_parameters(prefix="generator") in hvd.DistributedOptimizer; operations '
            "of the script need another name= each"
        )
    is_missing = type(error) is NameError or (isinstance(error, AttributeError) and words.startswith(_NONE))
    if is_missing and rank == 0 != began_as:
        return (
            f"{words}, at {place}: this process was rank {began_as} at the beginning, and is rank 0 since a resize. "
            "What only rank 0 makes before training (a writer, a logger, a file), it does not have: make it in the "
            "function that elastic.run calls, where hvd.rank() is that of the present world"
        )
    return None


def _has_terminal() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # it is closed
        return False
