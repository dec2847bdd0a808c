"""What libraries keep of their world: told of each new one. A library that the script has not imported is left alone.

Accelerate (1.15) keeps the size and the ranks in a dictionary that its states share, and in each prepared loader. In a
world of one it leaves out DistributedDataParallel on a GPU. Lightning (2.6) reads torchrun's variables again and again;
it keeps the rank for what rank 0 alone prints, and takes `devices * num_nodes` for the size.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

_FABRIC: Final = ("lightning_fabric", "lightning.fabric")
_STRATEGIES: Final = (*_FABRIC, "pytorch_lightning", "lightning.pytorch")
"""Under the names of their own package, and under those of the common one."""

GUESSED_BY: Final = frozenset(f"{name}.utilities.rank_zero" for name in _STRATEGIES)
"""Modules that read RANK as they are imported, and do without it: they are told of it in each world."""

_FOLLOWS: Final = "_hvd_elastic_follows"
"""Mark of a class that was changed here."""

_PREPARED: Final = "_hvd_elastic_prepared"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLoader:
    """What a library has made a loader of that takes one worker's part, in a world of one size."""

    loader: "DataLoader[Any]"
    """The script's own."""
    move: Callable[[Any], Any] | None
    """Moves a batch to the library's device."""
    splits_batches: bool = False
    """Whether the size of a batch is that of all workers together."""


def prepared_loader(loader: object) -> PreparedLoader | None:
    """Return what a loader was prepared from; None if a library of this process has not prepared it."""
    found: PreparedLoader | None = getattr(loader, "__dict__", {}).get(_PREPARED)
    return found


def enter_world(told: Mapping[str, str]) -> None:
    """Tell them of the world that is about to form. `told`: torchrun's variables."""
    if (accelerator := sys.modules.get("accelerate.accelerator")) is not None:
        state, loaders = sys.modules["accelerate.state"], sys.modules["accelerate.data_loader"]
        if not hasattr(state.PartialState, _FOLLOWS):
            _follow_accelerate(accelerator, state, loaders)
        _renew_accelerate(state, told)
    for module in _imported(_STRATEGIES, "strategies.ddp"):
        module.DDPStrategy.distributed_sampler_kwargs = property(_share)
    for module in _imported(_FABRIC, "plugins.environments.torchelastic"):
        module.TorchElasticEnvironment.validate_settings = _any_size
    for module in _imported(_FABRIC, "utilities.rank_zero"):
        module.rank_zero_only.rank = int(told["RANK"])
    for module in _imported(_FABRIC, "fabric"):
        if not hasattr(module.Fabric, _FOLLOWS):
            _follow_fabric(module)


def problems(values: Iterable[object], *, averages: bool) -> Iterator[str]:
    """Yield a sentence for each use of a library that cannot become an elastic training.

    `values`: those of a State. `averages`: whether this process has a model in DistributedDataParallel.
    """
    zero = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    if zero is not None and any(isinstance(value, zero.ZeroRedundancyOptimizer) for value in values):
        yield (
            "ZeroRedundancyOptimizer divides its state over a world that stays as it is. Take "
            "elastic.ShardedOptimizer over a model without DistributedDataParallel."
        )
    state = sys.modules.get("accelerate.state")
    if state is None or not state.PartialState._shared_state:
        return
    kind, kinds = state.PartialState._shared_state["distributed_type"], state.DistributedType
    if kind == kinds.NO and not averages:  # as beside transformers' arguments
        yield (
            "Accelerator() has found no GPU, and knows this process alone: it averages nothing. Make it by "
            "Accelerator(cpu=True)."
        )
    elif kind in (kinds.DEEPSPEED, kinds.FSDP, kinds.MEGATRON_LM):
        yield f"Accelerate's {kind.value} divides the model over a world that stays as it is. Leave it out."
    elif state.AcceleratorState._shared_state.get("parallelism_config") is not None:
        yield "Accelerator(parallelism_config=...): its groups of processes end with their world. Leave it out."
    elif state.GradientState._shared_state.get("plugin_kwargs", {}).get("num_steps", 1) != 1:
        yield (
            "Accelerator(gradient_accumulation_steps=...): a resize would leave out what is accumulated. Leave it out, "
            "and iterate over state.batches(..., micro_batch_size=...)."
        )
    elif not hasattr(state.PartialState, _FOLLOWS):
        yield (
            "accelerate was imported after elastic.init(), which prepares it for worlds of other sizes. Import it "
            "before."
        )


def _imported(packages: tuple[str, ...], module: str) -> Iterator[ModuleType]:
    for package in packages:
        if (found := sys.modules.get(f"{package}.{module}")) is not None:
            yield found


def _renew_accelerate(state: ModuleType, told: Mapping[str, str]) -> None:
    numbers = {"num_processes": "WORLD_SIZE", "process_index": "RANK", "local_process_index": "LOCAL_RANK"}
    for kind in (state.PartialState, state.AcceleratorState):
        if kind._shared_state and kind._shared_state["distributed_type"] != state.DistributedType.NO:
            kind._shared_state.update({name: int(told[of]) for name, of in numbers.items()})


def _follow_accelerate(accelerator: Any, state: ModuleType, loaders: ModuleType) -> None:
    """Have prepared loaders follow the world, and models averaged that are prepared in a world of one."""
    stock = accelerator.prepare_data_loader

    @functools.wraps(stock)
    def prepare(dataloader: "DataLoader[Any]", device: Any = None, *args: Any, **kwargs: Any) -> Any:
        made = stock(dataloader, device, *args, **kwargs)
        options = {"device": device, "non_blocking": bool(kwargs.get("non_blocking"))}
        move = functools.partial(loaders.send_to_device, **options) if kwargs.get("put_on_device") else None
        splits = bool(kwargs.get("split_batches"))
        setattr(made, _PREPARED, PreparedLoader(loader=dataloader, move=move, splits_batches=splits))
        return made

    accelerator.prepare_data_loader = prepare
    for kind in (loaders.BatchSamplerShard, loaders.IterableDatasetShard):
        for name in ("num_processes", "process_index"):
            setattr(kind, name, _PresentNumber(name, state.PartialState))
    state.PartialState.use_distributed = property(lambda own: own.distributed_type != state.DistributedType.NO)
    setattr(state.PartialState, _FOLLOWS, True)


class _PresentNumber:
    """In place of an attribute that a constructor sets."""

    def __init__(self, name: str, state: Any) -> None:
        self._name, self._state = name, state

    def __get__(self, owner: object, _: object) -> int:
        number: int = getattr(self._state(), self._name)
        return number

    def __set__(self, owner: object, value: int) -> None:
        """Take no note of the world in which a loader was prepared."""


def _follow_fabric(module: ModuleType) -> None:
    stock = module.Fabric._setup_dataloader

    @functools.wraps(stock)
    def prepare(fabric: Any, dataloader: "DataLoader[Any]", *args: Any, **kwargs: Any) -> Any:
        made = stock(fabric, dataloader, *args, **kwargs)
        move = None if made.device is None else fabric.to_device
        setattr(made, _PREPARED, PreparedLoader(loader=dataloader, move=move))
        return made

    module.Fabric._setup_dataloader = prepare
    setattr(module.Fabric, _FOLLOWS, True)


def _share(strategy: Any) -> dict[str, int]:
    """Return the part of the data that a worker takes (`DDPStrategy.distributed_sampler_kwargs`)."""
    return {"num_replicas": strategy.world_size, "rank": strategy.global_rank}


def _any_size(*_: object, **__: object) -> None:
    """Let `devices * num_nodes` be another number than the size of the present world."""
