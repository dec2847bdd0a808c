"""A job with several passes over data in each epoch: an evaluation in mid-epoch, and a second data set at the end.

What all workers have done is in the state, so what a resize undoes is undone there too.
"""

import json
import os
import time
from itertools import chain
from pathlib import Path
from typing import Any

import hvd_elastic as elastic
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.data.progress import Progress
from hvd_elastic.trainer.data.sample_certificate import examine

LENGTH, VALIDATION, SECOND = 240, 35, 50

elastic.init()
state = elastic.State(trained=[], second=[], evaluated=[], scheduled=0)


def gathered(values: list[Any]) -> list[Any]:
    """Return the values of all workers."""
    return list(chain.from_iterable(WORLD.allgather_object(values, name="gathered")))


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(2):
        for index, batch in enumerate(state.batches(range(LENGTH), global_batch_size=12)):
            if index % 5 == 3:
                parts = state.batches(range(VALIDATION), global_batch_size=10, name="validation")
                samples = [sample for part in parts if state.weight for sample in part.tolist()]
                state.evaluated = [*state.evaluated, sorted(gathered(samples))]
            mine = [(state.epoch, sample) for sample in batch.tolist()] if state.weight else []
            state.trained = [*state.trained, *gathered(mine)]
            if not Path("hurry").exists():
                time.sleep(0.1)
            state.commit()
        for batch in state.batches(range(SECOND), global_batch_size=10, name="second"):
            mine = [(state.epoch, sample) for sample in batch.tolist()] if state.weight else []
            state.second = [*state.second, *gathered(mine)]
        state.scheduled += 1
        state.commit()
    if WORLD.rank() == 0:
        done = {name: getattr(state, name) for name in ("trained", "second", "evaluated", "scheduled")}
        certificate = Progress.from_state_dict(state._commits.last["progress"]).data.certificate
        assert certificate is not None
        done["certified"] = [examine(certificate).holds, examine(certificate).words]
        (Path(os.environ["TEST_LOG"]) / "0.jsonl").write_text(json.dumps({"end": done}) + "\n")


train(state)
