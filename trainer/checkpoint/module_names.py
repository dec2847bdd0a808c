"""The names of a module's tensors, without those of its wrappers.

`torch.compile`, DataParallel and DistributedDataParallel put themselves before the names of what they wrap
(`_orig_mod.`, `module.`). A checkpoint has the plain names, and is read by a script that wraps otherwise.
"""

import sys
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import torch

_COMPILED: Final = "_orig_mod"
_PARALLEL: Final = "module"
"""The attributes of the wrappers that hold the module (torch 2.6 to 2.15)."""


def under_plain_names(state: Mapping[str, Any], module: torch.nn.Module) -> Mapping[str, Any]:
    """Return the `state_dict()` of a module with the plain names; the same object if nothing in it is wrapped."""
    if not any(f"{wrapper}." in name for name in state for wrapper in (_COMPILED, _PARALLEL)):
        return state
    wrappers = sorted(_wrappers(module), key=lambda one: len(one[0]), reverse=True)  # innermost first
    return _renamed(state, {name: _without(wrappers, name) for name in state})


def under_names_of(present: Collection[str], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored `state_dict()` with the names that a module has for the same tensors, however both are wrapped.

    A name that the module does not have stays as it is.
    """
    if all(name in present for name in state):
        return state
    own = {_bare(name): name for name in present}
    if len(own) < len(present):  # two of its names differ in a word like a wrapper's alone
        return state
    return _renamed(state, {name: name if name in present else own.get(_bare(name), name) for name in state})


def _renamed(state: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    renamed = OrderedDict((names[name], value) for name, value in state.items())
    # A `state_dict()` has the versions of its modules there.
    vars(renamed).update({key: value for key, value in getattr(state, "__dict__", {}).items() if key == "_metadata"})
    return renamed


def _wrappers(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """What stands before the name of each wrapped module, with its wrapper and without: `encoder._orig_mod.`."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # seconds to import, and without it nothing is compiled
    compiled = getattr(compiler, "OptimizedModule", ())
    parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    for name, part in module.named_modules():
        before = f"{name}." if name else ""
        if isinstance(part, compiled):
            yield f"{before}{_COMPILED}.", before
        elif isinstance(part, parallel):
            yield f"{before}{_PARALLEL}.", before


def _without(wrappers: list[tuple[str, str]], name: str) -> str:
    for wrapped, plain in wrappers:
        if name.startswith(wrapped):
            name = plain + name.removeprefix(wrapped)
    return name


def _bare(name: str) -> str:
    """A name without all that may be a wrapper's."""
    words = [word for word in name.split(".") if word != _COMPILED]
    return ".".join(words[words[0] == _PARALLEL :])
