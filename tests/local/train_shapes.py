"""Many trainings in one script, each of a shape that people's own scripts have, over the same batches.

LOOP says how it walks over its batches, SAMPLES how many there are, EACH that a batch is each worker's own. A training
has its models, its optimizers and its weights to itself, in float64 where its shape is not another type.

After some batches it stands still, and only commits, until a file says that it may go on: in the midst of an epoch, or
before one where a list of its batches is made, for commits wait until that is done. With KILLED, rank 1 of three is
killed between two commits.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset
from tqdm import tqdm  # type: ignore[import-untyped]

import hvd_elastic as elastic

ENV = os.environ
LOOP = ENV["LOOP"]
SAMPLES = int(ENV["SAMPLES"])
BATCH = 12
BATCHES = 24
EPOCHS = BATCHES // max(1, -(-SAMPLES // BATCH))
HOLDS = (8, 16)
"""It stands still after so many batches."""

ACCUMULATED = 4
"""So many batches are a step of the training that accumulates, and between two commits. An epoch has a multiple."""

Step = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""What a training does with a batch: its number in this call of the training function, and its tensors."""

elastic.init()
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
features = torch.randn(SAMPLES, 6)
noise = torch.randn(SAMPLES, 4)
dataset = TensorDataset(torch.arange(SAMPLES), features, features.sin().sum(1, keepdim=True))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def distributed(optimizer: torch.optim.Optimizer, model: nn.Module, prefix: str = "", **options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(prefix=prefix), **options)


def sgd(model: nn.Module, rate: float = 0.02, **options: Any) -> Any:
    return distributed(torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9), model, **options)


def backward(loss: torch.Tensor) -> None:
    (loss * state.weight).backward()


def fits(model: nn.Module, optimizer: Any) -> tuple[dict[str, Any], Step]:
    """The step that most scripts have."""

    def step(_: int, __: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        backward(mse_loss(model(x), y))
        optimizer.step()

    return {"model": model, "optimizer": optimizer}, step


def plain(**options: Any) -> tuple[dict[str, Any], Step]:
    model = net()
    return fits(model, sgd(model, **options))


def gan() -> tuple[dict[str, Any], Step]:
    """The generator's backward pass gives the discriminator gradients, too, which are thrown away."""
    makes = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6))
    judges = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    making = distributed(torch.optim.Adam(makes.parameters(), lr=2e-3), makes, "makes")
    judging = distributed(torch.optim.Adam(judges.parameters(), lr=2e-3), judges, "judges")

    def step(_: int, numbers: torch.Tensor, x: torch.Tensor, __: torch.Tensor) -> None:
        true, false = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        made = makes(noise[numbers])
        judging.zero_grad()
        real = binary_cross_entropy_with_logits(judges(x), true)
        backward(real + binary_cross_entropy_with_logits(judges(made.detach()), false))
        judging.step()
        making.zero_grad()
        backward(binary_cross_entropy_with_logits(judges(made), true))
        making.step()
        judging.synchronize()
        judging.zero_grad()

    return {"makes": makes, "judges": judges, "making": making, "judging": judging}, step


def sparse(*, adam: bool = False, **options: Any) -> tuple[dict[str, Any], Step]:
    model = nn.ModuleDict({"words": nn.Embedding(50, 6, sparse=True), "head": nn.Linear(6, 1)})
    if adam:
        words = torch.optim.SparseAdam(list(model["words"].parameters()), lr=0.02)
        head = torch.optim.Adam(model["head"].parameters(), lr=0.02)
        optimizers = {
            "words": distributed(words, model["words"], "words"),
            "head": distributed(head, model["head"], "head"),
        }
    else:
        optimizers = {"one": distributed(torch.optim.SGD(model.parameters(), lr=0.02), model, **options)}

    def step(_: int, numbers: torch.Tensor, __: torch.Tensor, y: torch.Tensor) -> None:
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        backward(mse_loss(model["head"](model["words"](numbers % 50)), y))
        for optimizer in optimizers.values():
            optimizer.step()

    return {"model": model, **optimizers}, step


def branch() -> tuple[dict[str, Any], Step]:
    """A rank's first sample says whether its batch uses the head, or has no gradient at all."""
    model = nn.ModuleDict({"body": nn.Linear(6, 6), "head": nn.Linear(6, 1)})
    optimizer = sgd(model)

    def step(_: int, numbers: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        hidden = model["body"](x)
        if int(numbers[0]) % 3 == 0:
            loss = hidden.square().mean()
        elif int(numbers[0]) % 7 == 0:
            loss = torch.zeros((), requires_grad=True)
        else:
            loss = mse_loss(model["head"](hidden.tanh()), y)
        backward(loss)
        optimizer.step()

    return {"model": model, "optimizer": optimizer}, step


def checkpointing() -> tuple[dict[str, Any], Step]:
    model = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)])
    optimizer = sgd(model)

    def step(_: int, __: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        hidden = checkpoint(model[0], x.requires_grad_(), use_reentrant=True)
        hidden = checkpoint(model[1], hidden.tanh(), use_reentrant=False)
        backward(mse_loss(model[2](hidden), y))
        optimizer.step()

    return {"model": model, "optimizer": optimizer}, step


def sharpness() -> tuple[dict[str, Any], Step]:
    """Two backward passes in each step: SAM."""
    model = net()
    optimizer = sgd(model)

    def step(_: int, __: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        backward(mse_loss(model(x), y))
        optimizer.synchronize()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        shifts = [gradient * (0.05 / norm) for gradient in gradients]
        with torch.no_grad():
            for weight, shift in zip(model.parameters(), shifts, strict=True):
                weight.add_(shift)
        optimizer.zero_grad()
        backward(mse_loss(model(x), y))
        with torch.no_grad():
            for weight, shift in zip(model.parameters(), shifts, strict=True):
                weight.sub_(shift)
        optimizer.step()

    return {"model": model, "optimizer": optimizer}, step


def accumulation() -> tuple[dict[str, Any], Step]:
    """As Horovod teaches it: by a counter of the script, and a gradient that is divided."""
    model = net()
    optimizer = sgd(model, backward_passes_per_step=ACCUMULATED)

    def step(number: int, _: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
        backward(mse_loss(model(x), y) / ACCUMULATED)
        if (number + 1) % ACCUMULATED == 0:
            optimizer.step()
            optimizer.zero_grad()

    return {"model": model, "optimizer": optimizer}, step


def helpers() -> tuple[dict[str, Any], Step]:
    """A scheduler, a scaler and an average, which are all in the state."""
    values, _ = plain()
    model, optimizer = values["model"], values["optimizer"]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30, gamma=0.7)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=20)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))  # type: ignore[no-untyped-call]

    def step(_: int, __: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale(mse_loss(model(x), y) * state.weight).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        average.update_parameters(model)

    return {**values, "scheduler": scheduler, "scaler": scaler, "average": average}, step


def half() -> tuple[dict[str, Any], Step]:
    model = nn.Linear(6, 1).half()
    optimizer = sgd(model)

    def step(_: int, __: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        backward(mse_loss(model(x.half()), y.half()))
        optimizer.step()

    return {"model": model, "optimizer": optimizer}, step


def dry_run() -> tuple[dict[str, Any], Step]:
    """A lazy module that has seen a batch before its optimizer is made."""
    model = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(1))
    model(features[:2])
    return fits(model, sgd(model))


def own_resume() -> tuple[dict[str, Any], Step]:
    """A file of the script's own that it loads before training, in newcomers as well."""
    values, step = plain()
    saved = Path("last.pt")
    if saved.exists():
        stored = torch.load(saved)
        values["model"].load_state_dict(stored["model"])
        values["optimizer"].load_state_dict(stored["optimizer"])

    def saving(*batch: Any) -> None:
        step(*batch)
        if hvd.rank() == 0 and state.step_count % 5 == 0:
            stored = {name: value.state_dict() for name, value in values.items()}
            torch.save(stored, saved.with_suffix(".new"))
            saved.with_suffix(".new").replace(saved)

    return values, saving


def own_draws() -> tuple[dict[str, Any], Step]:
    """Each rank draws its samples from a seed of its own."""
    values, step = plain()
    torch.manual_seed(1337 + hvd.rank())

    def drawing(number: int, *_: torch.Tensor) -> None:
        drawn = torch.randint(SAMPLES, (8,))
        numbers, x, y = dataset[drawn]
        step(number, numbers, x, y)

    return values, drawing


SHAPES: dict[str, Callable[[], tuple[dict[str, Any], Step]]] = {
    "plain": plain,
    "gan": gan,
    "sparse": sparse,
    "sparse_adam": lambda: sparse(adam=True),
    "sparse_as_dense": lambda: sparse(sparse_as_dense=True),
    "branch": branch,
    "checkpointing": checkpointing,
    "sharpness": sharpness,
    "accumulation": accumulation,
    "helpers": helpers,
    "half": half,
    "dry_run": dry_run,
    "own_resume": own_resume,
    "own_draws": own_draws,
    "rate_by_size": lambda: plain(rate=0.01 * hvd.size()),
    "compressed": lambda: plain(compression=hvd.Compression.fp16),
    "predivided": lambda: plain(gradient_predivide_factor=2.0),
}


def made(shape: str) -> tuple[dict[str, Any], Step]:
    torch.manual_seed(0)
    return SHAPES[shape]()


trainings = {shape: made(shape) for shape in ENV.get("SHAPES", ",".join(SHAPES)).split(",")}


def batches() -> Iterable[Any]:
    per_worker: dict[str, Any] = {"batch_size": 4} if "EACH" in ENV else {"global_batch_size": BATCH}
    found: Iterable[Any] = state.batches(dataset, **per_worker)
    match LOOP:
        case "tqdm":
            generated = (batch for _, batch in enumerate(found))
            found = tqdm(generated, total=SAMPLES // BATCH, disable=hvd.rank() != 0)
        case "list":
            return list(found)
    return found


def by_epochs() -> Iterator[Any]:
    for state.epoch in state.remaining_epochs(EPOCHS):
        hold()
        yield from batches()


def by_steps() -> Iterator[Any]:
    """An iterator is made anew where one has ended."""
    hold()
    found = iter(batches())
    while state.taken < BATCHES:
        try:
            batch = next(found)
        except StopIteration:
            state.epoch += 1
            found = iter(batches())
            batch = next(found)
        yield batch


def hold() -> None:
    if state.taken in HOLDS:
        while not elastic.agree(Path(f"go-on-{state.taken}").exists()):
            time.sleep(0.02)
            state.commit(taken=[], held=state.taken)


@elastic.run
def train(state: Any) -> None:
    taken: list[int] = []
    for number, batch in enumerate(by_steps() if LOOP == "next" else by_epochs()):
        for _, step in trainings.values():
            step(number, *batch)
        taken += batch[0].tolist() if state.weight else []
        state.taken += 1
        if "KILLED" in ENV and state.taken == HOLDS[0] + 2 and (hvd.rank(), hvd.size()) == (1, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        if state.taken % ACCUMULATED == 0:
            state.commit(taken=taken)
            taken = []
            if LOOP != "list":
                hold()
    weights = {shape: weights_of(values) for shape, (values, _) in trainings.items()}
    (LOG / f"{os.getpid()}.jsonl").write_text(json.dumps({"weights": weights}) + "\n")


def weights_of(values: dict[str, Any]) -> list[float]:
    models = [value for value in values.values() if isinstance(value, nn.Module)]
    return [weight for model in models for each in model.parameters() for weight in each.flatten().tolist()]


LOG = Path(ENV["TEST_LOG"])
held = {f"{shape}_{name}": value for shape, (values, _) in trainings.items() for name, value in values.items()}
state: Any = elastic.State(taken=0, **held)
train(state)
