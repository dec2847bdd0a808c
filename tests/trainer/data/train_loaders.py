"""A job that reads by samplers, batch samplers, a loader and the streams of libraries, one pass each, in each epoch.

What all workers have taken is in the state, so what a resize undoes is undone there too. With TEST_UNRULY, each process
has a sampler that follows from its own process id.
"""

import json
import os
import random
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import torch
import webdataset as wds
from torch.utils.data import BatchSampler, RandomSampler, WeightedRandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import hvd_elastic as elastic
from hvd_elastic.trainer.collectives.this_world import WORLD

LENGTH = 40

elastic.init()
folder = tempfile.mkdtemp()
for shard in range(4):
    with wds.TarWriter(f"{folder}/{shard}.tar") as writer:
        for number in range(shard, LENGTH, 4):
            writer.write({"__key__": f"{number:03}", "cls": number})


class Unruly:
    def __iter__(self) -> Any:
        return iter(random.Random(os.getpid()).sample(range(LENGTH), LENGTH))

    def __len__(self) -> int:
        return LENGTH


def passes(state: elastic.State) -> Any:
    """Yield the name and the batches of each pass. All of it is made anew in each world, as a new process makes it."""
    numbers = list(range(LENGTH))
    if "TEST_UNRULY" in os.environ:
        yield "unruly", state.batches(numbers, sampler=Unruly(), batch_size=4)
    generator = torch.Generator()
    generator.seed()
    weighted = WeightedRandomSampler([1.0, 30.0, *[2.0] * 38], LENGTH, generator=generator)
    yield "weighted", state.batches(numbers, sampler=weighted, global_batch_size=5)
    buckets = BatchSampler(RandomSampler(numbers), 3, drop_last=False)
    yield "buckets", state.batches(numbers, batch_sampler=buckets, name="buckets")
    rows = datasets.Dataset.from_dict({"number": numbers}).to_iterable_dataset(num_shards=4)
    batches = state.batches(rows.shuffle(seed=1, buffer_size=9), global_batch_size=5, num_workers=1, name="rows")
    yield "rows", (batch["number"] for batch in batches)
    web = wds.WebDataset(f"{folder}/{{0..3}}.tar", shardshuffle=4, detshuffle=True, seed=1, nodesplitter=None)
    web = web.shuffle(9, seed=2).decode().map(lambda sample: sample["cls"])
    yield "web", state.batches(web, global_batch_size=5, name="web")
    yield "loader", state.batches(StatefulDataLoader(numbers, batch_size=3, shuffle=True), name="loader")


def gathered(values: list[int]) -> list[int]:
    """Return the values of all workers."""
    return list(chain.from_iterable(WORLD.allgather_object(values, name="gathered")))


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(3):
        for name, batches in passes(state):
            for batch in batches:
                mine = batch.tolist() if state.weight else []
                state.taken = [*state.taken, *((state.epoch, name, each) for each in gathered(mine))]
                if not Path("hurry").exists():
                    time.sleep(0.1)
                state.commit()
    if WORLD.rank() == 0:
        (Path(os.environ["TEST_LOG"]) / "0.jsonl").write_text(json.dumps({"end": state.taken}) + "\n")


train(elastic.State(taken=[]))
