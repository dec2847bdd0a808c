"""webdataset and Hugging Face's datasets in worlds of any size: what is exact, and what is refused."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import datasets
import pytest
import webdataset as wds
from datasets.distributed import split_dataset_by_node
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from hvd_elastic.trainer.data.batch_policy import BatchError, BatchPolicy
from hvd_elastic.trainer.data.loaders.library_stream import order_of, problem_of
from hvd_elastic.trainer.data.order_check import disagreement, report_of
from hvd_elastic.trainer.data.pass_options import PassOptions
from hvd_elastic.trainer.data.progress import Cursor
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.elastic_state import State
from tests.properties import examples
from tests.trainer.data.interrupted_job import HOSTS, RESTART, Job
from tests.trainer.data.simulated_worlds import LAST, World, committed_steps, samples_of, worlds

LENGTH = 22


@pytest.fixture(autouse=True, scope="module")
def horovod() -> None:
    horovod_patches.init()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The numbers below LENGTH in four shards."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(4):
        with wds.TarWriter(str(folder / f"{shard}.tar")) as writer:
            for number in range(shard, LENGTH, 4):
                writer.write({"__key__": f"{number:03}", "cls": number})
    return str(folder / "{0..3}.tar")


def web(shards: str, **options: Any) -> Any:
    return wds.WebDataset(shards, **{"shardshuffle": False, **options})


def numbers(pipeline: Any) -> Any:
    return pipeline.decode().map(lambda sample: sample["cls"])


WEB: dict[str, Callable[[str], Any]] = {
    "plain": lambda shards: numbers(web(shards)),
    "shuffled": lambda shards: numbers(web(shards, shardshuffle=4, seed=1).shuffle(7, seed=2)),
    "shuffled by epoch": lambda shards: numbers(web(shards, shardshuffle=4, seed=1, detshuffle=True)),
    "every part of one": lambda shards: numbers(web(shards, nodesplitter=wds.split_by_node)),
}


def table() -> Any:
    return datasets.Dataset.from_dict({"number": list(range(LENGTH))})


def number_of(row: Any) -> int:
    return int(row["number"])


HUGGING_FACE: dict[str, Callable[[], Any]] = {
    "map-style": table,
    "map-style, transformed": lambda: table().with_format("torch").filter(lambda row: row["number"] < 20),
    "streaming": lambda: table().to_iterable_dataset(num_shards=4),
    "streaming, shuffled": lambda: table().to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=6),
    "streaming, mapped": lambda: table().to_iterable_dataset(num_shards=3).map(lambda row: {"a": row["number"]}),
    "interleaved": lambda: datasets.interleave_datasets(
        [table().select(range(9)).to_iterable_dataset(), table().select(range(9, 22)).to_iterable_dataset()],
        probabilities=[0.5, 0.5], seed=3, stopping_strategy="all_exhausted_without_replacement",
    ),
}  # fmt: skip


def options() -> PassOptions:
    return PassOptions(policy=BatchPolicy(global_size=5))


def always(value: Any) -> Callable[[], Any]:
    return lambda: value


@settings(max_examples=examples(12))
@given(kind=st.sampled_from(sorted(WEB)), played=worlds, epoch=st.integers(0, 2))
def test_a_web_dataset_is_read_once_over_resizes(shards: str, kind: str, played: list[World], epoch: int) -> None:
    """Every worker has built its pipeline itself, at another time and with other generators."""
    steps = committed_steps(lambda: WEB[kind](shards), options, played, epoch=epoch)
    assert Counter(sample for step in steps for sample in samples_of(step)) == Counter(range(LENGTH))


@settings(max_examples=examples(12))
@given(kind=st.sampled_from(sorted(HUGGING_FACE)), played=worlds, epoch=st.integers(0, 2))
def test_a_dataset_of_hugging_face_is_read_once_over_resizes(kind: str, played: list[World], epoch: int) -> None:
    steps = committed_steps(HUGGING_FACE[kind], options, played, epoch=epoch)
    taken = Counter(number_of(row) for step in steps for row in samples_of(step))
    assert taken == Counter(range(20 if "transformed" in kind else LENGTH))


@pytest.mark.parametrize("kind", ["streaming, shuffled", "interleaved"])
def test_the_order_does_not_depend_on_loader_processes(kind: str) -> None:
    """`datasets` draws new seeds in a loader process, even if it is the only one."""
    taken = []
    for workers in (0, 1, 2):
        loading = PassOptions(policy=BatchPolicy(global_size=5), loading={"num_workers": workers})
        steps = committed_steps(HUGGING_FACE[kind], always(loading), [World(1, LAST)], epoch=1)
        taken.append([number_of(row) for step in steps for row in samples_of(step)])
    assert taken[0] == taken[1] == taken[2]


def test_a_pipeline_that_counts_its_epochs_is_told_which_one_begins(shards: str) -> None:
    """A worker that joins has iterated it never, the others several times."""
    veteran, newcomer = (WEB["shuffled by epoch"](shards) for _ in range(2))
    orders = []
    for epoch, pipeline in [(0, veteran), (1, veteran), (1, veteran), (1, newcomer)]:
        steps = committed_steps(always(pipeline), options, [World(1, LAST)], epoch=epoch)
        orders.append([sample for step in steps for sample in samples_of(step)])
    assert orders[1] == orders[2] == orders[3] != orders[0]


def test_a_stream_goes_on_in_a_new_process(shards: str) -> None:
    job = Job({3: HOSTS, 8: RESTART}, taken=[])

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            rows = table().to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=6)
            for batch in state.batches(rows, batch_size=4, name="rows"):
                state.taken = [*state.taken, *batch["number"].tolist()]
                job.commit()
            for batch in state.batches(WEB["shuffled"](shards), batch_size=4, name="web"):
                state.taken = [*state.taken, *(100 + each for each in batch.tolist())]
                job.commit()

    job.run(body)
    assert Counter(job.state.taken) == Counter([*range(LENGTH), *range(100, 100 + LENGTH)] * 2)


class Endless(IterableDataset[int]):
    """Goes on for ever, with numbers that follow from the generators."""

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            number += random.randrange(1, 5)
            yield number


@settings(max_examples=examples(20))
@given(played=worlds, steps=st.integers(1, 12))
def test_a_stream_without_end_gives_the_same_over_resizes(played: list[World], steps: int) -> None:
    def options() -> PassOptions:
        return PassOptions(policy=BatchPolicy(global_size=3), max_steps=steps)

    taken = [sorted(samples_of(step)) for step in committed_steps(Endless, options, played)]
    assert taken == [sorted(samples_of(step)) for step in committed_steps(Endless, options, [World(1, LAST)])]
    assert len(taken) == steps


# --- What is refused -------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[str], Any], str]] = {
    "by the clock": (lambda shards: web(shards).shuffle(10), "shuffled by the clock.*seed=42"),
    "by a generator": (lambda shards: web(shards).shuffle(10, rng=random.Random(1)), "goes on from epoch to epoch"),
    "resampled": (lambda shards: web(shards, resampled=True), "draws its shards from the clock"),
    "a folder": (lambda shards: web(shards.rpartition("/")[0] + "/"), "renames them as it goes"),
    "a loader": (
        lambda shards: wds.WebLoader(web(shards), batch_size=2).map(lambda batch: batch),
        "give the WebDataset itself",
    ),
    "a pipeline in a pipeline": (lambda shards: wds.DataPipeline(web(shards).shuffle(10)), "shuffled by the clock"),
    "split by node": (
        lambda shards: split_dataset_by_node(table().to_iterable_dataset(num_shards=4), rank=0, world_size=2),
        "divided among 2 workers .split_dataset_by_node.",
    ),
}


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_stream_that_cannot_be_exact_is_refused(shards: str, kind: str) -> None:
    made, says = REFUSED[kind]
    with pytest.raises(BatchError, match=says):
        list(State().batches(made(shards), batch_size=2))


def test_shards_of_one_of_several_workers_are_refused(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """webdataset goes by RANK and WORLD_SIZE, as torchrun and a PyTorchJob set them."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for nodesplitter in ({}, {"nodesplitter": wds.split_by_node}):
        with pytest.raises(BatchError, match="build it with nodesplitter=None"):
            list(State().batches(web(shards, **nodesplitter), batch_size=2))
    assert len(list(State().batches(numbers(web(shards, nodesplitter=None)), batch_size=2))) == LENGTH // 2
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert len(list(State().batches(numbers(web(shards)), batch_size=2))) == LENGTH // 2
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
    with pytest.raises(BatchError, match="build it with nodesplitter=None"):  # and not only once the world has grown
        list(State().batches(web(shards), batch_size=2))


def test_resampling_that_follows_from_a_seed_is_exact(shards: str) -> None:
    def pipeline() -> Any:
        sources = wds.ResampledShards(shards, deterministic=True), wds.tarfile_to_samples()
        return wds.DataPipeline(*sources, wds.decode(), wds.map(lambda sample: sample["cls"]))

    def options() -> PassOptions:
        return PassOptions(policy=BatchPolicy(global_size=4), max_steps=7)

    played = [World(2, 2), World(3, 2, lost=1), World(1, LAST)]
    taken = [sorted(samples_of(step)) for step in committed_steps(pipeline, options, played, epoch=3)]
    assert taken == [sorted(samples_of(step)) for step in committed_steps(pipeline, options, [World(1, LAST)], epoch=3)]


def differ(made: Callable[[int], Any]) -> str | None:
    """What two workers are told, of which each has made its own."""
    orders = [order_of(made(rank)) for rank in range(2)]
    reports = [report_of(order, Cursor()) for order in orders if order is not None]
    assert orders[0] is not None
    return disagreement(reports, name="train", what=orders[0].what, taken=0)


def test_workers_with_other_orders_or_other_data_are_told(shards: str) -> None:
    stream = table().to_iterable_dataset(num_shards=4)
    message = "gives another order on worker 1 than on worker 0"
    for made in (
        lambda rank: stream.shuffle(buffer_size=6),
        lambda rank: stream.shuffle(seed=rank, buffer_size=6),
        lambda rank: split_dataset_by_node(table(), rank=rank, world_size=2),
        lambda rank: table().shard(2, rank),
        lambda rank: web(shards, shardshuffle=4, seed=rank),
        lambda rank: wds.WebDataset([*wds.shardlists.expand_urls(shards)][rank::2], shardshuffle=False),
    ):
        assert (differ(made) or "").endswith(message)
    assert differ(lambda rank: stream.shuffle(seed=1)) is None
    assert differ(lambda rank: web(shards)) is None, "its own random seed has no effect: nothing is shuffled"
    assert differ(lambda rank: table().with_transform(lambda rows: {"drawn": [random.random()]})) is None


@pytest.mark.parametrize("kind", sorted({*WEB, *HUGGING_FACE}))
def test_what_is_compared_does_not_change_as_it_is_read(shards: str, kind: str) -> None:
    """A survivor reads the same object again, a newcomer one that it has just made."""
    data = WEB[kind](shards) if kind in WEB else HUGGING_FACE[kind]()
    before = order_of(data)
    assert len(list(data)) >= 20
    assert before == order_of(data)


def test_a_stage_of_the_script_is_its_own(shards: str) -> None:
    def _shuffle(samples: Any) -> Any:
        return iter(sorted(samples, key=lambda sample: -sample["cls"]))

    (batch,) = State().batches(
        web(shards).decode().compose(_shuffle).map(lambda sample: sample["cls"]), batch_size=LENGTH
    )
    assert batch.tolist() == list(reversed(range(LENGTH)))


def test_what_is_no_librarys_is_left_alone() -> None:
    for plain in (range(3), Endless(), DataLoader(Endless()), {"a": 1}):
        assert problem_of(plain) is None
        assert order_of(plain) is None


def test_a_shuffle_without_a_seed_is_found_when_the_epoch_goes_on() -> None:
    job = Job({3: HOSTS})

    def body(state: State) -> None:
        rows = table().to_iterable_dataset(num_shards=4).shuffle(buffer_size=6)
        for state.epoch in state.remaining_epochs(1):
            for _ in state.batches(rows, batch_size=4):
                job.commit()

    with pytest.raises(BatchError, match=r"another order than the one with which this epoch was begun.*a seed"):
        job.run(body)


def test_shards_of_several_sources_are_refused(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """webdataset calls them obsolete, and has them still."""
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    spec = {"datasets": [{"name": "a", "shards": [shards]}], "prefix": ""}
    with pytest.raises(BatchError, match="several sources"):
        list(State().batches(wds.WebDataset(spec, shardshuffle=False), batch_size=2))
