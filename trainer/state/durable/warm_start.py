"""A warm start: at the very first start of a job, its modules take their weights from what others have trained."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import torch

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT_WARM_START, ENV_CHECKPOINT_WARM_START_STRICT
from hvd_elastic.trainer.checkpoint import IncompatibleError
from hvd_elastic.trainer.checkpoint.exchange import source
from hvd_elastic.trainer.checkpoint.exchange.file_formats import read_file
from hvd_elastic.trainer.checkpoint.module_names import under_names_of
from hvd_elastic.trainer.state.durable.exported_state import by_name
from hvd_elastic.trainer.state.saved_state import read_state

logger = logging.getLogger(__name__)

_USUAL_NAMES: Final = ("model", "state_dict", "model_state_dict")
"""Names under which files have the weights of the one model. Lightning writes the second, PyTorch's tutorials the
third ("Saving and Loading Models")."""


LoadWeights = Callable[[str, Mapping[str, Any]], object]
"""Takes the name of a module, and what fits it: not all of its weights, perhaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """What the job's description asks for."""

    place: str
    """URL of a file of safetensors or `torch.save`, of a folder of torch.distributed.checkpoint, or of the checkpoints
    of another job."""
    strict: bool = True
    """Weights that do not fit end the job. False: they are listed in the log, and the others are loaded."""

    @classmethod
    def of_job(cls, environ: Mapping[str, str]) -> Self | None:
        """Return what the job's environment says; None: no warm start."""
        place = environ.get(ENV_CHECKPOINT_WARM_START)
        if not place:
            return None
        return cls(place=place, strict=environ.get(ENV_CHECKPOINT_WARM_START_STRICT) != "0")

    def load(self, modules: Mapping[str, torch.nn.Module], into: LoadWeights) -> tuple[str, ...]:
        """Load weights by names of modules in the State. Returns the names of those that got any.

        Args:
            modules: those of the State.
            into: loads weights into one of them.

        Raises:
            IncompatibleError: nothing is there for any of them; or, if strict, some weights do not fit. Nothing was
                loaded then.
            CheckpointError: what is there cannot be read.
        """
        chosen = choose(_read(self.place), modules)
        fits = {name: fit(weights, modules[name].state_dict()) for name, weights in chosen.items()}
        problems = [line for name, each in fits.items() for line in each.problems(name)]
        if problems and self.strict:
            raise IncompatibleError(
                f"the weights of {self.place} do not fit; with `checkpoint.warm_start.strict: false` those that do are"
                " loaded:\n" + "\n".join(problems)
            )
        if problems:
            logger.warning(
                "warm start from %s: what did not fit is left as it was:\n%s", self.place, "\n".join(problems)
            )
        for name, each in fits.items():
            into(name, each.fitting)
        return tuple(fits)


def _read(place: str) -> Mapping[str, Any]:
    with source.opened(place) as path:
        if path is not None:
            return by_name(read_file(path))
    return read_state(place, stand_ins=True)


def choose(content: Mapping[str, Any], modules: Mapping[str, torch.nn.Module]) -> dict[str, Mapping[str, Any]]:
    """Return the weights for each module, by its name in the State.

    Raises:
        IncompatibleError: there are none.
    """
    states = {name: value for name, value in content.items() if isinstance(value, Mapping)}
    chosen = {name: states[name] for name in modules if name in states}
    if not chosen and len(modules) == 1:
        usual = [states[name] for name in _USUAL_NAMES if name in states]
        chosen = dict(zip(modules, usual[:1], strict=False))
    if not chosen:
        raise IncompatibleError(
            f"a warm start needs weights for a module of the State, which has {', '.join(modules) or 'none'}; there are"
            f" {', '.join(states) or 'none'}"
        )
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How weights fit a module."""

    fitting: Mapping[str, Any]
    """What can be loaded."""
    missing: tuple[str, ...]
    """Names of the module that the weights lack."""
    unexpected: tuple[str, ...]
    """Names that the module lacks."""
    reshaped: tuple[str, ...]
    """Names with another shape than the module's, and both shapes."""

    def problems(self, name: str) -> list[str]:
        """Return a line for each kind of what did not fit; `name`: of the module."""
        kinds = {"missing": self.missing, "unexpected": self.unexpected, "of another shape": self.reshaped}
        return [f"{name}: {kind}: {', '.join(names)}" for kind, names in kinds.items() if names]


def fit(weights: Mapping[str, Any], present: Mapping[str, Any]) -> Fit:
    """Compare weights with the `state_dict()` of a module, by name and shape.

    A name that the weights lack is not missing if it is tied to one that they have. What wraps the module, or did when
    the weights were written, is left out of the names.
    """
    weights = under_names_of(present, weights)
    common = [name for name in present if name in weights]
    reshaped = {name for name in common if _shape(weights[name]) != _shape(present[name])}
    fitting: OrderedDict[str, Any] = OrderedDict((name, weights[name]) for name in common if name not in reshaped)
    # A `state_dict()` has the versions of its modules there.
    vars(fitting).update(
        {name: value for name, value in getattr(weights, "__dict__", {}).items() if name == "_metadata"}
    )
    memory = {_memory(present[name]) for name in fitting} - {None}
    return Fit(
        fitting=fitting,
        missing=tuple(name for name in present if name not in weights and _memory(present[name]) not in memory),
        unexpected=tuple(name for name in weights if name not in present),
        reshaped=tuple(
            f"{name} {_shape(weights[name])}, the module has {_shape(present[name])}"
            for name in common
            if name in reshaped
        ),
    )


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _memory(value: Any) -> tuple[int, torch.Size] | None:
    return (value.data_ptr(), value.shape) if isinstance(value, torch.Tensor) and value.numel() else None
