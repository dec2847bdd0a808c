"""Compares what a State holds with what a checkpoint holds: a pure decision over the names of both."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT_ALLOW_MISSING
from hvd_elastic.trainer.checkpoint import IncompatibleError

IMPORTED: Final = "import"
"""The reason of a checkpoint that was made from a file. It has what the file had: the State may hold more."""


def check_names(
    stored: Mapping[str, Any], present: Mapping[str, Any], *, allow_missing: Collection[str], is_part: bool = False
) -> bool:
    """Compare the trees of a checkpoint and of a State. Returns whether they differ, in names that may be missing.

    A value that is None has nothing to lose: the other side may lack it.

    Args:
        stored: the tree of the checkpoint.
        present: the tree of the State that is to be restored.
        allow_missing: names that either side may lack.
        is_part: the checkpoint may lack any name. Default False.

    Raises:
        IncompatibleError: they differ in other names. It would train on with what the script gave, and delete in time
            what had been trained.
    """
    unused = _held(stored) - _names(present)
    fresh = set() if is_part else _held(present) - _names(stored)
    if not unused and not fresh:
        return False
    if unused | fresh <= set(allow_missing):
        return True
    names = sorted(unused | fresh)
    ways = f"State(allow_missing={tuple(names)!r}) or {ENV_CHECKPOINT_ALLOW_MISSING}={','.join(names)}"
    raise IncompatibleError(
        f"the State does not match the checkpoint. Only the checkpoint has: {_listed(unused)}. Only the State has:"
        f" {_listed(fresh)}. Nothing was loaded, and nothing is deleted. Give the State the names that the checkpoint"
        " has; or choose another prefix, to begin from nothing; or load what has the same name, and leave out or begin"
        f" afresh what has not: {ways}"
    )


def _names(tree: Mapping[str, Any]) -> set[str]:
    return {*tree["objects"], *tree["values"]}


def _held(tree: Mapping[str, Any]) -> set[str]:
    return {*tree["objects"], *(name for name, value in tree["values"].items() if value is not None)}


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
