"""Modules that torch's `fully_shard` has divided over the ranks of one world, and their division over the next one.

A script divides a model once. In each new world the same calls are made again, on all ranks: each parameter gives its
place to one of its full shape without memory (`meta`), torch's own function divides that, and the script's object takes
over the new part. So optimizers go on with the objects that they know, no rank holds more than its part, and nothing is
sent: what the parts hold comes from the State. What an error has left half done ends with the old division.

Every name of torch's that is not public stands in this module. Seen with torch 2.15.
"""

import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from hvd_elastic.trainer.collectives import collective_calls

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

_SETTINGS: Final = (
    "reduce_grads",
    "all_reduce_grads",
    "reshard_after_backward",
    "unshard_in_backward",
    "unshard_async_op",
    "gradient_divide_factor",
    "reduce_scatter_unused_params",
    "force_sum_reduction_for_comms",
    "reduce_scatter_max_input_buffers",
)
"""What the `set_...` methods of a divided module leave in its parameter group."""
_OF_STATE: Final = ("_fsdp_param_groups", "_auto_reshard_after_forward")
"""What torch's state of a call has had for some versions only. That of torch 2.6 trains on no CPU."""
_COMMUNICATION: Final = ("_all_gather_comm", "_reduce_scatter_comm", "_all_reduce_hook")


def is_divided(module: object) -> bool:
    """Whether `fully_shard` was called with a module, or with one in it."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")  # seconds to import, and without it nothing is divided
    known: Any = sys.modules.get("torch.distributed._composable_state")
    torch = sys.modules.get("torch")
    if fsdp is None or torch is None or not isinstance(module, torch.nn.Module):
        return False
    if known is not None and not known._module_state_mapping:  # asked at each commit: a walk takes 0.2 ms for 500
        return False
    return any(isinstance(each, fsdp.FSDPModule) for each in module.modules())


def is_part(value: object) -> "TypeGuard[DTensor]":
    """Whether a tensor is one of which each rank has a part."""
    tensor: Any = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and isinstance(value, tensor.DTensor)


def has_parts(values: "Iterable[object]") -> bool:
    """Whether one of them is such a tensor."""
    tensor: Any = sys.modules.get("torch.distributed.tensor")
    # Asked at each commit: `isinstance` of each tensor would take three times as long.
    return tensor is not None and any(issubclass(kind, tensor.DTensor) for kind in set(map(type, values)))


def flat_part(tensor: "DTensor") -> "torch.Tensor":
    """Return this rank's part as a flat tensor of the same memory."""
    return tensor._local_tensor.detach().view(-1)


def missing_name() -> str | None:
    """Return what this torch lacks of what is needed here; None: it can divide anew."""
    from torch.distributed.fsdp._fully_shard import _fsdp_state

    state = _fsdp_state.FSDPState()
    return next((name for name in _OF_STATE if not hasattr(state, name)), None)


def problems(module: "nn.Module") -> Iterator[str]:
    """Say what of a module's division cannot be made again in another world."""
    if any(isinstance(each, _fsdp().FullyShardedDataParallel) for each in module.modules()):
        yield "FullyShardedDataParallel cannot be divided again: take torch.distributed.fsdp.fully_shard"
        return
    if (missing := missing_name()) is not None:
        yield f"fully_shard of this torch cannot be called again: it has no {missing}, as that of torch 2.15. Take that"
        return
    states = _states(module)
    known = {id(part.sharded_param) for state in states for part in _parts(state)}
    if any(is_part(weight) and id(weight) not in known for weight in module.parameters()):
        yield "tensor parallelism divides weights over groups of one world. Leave it out"
    yield from dict.fromkeys(each for state in states for each in _problems_of(state))


def _problems_of(state: Any) -> Iterator[str]:
    from torch import distributed

    for group in state._fsdp_param_groups:
        mesh = group.mesh_info.mesh
        if mesh.ndim != 1 or mesh.size() != distributed.get_world_size():
            yield (
                "fully_shard(mesh=...): a mesh of several dimensions, or of some ranks, ends with its world. Leave it "
                "out: the weights are divided over all ranks"
            )
        if group.post_forward_mesh_info not in (None, group.mesh_info):
            yield "fully_shard(reshard_after_forward=...): a number of ranks is of one world. Give True or False"
        if any(part.offload_to_cpu for part in group.fsdp_params):
            yield "fully_shard(offload_policy=...) is not offered. Leave it out"
        if any(part.is_dtensor for part in group.fsdp_params):
            yield "tensor parallelism divides weights over groups of one world. Leave it out"
        if len(state._fsdp_param_groups) > 1 or any(part.fsdp_placement.dim for part in group.fsdp_params):
            yield "fully_shard(shard_placement_fn=...): only the first dimension is divided. Leave it out"
        if any(part.mp_policy != state._mp_policy for part in group.fsdp_params):
            yield "MixedPrecisionPolicy(param_dtype_override_fn=...) is not offered. Leave it out"
        own = [getattr(group, name, None) for name in _COMMUNICATION]
        if any(each is not None and not type(each).__name__.startswith(("Default", "Counted")) for each in own):
            yield "a communication of the script's own in place of fully_shard's ends with its world. Leave it out"


def parts_of(module: "nn.Module") -> "dict[str, DTensor]":
    """Return the parameters that are divided, by each of their names. Gathered ones are given up for their parts.

    Also where an error has ended a pass, in whatever state that has left the module.
    """
    for each in module.modules():
        if isinstance(each, _fsdp().FSDPModule):
            each.reshard()
    for state in _states(module):
        for part in _parts(state):
            _set(_places(part), part.sharded_param)
    return {name: value for name, value in module.state_dict(keep_vars=True).items() if is_part(value)}


def divide_anew(module: "nn.Module") -> None:
    """Divide over the present world what was divided over another one. The parts' content is undefined.

    To be called on all ranks; nothing is sent. What refers to an old part keeps its memory.
    """
    from torch.distributed.device_mesh import init_device_mesh

    divisions = [_Division.undo(state) for state in _states(module)]
    _forget_old_meshes()
    meshes: dict[str, DeviceMesh] = {}
    for each in divisions:
        if each.device_type not in meshes:
            meshes[each.device_type] = init_device_mesh(each.device_type, (_world_size(),))
    whole = {id(place.parameter) for each in divisions for place in each.taken}
    plain = {weight for weight in module.parameters() if id(weight) not in whole}
    for each in divisions:
        each.make(meshes[each.device_type], plain)
    for each in divisions:
        each.set_prefetched()


_Places = list[tuple["nn.Module", str]]
"""Where a parameter is: its module, and its name in it; several if it is tied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A parameter whose place another one has."""

    parameter: "torch.Tensor"
    """The stand-in."""
    part: "DTensor"
    """The script's own."""
    places: _Places


@dataclass(frozen=True, slots=True, kw_only=True)
class _Division:
    """One call of `fully_shard`."""

    state: Any
    """What torch had made of it."""
    taken: Sequence[_Taken]
    device_type: str

    @classmethod
    def undo(cls, state: Any) -> "_Division":
        """Leave no trace of a call but parameters of full shape without memory."""
        import torch
        from torch.distributed._composable.contract import REGISTRY_KEY, STATE_KEY
        from torch.distributed._composable_state import _module_state_mapping

        taken = []
        for part in _parts(state):
            own = part.sharded_param
            empty = torch.empty(own.shape, dtype=own.dtype, device="meta")
            stand_in = torch.nn.Parameter(empty, requires_grad=own.requires_grad)
            _set(_places(part), stand_in)
            part._post_load_hook_handle.remove()
            taken.append(_Taken(parameter=stand_in, part=own, places=_places(part)))
        for group in state._fsdp_param_groups:
            for kind in ("save", "load"):
                for handle in getattr(group, f"_module_to_pre_{kind}_state_dict_hook_handle").values():
                    handle.remove()
        state._pre_forward_hook_handle.remove()
        state._post_forward_hook_handle.remove()
        call: Any = _fsdp().fully_shard
        for module in state._modules:
            del module.__dict__[STATE_KEY][call.__wrapped__]
            del module.__dict__[REGISTRY_KEY][call.__name__]
            del _module_state_mapping[module]
            divided: Any = type(module)
            module.__class__ = divided.__mro__[getattr(divided, "_orig_cls_mro_index", 2)]
        return cls(state=state, taken=taken, device_type=state._device.type)

    def make(self, mesh: "DeviceMesh", plain: "set[nn.Parameter]") -> None:
        """Make the call again. `plain`: parameters that the script had left out."""
        import torch

        old = self.state
        gathers = [group.post_forward_mesh_info is not None for group in old._fsdp_param_groups]
        _fsdp().fully_shard(
            list(old._modules) if len(old._modules) > 1 else old._modules[0],
            mesh=mesh,
            reshard_after_forward=None if old._auto_reshard_after_forward else all(gathers),
            mp_policy=old._mp_policy,
            ignored_params=plain or None,
        )
        for each in self.taken:
            module, name = each.places[0]
            new: Any = getattr(module, name)
            part: Any = each.part
            part.grad = None
            device = part._local_tensor.device
            part._local_tensor = torch.empty(new._local_tensor.shape, dtype=part.dtype, device=device)
            part._spec = new._spec
            _set(each.places, part)
        state = _state_of(old._modules[0])
        if self.device_type == "cpu":  # elsewhere nobody waits in the call
            _tell_of_waits(state)
        for group, before in zip(state._fsdp_param_groups, old._fsdp_param_groups, strict=True):
            for setting in _SETTINGS:
                if hasattr(before, setting):
                    setattr(group, setting, getattr(before, setting))
            for part, known in zip(group.fsdp_params, before.fsdp_params, strict=True):
                part.reset_sharded_param()  # torch's own, for a parameter that has taken the place of another one
                part.keep_unsharded_storage = getattr(known, "keep_unsharded_storage", False)

    def set_prefetched(self) -> None:
        """Have the same modules gathered in advance, which are divided again by now."""
        state = _state_of(self.state._modules[0])
        for name in ("_states_to_forward_prefetch", "_states_to_backward_prefetch"):
            setattr(state, name, [_state_of(each._modules[0]) for each in getattr(self.state, name)])


def _states(module: "nn.Module") -> list[Any]:
    """Return torch's states of all calls for a module and what is in it: inner ones first, as scripts call them."""
    found: list[Any] = []

    def add(state: Any) -> None:
        for own in state._modules:
            for inner in map(_state_of, own.modules()):
                if inner is not None and inner is not state and inner not in found:
                    add(inner)
        if state not in found:
            found.append(state)

    for state in map(_state_of, module.modules()):
        if state is not None:
            add(state)
    return found


def _state_of(module: "nn.Module") -> Any:
    return _fsdp().fully_shard.state(module)


def _parts(state: Any) -> list[Any]:
    return [part for group in state._fsdp_param_groups for part in group.fsdp_params]


def _places(part: Any) -> _Places:
    info = part._module_info
    return [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names, strict=True)]


def _set(places: _Places, parameter: Any) -> None:
    for module, name in places:
        module._parameters[name] = parameter


def _tell_of_waits(state: Any) -> None:
    """Count the time in which this process waits for others' parts, and gradients: Gloo waits in the call."""
    gather, scatter = _counted_communication()
    for group in state._fsdp_param_groups:
        if hasattr(group, "_all_gather_comm"):
            group._all_gather_comm, group._reduce_scatter_comm = gather(), scatter()


@functools.cache
def _counted_communication() -> tuple[type, type]:
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives as stock

    class CountedAllGather(stock.DefaultAllGather):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            with collective_calls.THIS_PROCESS.waiting("allgather parameters"):
                return super().__call__(*args, **kwargs)

    class CountedReduceScatter(stock.DefaultReduceScatter):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            with collective_calls.THIS_PROCESS.waiting("reducescatter gradients"):
                return super().__call__(*args, **kwargs)

    return CountedAllGather, CountedReduceScatter


def _forget_old_meshes() -> None:
    """Drop what torch remembers of operations on parts: it has the groups of old worlds, and their connections."""
    from torch.distributed.tensor import debug

    for name in ("_clear_python_sharding_prop_cache", "_clear_fast_path_sharding_prop_cache"):
        if (clear := getattr(debug, name, None)) is not None:
            clear()


def _world_size() -> int:
    from torch import distributed

    return distributed.get_world_size()


def _fsdp() -> Any:
    from torch.distributed import fsdp

    return fsdp
