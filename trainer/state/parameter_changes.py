"""What a script has changed of its parameters since it made the State: released or frozen ones, and added groups.

It is part of a commit. A newcomer runs the script from its top, where nothing is changed yet, and would leave out what
all others average; and training that goes back to a commit goes back in this, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hvd_elastic.trainer.state.state_objects import StateError, StateObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameters:
    """Those of a module when the State was first given it."""

    module: torch.nn.Module
    names: Sequence[str]
    parameters: Sequence[torch.nn.Parameter]
    required: Sequence[bool]
    """Whether each required a gradient."""

    @classmethod
    def of(cls, module: torch.nn.Module) -> "_Parameters":
        named = dict(module.named_parameters())
        required = [each.requires_grad for each in named.values()]
        return cls(module=module, names=list(named), parameters=list(named.values()), required=required)

    def flipped(self) -> list[str]:
        """Those that are frozen now and were not, or the reverse."""
        present = [each.requires_grad for each in self.parameters]
        if present == self.required:
            return []
        return [name for name, now, was in zip(self.names, present, self.required, strict=True) if now != was]

    def flip(self, names: Sequence[str]) -> None:
        """Make these, and no others, other than they were."""
        for name, parameter, was in zip(self.names, self.parameters, self.required, strict=True):
            parameter.requires_grad_(was != (name in names))


class ParameterChanges:
    """Of the modules and optimizers of a State."""

    def __init__(self, objects: StateObjects) -> None:
        self._objects = objects
        self._modules: dict[str, _Parameters] = {}
        self._groups: dict[str, tuple[torch.optim.Optimizer, int]] = {}
        """Each optimizer, and the number of its parameter groups when the State was first given it."""

    def tree(self) -> dict[str, Any]:
        """Return what has changed, as plain values: nearly always nothing."""
        return {"flipped": self._flipped(), "groups": self._added()}

    def load(self, committed: Mapping[str, Any]) -> None:
        """Change the same as a commit has, and nothing else: before its optimizers are loaded, whose groups must fit.

        Parameters that the modules of this process do not have are left out.
        """
        self._note()
        flipped = committed.get("flipped", {})
        for name, module in self._modules.items():
            if name in flipped or module.flipped():
                module.flip(flipped.get(name, ()))
        for name, (optimizer, count) in self._groups.items():
            self._set_added(optimizer, count, committed.get("groups", {}).get(name, ()))

    def _flipped(self) -> dict[str, list[str]]:
        """By module, the parameters whose `requires_grad` is another than at the beginning."""
        self._note()
        return {name: names for name, module in self._modules.items() if (names := module.flipped())}

    def _added(self) -> dict[str, list[list[str]]]:
        """By optimizer, the names of the parameters in each group that it did not have at the beginning.

        Raises:
            StateError: a parameter is of no module of the State.
        """
        grown = {
            name: optimizer.param_groups[count:]
            for name, (optimizer, count) in self._groups.items()
            if len(optimizer.param_groups) > count
        }
        if not grown:
            return {}
        names = {id(parameter): f"{of}.{known}" for of, known, parameter in self._named()}
        try:
            return {
                name: [[names[id(each)] for each in group["params"]] for group in groups]
                for name, groups in grown.items()
            }
        except KeyError:
            raise StateError(
                f"state.{', state.'.join(grown)}: a group was added with parameters of no module of the State, so a "
                "worker that joins could not have them: give their module to State(...)"
            ) from None

    def _set_added(self, optimizer: torch.optim.Optimizer, count: int, added: Sequence[Sequence[str]]) -> None:
        for group in optimizer.param_groups[count + len(added) :]:
            for parameter in group["params"]:
                optimizer.state.pop(parameter, None)
        del optimizer.param_groups[count + len(added) :]
        missing = added[len(optimizer.param_groups) - count :]
        if missing:
            parameters = {f"{of}.{known}": parameter for of, known, parameter in self._named()}
            for names in missing:
                optimizer.add_param_group({"params": [parameters[name] for name in names if name in parameters]})

    def _named(self) -> Iterator[tuple[str, str, torch.nn.Parameter]]:
        for of, module in self._objects.modules().items():
            for known, parameter in module.named_parameters():
                yield of, known, parameter

    def _note(self) -> None:
        """Take an object that is new to the State as it is now."""
        for name, module in self._objects.modules().items():
            if name not in self._modules or self._modules[name].module is not module:
                self._modules[name] = _Parameters.of(module)
        for name, optimizer in self._objects.optimizers().items():
            if name not in self._groups or self._groups[name][0] is not optimizer:
                self._groups[name] = optimizer, len(optimizer.param_groups)
