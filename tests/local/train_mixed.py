"""A training script that uses what a State offers all at once: its result must not show what its job went through.

All is float64 on the CPU, so that a run in one process gives the same but for the order of summation. A sample is
augmented by a generator of its own, seeded by epoch and sample. Dropout and batch normalization are left out: what they
draw or average depends on how a step is divided, so they are equal only in worlds of the same size.

For the test, every worker writes what it takes before its gradients leave it: in which world, for which commit.
"""

import contextlib
import copy
import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.optim.lr_scheduler import LinearLR, MultiStepLR, SequentialLR
from torch.utils.data import Dataset

import hvd_elastic as elastic
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp
from testbed.local.either_engine import averaging

EPOCHS, LABELLED, UNLABELLED, VALIDATION = 5, 241, 101, 35
LABELLED_BATCH, UNLABELLED_BATCH, MICRO_BATCH, VALIDATION_BATCH = 8, 12, 2, 10
LABELLED_STEPS = -(-LABELLED // LABELLED_BATCH)
Sample = tuple[int, torch.Tensor, torch.Tensor]


class Numbers(Dataset[Sample]):
    """A sample is its number, five features and a target. Augmented samples are others in each epoch."""

    def __init__(self, length: int, *, seed: int, augmented_for: int | None = None) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._features = torch.randn(length, 5, generator=generator)
        self._targets = self._features.sin().sum(1, keepdim=True)
        self._epoch = augmented_for

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, number: int) -> Sample:
        features = self._features[number]
        if self._epoch is not None:
            generator = torch.Generator().manual_seed(1000 * self._epoch + number)
            features = features + 0.1 * torch.randn(5, generator=generator)
        return number, features, self._targets[number]


elastic.init()
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
called, optimizer = averaging(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3))
scheduler = SequentialLR(
    optimizer,
    [LinearLR(optimizer, start_factor=0.5, total_iters=2), MultiStepLR(optimizer, milestones=[1, 2], gamma=0.5)],
    milestones=[2],
)
state = elastic.State(
    model=model,
    optimizer=optimizer,
    scheduler=scheduler,
    average=copy.deepcopy(model),
    best=None,
    steps=Counter(),
    history=[],
    accounts=[],
    worlds=[],
    partial=(0.0, 0),
)
log = (Path(os.environ["TEST_LOG"]) / f"{uuid.uuid4().hex}.jsonl").open("a", buffering=1)
unlabelled, validation = Numbers(UNLABELLED, seed=2), Numbers(VALIDATION, seed=3)


def write(**fields: object) -> None:
    log.write(json.dumps(fields) + "\n")


def take(numbers: torch.Tensor, name: str) -> None:
    """Write, before any other worker can count on it, what the next commit will cover."""
    samples = numbers.tolist() if state.weight else []
    taken = {"epoch": state.epoch, "pass": name, "samples": samples, "rate": optimizer.param_groups[0]["lr"]}
    write(taken={**taken, "world": state.worlds[-1][1], "commit": state.step_count + 1})
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))


def window(name: str) -> None:
    """A place between two statements where the test may strike: wait as long as it holds the gate of this epoch."""
    gate = Path(os.environ.get("TEST_GATES", "/nowhere")) / f"{name}.{state.epoch}"
    if gate.exists():
        write(window=gate.name)
        while gate.exists():
            time.sleep(0.002)


def commit() -> None:
    weights = (*model.parameters(), *state.average.parameters())
    state.commit(digest=sum(each.detach().abs().sum().item() for each in weights), world=state.worlds[-1][1])


def follow() -> None:
    """Move the average towards the model."""
    with torch.no_grad():
        for mean, weights in zip(state.average.parameters(), model.parameters(), strict=True):
            mean.lerp_(weights, 0.05)


@contextlib.contextmanager
def averaged() -> Iterator[None]:
    """Exchange the model's weights with their average, past all version counters."""
    exchange()
    try:
        yield
    finally:
        exchange()


def exchange() -> None:
    for mean, weights in zip(state.average.parameters(), model.parameters(), strict=True):
        mean.data, weights.data = weights.data, mean.data


def squared_error(features: torch.Tensor, targets: torch.Tensor) -> tuple[float, int]:
    """Return this worker's sum and number of samples; of none, where they are padding."""
    if not state.weight:
        return 0.0, 0
    with torch.no_grad():
        return (model(features) - targets).square().sum().item(), len(targets)


def over_all_workers(total: float, count: int) -> tuple[float, int]:
    both = WORLD.allreduce(torch.tensor([total, count], dtype=torch.float64), op=ReduceOp.SUM, name="evaluation")
    return both[0].item(), round(both[1].item())


def evaluate_in_a_step() -> None:
    """Commit after every batch, while the outer step has not been taken."""
    for numbers, features, targets in state.batches(validation, global_batch_size=VALIDATION_BATCH, name="validation"):
        take(numbers, "middle")
        with averaged():
            total, count = over_all_workers(*squared_error(features, targets))
        state.partial = state.partial[0] + total, state.partial[1] + count
        commit()
        window("committed-in-evaluation")
    note("middle", *state.partial)
    state.partial = 0.0, 0


def evaluate_at_the_end() -> None:
    """Commit nothing: what interrupts it has all of it done again."""
    total, count = 0.0, 0
    with averaged():
        parts = state.batches(validation, global_batch_size=VALIDATION_BATCH, micro_batch_size=2, name="validation")
        for numbers, features, targets in parts:
            take(numbers, "end")
            more, counted = squared_error(features, targets)
            total, count = total + more, count + counted
        total, count = over_all_workers(total, count)
    note("end", total, count)


def note(where: str, total: float, count: int) -> None:
    state.history.append((state.epoch, where, count, total / count))
    state.best = total / count if state.best is None else min(state.best, total / count)


def train_labelled() -> None:
    labelled = Numbers(LABELLED, seed=1, augmented_for=state.epoch)
    batches = state.batches(labelled, global_batch_size=LABELLED_BATCH, num_workers=2, seed=1, name="labelled")
    for numbers, features, targets in batches:
        if state.steps["labelled"] == LABELLED_STEPS * state.epoch + LABELLED_STEPS // 2:
            evaluate_in_a_step()
        take(numbers, "labelled")
        optimizer.zero_grad()
        ((called(features) - targets).square().mean() * state.weight).backward()
        optimizer.step()
        follow()
        state.steps["labelled"] += 1
        commit()


def train_unlabelled() -> None:
    batches = state.batches(
        unlabelled, global_batch_size=UNLABELLED_BATCH, micro_batch_size=MICRO_BATCH, name="unlabelled"
    )
    for numbers, features, _ in batches:
        take(numbers, "unlabelled")
        (0.1 * called(features).square().mean() * state.weight).backward()
        if state.accumulating:
            window("between-micro-batches")
            continue
        optimizer.step()
        optimizer.zero_grad()
        follow()
        state.steps["unlabelled"] += 1
        commit()


def account(name: str) -> tuple[int | None, ...]:
    counts = state.samples_of(name)
    return counts.due, counts.seen, counts.uncommitted, counts.padded, counts.repeated


@elastic.run
def train(state: elastic.State) -> None:
    state.worlds.append((state.step_count, WORLD.broadcast_object(uuid.uuid4().hex, root=0, name="world")))
    for state.epoch in state.remaining_epochs(EPOCHS):
        train_labelled()
        window("pass-ended")
        optimizer.zero_grad()  # the next pass clears the gradients behind its steps, this one before them
        if state.once("decay"):
            optimizer.param_groups[0]["weight_decay"] *= 0.5
        window("done-once")
        train_unlabelled()
        evaluate_at_the_end()
        window("last-pass-ended")
        state.scheduler.step()
        window("rate-changed")
        state.accounts.append({name: account(name) for name in ("labelled", "unlabelled", "validation")})
        commit()
    write(end=result())


def result() -> dict[str, object]:
    return {
        "weights": [value for weights in model.parameters() for value in weights.flatten().tolist()],
        "average": [value for weights in state.average.parameters() for value in weights.flatten().tolist()],
        "momentum": [
            value for each in optimizer.state.values() for value in each["momentum_buffer"].flatten().tolist()
        ],
        "groups": [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups],
        "scheduler": repr({name: value for name, value in scheduler.state_dict().items() if name != "_schedulers"}),
        "schedulers": [repr(sorted(each.state_dict().items())) for each in scheduler._schedulers],
        "best": state.best,
        "steps": f"{type(state.steps).__name__} {sorted(state.steps.items())}",
        "history": state.history,
        "accounts": state.accounts,
        "worlds": state.worlds,
        "commits": state.step_count,
    }


if __name__ == "__main__":
    train(state)
