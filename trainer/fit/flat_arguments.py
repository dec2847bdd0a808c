"""Arguments of `Trainer` that are now fields of its groups. For one release they work flat, too, with a warning."""

import warnings
from collections.abc import Mapping
from typing import Any, Final

from hvd_elastic.trainer.fit.trainer_options import Checkpointing, Computation, Evaluation, Reporting, TrainerOptions

FLAT: Final = {
    "evaluate_every": "evaluation.every",
    "measure": "evaluation.measure",
    "early_stop": "evaluation.early_stop",
    "keep_best": "evaluation.keep_best",
    "precision": "computation.precision",
    "clip_norm": "computation.clip_norm",
    "torch_compile": "computation.torch_compile",
    "seeding": "computation.seeding",
    "device": "computation.device",
    "commit_every": "checkpointing.commit_every",
    "checkpoint": "checkpointing.url",
    "overlap": "checkpointing.overlap",
    "callbacks": "reporting.callbacks",
    "log_every": "reporting.log_every",
    "tensorboard": "reporting.tensorboard",
    "progress": "reporting.progress",
}
"""By flat name: the argument for its group, and the field there."""

_GROUPS: Final = {
    "evaluation": Evaluation,
    "computation": Computation,
    "checkpointing": Checkpointing,
    "reporting": Reporting,
}
"""The class of each group, by its argument."""


def take_options(groups: Mapping[str, Any], keywords: dict[str, Any]) -> TrainerOptions:
    """Return all groups. Warns of what was given flat, as of the caller's caller.

    Args:
        groups: what was given for each argument of `_GROUPS`; None: nothing. `evaluation` may be a plain data set.
        keywords: all others. Those that are in `FLAT` are removed.
    """
    flat = {name: keywords.pop(name) for name in FLAT if name in keywords}
    problems = [
        f"{name}: `{_argument(name)}` is given too: put it in there, as {_place(name)}"
        for name in flat
        if _is_group(groups, _argument(name))
    ]
    problems += [
        f"{argument}: {given!r} is not a {_GROUPS[argument].__name__}"
        for argument, given in groups.items()
        if given is not None and argument != "evaluation" and not _is_group(groups, argument)
    ]
    if flat and not problems:
        now = ", ".join(f"{name} is {_place(name)}" for name in flat)
        warnings.warn(f"Trainer: {now} now; flat it goes with the next release", DeprecationWarning, stacklevel=3)
    chosen: dict[str, Any] = {
        argument: given if _is_group(groups, argument) else _made(argument, given, flat)
        for argument, given in groups.items()
    }
    written = {FLAT[name]: name for name in flat if not _is_group(groups, _argument(name))}
    if not _is_group(groups, "evaluation"):
        written["evaluation.data"] = "evaluation"
    return TrainerOptions(**chosen, written=written, problems=problems)


def _made(argument: str, given: Any, flat: Mapping[str, Any]) -> Any:
    """A group of what was given flat; of defaults, if nothing was."""
    fields = {_field(name): value for name, value in flat.items() if _argument(name) == argument}
    return _GROUPS[argument](**fields, **({"data": given} if argument == "evaluation" else {}))


def _is_group(groups: Mapping[str, Any], argument: str) -> bool:
    return isinstance(groups[argument], _GROUPS[argument])


def _argument(name: str) -> str:
    return FLAT[name].partition(".")[0]


def _field(name: str) -> str:
    return FLAT[name].partition(".")[2]


def _place(name: str) -> str:
    """Where a flat argument belongs, as a script writes it."""
    argument = _argument(name)
    data = "data=..., " if argument == "evaluation" else ""
    return f"{argument}={_GROUPS[argument].__name__}({data}{_field(name)}=...)"
