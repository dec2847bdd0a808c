"""What of a checkpoint goes into a file for others, and what of such a file goes into a checkpoint."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from hvd_elastic.system.plain_words import printable
from hvd_elastic.trainer.checkpoint.errors import ExchangeError
from hvd_elastic.trainer.checkpoint.exchange.plain_content import Content, Plain
from hvd_elastic.trainer.data.progress import Progress
from hvd_elastic.trainer.state.saved_state import SavedState

INFO: Final = "hvd_elastic"
"""Name under which the export of a whole checkpoint says how far the job was. No State may use it."""


def content_of(saved: SavedState, only: Sequence[str] = ()) -> Content:
    """Return what is exported.

    Args:
        saved: the checkpoint.
        only: names of the State. One: what is stored under it, so that `model.load_state_dict()` takes the file as it
            is. Several: these by name. Default none: everything by name, and INFO.

    Raises:
        ExchangeError: the checkpoint has no such name.
    """
    unknown = [name for name in only if name not in saved]
    if unknown:
        raise ExchangeError(f"{saved.name} has no {', '.join(unknown)}: it has {', '.join(map(printable, saved))}")
    if len(only) == 1 and isinstance(saved[only[0]], Mapping):
        return Plain().content(saved[only[0]])
    if only:
        return Plain().content({name: saved[name] for name in only})
    if INFO in saved:
        raise ExchangeError(f"the State has something named {INFO}, as an export has: name what to export with --only")
    return Plain().content({**saved, INFO: _info(saved)})


def _info(saved: SavedState) -> dict[str, Any]:
    info: dict[str, Any] = {**facts_of(saved), "step": saved.step, "objects": sorted(saved.objects)}
    if saved.progress is not None:
        info |= {"progress": saved.progress.state_dict(), "randomness": saved.randomness}
    return info


def facts_of(saved: SavedState) -> dict[str, str]:
    """Return what is told of the checkpoint, as texts."""
    return {
        "checkpoint": saved.name,
        "step": str(saved.step),
        "progress": saved.words,
        "time": saved.time.isoformat(timespec="seconds"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTree:
    """What a file becomes."""

    tree: dict[str, Any]
    """In the form of a commit."""
    step: int
    """Number of commits: that of the checkpoint whose whole export the file is, or else 0."""
    left_out: tuple[str, ...]
    """`path: type` of each value that no checkpoint can hold."""


def tree_of(content: Content, *, only: Collection[str] = ()) -> ImportedTree:
    """Return what the content of a file becomes as the first checkpoint of a job.

    A file with nothing but tensors holds the weights of `model`. In any other, the names on top are those of the State:
    dictionaries are `state_dict()`s, the rest are plain values.

    Args:
        content: as `read_file` returns it.
        only: names to take. Default none: all. The step at which an exported checkpoint was is kept only then.

    Raises:
        ExchangeError: there is no such name.
    """
    plain = Plain()
    named = plain.content(by_name(content))
    info = named.pop(INFO, {})
    unknown = [name for name in only if name not in named]
    if unknown:
        raise ExchangeError(f"the file has no {', '.join(unknown)}: it has {', '.join(map(printable, named))}")
    chosen = {name: value for name, value in named.items() if not only or name in only}
    objects = set(info.get("objects", [name for name, value in named.items() if isinstance(value, Mapping)]))
    is_whole = not only and "progress" in info and isinstance(info["progress"], Mapping)
    progress = Progress.from_state_dict(info["progress"]) if is_whole else Progress()
    return ImportedTree(
        tree={
            "objects": {name: _repaired(value) for name, value in chosen.items() if name in objects},
            "values": {name: value for name, value in chosen.items() if name not in objects},
            "progress": progress.state_dict(),
            "randomness": info.get("randomness", {}) if is_whole else {},
        },
        step=progress.commits,
        left_out=tuple(plain.unfit),
    )


def by_name(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a file by names of a State: bare weights are those of `model`."""
    if content and all(isinstance(value, torch.Tensor) for value in content.values()):
        return {"model": content}
    return content


def _repaired(state: Any) -> Any:
    """Number the states of an optimizer again: torch.distributed.checkpoint makes texts of keys that are numbers."""
    if not (isinstance(state, dict) and state.keys() == {"state", "param_groups"}):
        return state
    numbered = {
        int(key) if isinstance(key, str) and key.isdecimal() else key: each for key, each in state["state"].items()
    }
    return {**state, "state": numbered}
