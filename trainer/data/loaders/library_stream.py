"""Data sets of libraries that bring their own order and their own division: webdataset and Hugging Face's `datasets`.

`State.batches` divides what every worker reads alike. So a stream that takes one worker's part by itself is refused,
and so is one whose order each process draws for itself. What these libraries say of both is in the objects that they
build, and nothing of it is guessed: where a version has other attributes, nothing is said.

Seen in webdataset 1.0.2 (`pipeline.py`, `shardlists.py`, `filters.py`) and datasets 5.2.0 (`iterable_dataset.py`).
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Self

from torch.utils.data import DataLoader

from hvd_elastic.trainer.collectives.engine import has_server

_WAY_OUT_OF_PARTS: Final = "batches() divides the samples itself, and again after each resize"


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryOrder:
    """What the order of a library's data set follows from, as text."""

    facts: str
    what: str
    """The data set, in a message."""
    way_out: str
    count: int = 0

    def digest(self, count: int) -> int:
        """Return a number above 0 that tells it from others."""
        del count  # of a stream no sample is known beforehand
        return int.from_bytes(blake2b(self.facts.encode(), digest_size=7).digest(), "little") or 1


def problem_of(dataset: object) -> str | None:
    """Say why a library's data set cannot be divided by position; None if it can, or is no library's."""
    if is_hugging_face_stream(dataset):
        return _hugging_face_problem(dataset)
    return _web_dataset_problem(dataset) if _is(dataset, "webdataset", "DataPipeline") else None


def order_of(dataset: object) -> LibraryOrder | None:
    """Return what the order of a library's data set follows from; None if it is no library's."""
    if is_hugging_face_stream(dataset):
        return LibraryOrder(
            facts=repr([*_facts_of_examples(dataset)]),
            what="the IterableDataset of datasets",
            way_out="give shuffle() and interleave_datasets() a seed (seed=42)",
        )
    if _is(dataset, "datasets", "Dataset"):
        return LibraryOrder(
            facts=repr(_first_and_last(dataset)),
            what="the Dataset of datasets holds other rows, and so",
            way_out="give every worker all rows, without split_dataset_by_node() or shard(): " + _WAY_OUT_OF_PARTS,
        )
    if _is(dataset, "webdataset", "DataPipeline"):
        return LibraryOrder(
            facts=repr([fact for stage in _stages(dataset) for fact in _facts_of(stage)]),
            what="the WebDataset",
            way_out="give every worker the same shards in the same order, and each shuffle a seed (seed=42)",
        )
    return None


def set_epoch(dataset: Any, epoch: int) -> None:
    """Tell a stream, and the stages of a webdataset pipeline that count their epochs themselves, which epoch begins.

    Such a stage counts how often it was iterated in its own process, and a worker that joins would begin at 0.
    """
    if hasattr(dataset, "set_epoch"):
        dataset.set_epoch(epoch)
    if _is(dataset, "webdataset", "DataPipeline"):
        for stage in _stages(dataset):
            if isinstance(getattr(stage, "epoch", None), int):
                stage.epoch = epoch - 1  # it adds 1 when it is iterated


def is_hugging_face_stream(dataset: object) -> bool:
    """Whether it is an `IterableDataset` of `datasets`.

    With a single loader process it shuffles in another order than without one (`shift_ex_examples_rngs` draws a new
    seed even for the first process), so it must not learn of ours: their number may change at a restart.
    """
    return _is(dataset, "datasets", "IterableDataset")


def _is(value: object, module: str, name: str) -> bool:
    """Whether a value is of a library's class. A library that was never imported has no values."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


# --- Hugging Face's datasets -----------------------------------------------------------------------------------------


def _hugging_face_problem(dataset: object) -> str | None:
    division = getattr(dataset, "_distributed", None)
    if division is None or getattr(division, "world_size", 1) == 1:
        return None
    return (
        f"the IterableDataset was divided among {division.world_size} workers (split_dataset_by_node), and is divided "
        f"again here, so most samples would be left out: give it as it was before, {_WAY_OUT_OF_PARTS}"
    )


def _facts_of_examples(dataset: object) -> Iterator[object]:
    yield getattr(dataset, "num_shards", None)
    yield from _generator_states(getattr(dataset, "_ex_iterable", None))


def _generator_states(iterable: Any) -> Iterator[object]:
    """Yield the states of the generators from which a stream draws its order."""
    if iterable is None:
        return
    generator = getattr(iterable, "generator", None)
    if generator is not None and hasattr(generator, "bit_generator"):
        yield generator.bit_generator.state
    inner = getattr(iterable, "ex_iterable", None)
    for each in [inner] if inner is not None else getattr(iterable, "ex_iterables", ()):
        yield from _generator_states(each)


def _first_and_last(dataset: Any) -> list[object]:
    """Return the length, and the first and the last row as they are stored, without the script's own transforms."""
    rows, length = dataset.with_format("arrow"), len(dataset)
    return [length, *(rows[each].to_pydict() for each in (0, length - 1) if length)]


# --- webdataset ------------------------------------------------------------------------------------------------------


def _stages(pipeline: Any) -> Iterator[Any]:
    """Yield the stages of a pipeline, those of pipelines within it too."""
    for stage in getattr(pipeline, "pipeline", ()):
        for each in stage if isinstance(stage, list) else [stage]:
            if _is(each, "webdataset", "DataPipeline"):
                yield from _stages(each)
            else:
                yield each


def _web_dataset_problem(pipeline: object) -> str | None:
    for stage in _stages(pipeline):
        look = _look_at_loader if isinstance(stage, DataLoader) else _LOOKS.get(_name_of(stage))
        problem = look(stage) if look is not None else None
        if problem is not None:
            return problem
    return None


def _look_at_shuffle(stage: Any) -> str | None:
    shuffle = _ShuffleArguments.of_stage(stage)
    if shuffle.size < 2 or (shuffle.rng is None and shuffle.seed is not None):
        return None
    if shuffle.rng is None:
        return (
            "the WebDataset is shuffled by the clock, in another order on every worker: give shuffle() a seed: "
            "shuffle(1000, seed=42)"
        )
    return (
        "the WebDataset is shuffled by a generator that goes on from epoch to epoch, so after a resize the order would "
        "be another one: give shuffle() a seed in its place: shuffle(1000, seed=42)"
    )


def _look_at_resampling(stage: Any) -> str | None:
    if getattr(stage, "deterministic", False):
        return None
    return (
        "the WebDataset draws its shards from the clock (resampled=True), others on every worker. Build it as "
        "DataPipeline(ResampledShards(urls, deterministic=True), tarfile_to_samples(), ...)"
    )


def _look_at_division(stage: Any) -> str | None:
    del stage
    size = sys.modules["webdataset"].utils.pytorch_worker_info()[1]
    may_grow = "WORLD_SIZE" in os.environ and has_server()
    if size == 1 and not may_grow:
        return None
    return (
        "the WebDataset takes the shards of one worker of all (RANK and WORLD_SIZE are set in the environment): "
        f"build it with nodesplitter=None, {_WAY_OUT_OF_PARTS}"
    )


def _look_at_directory(stage: Any) -> str | None:
    del stage
    return (
        "the WebDataset reads the shards of a folder and renames them as it goes, so nobody can read them again after "
        "a resize: give it the list of the shards"
    )


def _look_at_mixture(stage: Any) -> str | None:
    del stage
    return (
        "the WebDataset draws from several sources (a YAML file), which webdataset itself calls obsolete: give it the "
        "list of the shards"
    )


def _look_at_loader(stage: Any) -> str | None:
    return (
        f"a pipeline over a {type(stage).__name__} yields batches that are loaded already: give the WebDataset itself, "
        "and num_workers and batch_size to batches()"
    )


_LOOKS: Final[dict[str, Callable[[Any], str | None]]] = {
    "_shuffle": _look_at_shuffle,
    "ResampledShards": _look_at_resampling,
    "resampled_": lambda _: _look_at_resampling(None),
    "split_by_node": _look_at_division,
    "single_node_only": _look_at_division,
    "DirectoryShardList": _look_at_directory,
    "MultiShardSample": _look_at_mixture,
}
"""By the name of a stage's function or class."""


def _facts_of(stage: Any) -> Iterator[object]:
    """Yield what the order of the samples follows from, as far as it is a stage's."""
    if _name_of(stage) == "_shuffle":
        shuffle = _ShuffleArguments.of_stage(stage)
        if shuffle.size > 1:  # WebDataset has a stage without effect if shards are not to be shuffled
            yield shuffle.size, shuffle.seed
    elif hasattr(stage, "seed"):
        yield getattr(stage, "bufsize", None), stage.seed
    if isinstance(urls := getattr(stage, "urls", None), list):
        yield [str(url).rpartition("/")[2] for url in urls]  # hosts may have them in other folders


def _name_of(stage: Any) -> str:
    """Return the name of a stage's function or class, as webdataset calls it; empty if it is the script's own."""
    made = getattr(stage, "f", stage)
    made = made if hasattr(made, "__name__") else type(stage)
    return str(made.__name__) if str(made.__module__).partition(".")[0] == "webdataset" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShuffleArguments:
    """What webdataset's `shuffle` was given: `_shuffle(data, bufsize=1000, initial=100, rng=None, seed=None, ...)`."""

    size: int
    rng: object
    seed: object

    @classmethod
    def of_stage(cls, stage: Any) -> Self:
        given = {**dict(zip(("bufsize", "initial", "rng", "seed"), stage.args, strict=False)), **stage.kw}
        return cls(size=int(given.get("bufsize", 1000)), rng=given.get("rng"), seed=given.get("seed"))
