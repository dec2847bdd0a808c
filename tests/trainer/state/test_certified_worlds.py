"""Real worlds whose workers die where it is hardest for the certificate: between a commit and what all tell of it."""

from pathlib import Path

import pytest

from testbed.local.training import ENGINES, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

SCRIPT = """
import json
import os
import signal
from pathlib import Path

import hvd_elastic as elastic
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.data.sample_certificate import examine
from hvd_elastic.trainer.state.agreement import Agreement

elastic.init()
state = elastic.State(step=0)
tell = Agreement.allreduced

def dies_before_it_tells(agreement, digest=0):
    if WORLD.rank() == 1 and state.step == int(os.environ["DIES_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return tell(agreement, digest)

Agreement.allreduced = dies_before_it_tells

@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(2):
        for _ in state.batches(range(50), global_batch_size=8):
            state.step += 1
            state.commit()
    certificate = state._batches.account.position.certificate
    finding = examine(certificate)
    end = {"holds": finding.holds, "words": finding.words, "by_plan": certificate.by_plan, "step": state.step}
    (Path(os.environ["TEST_LOG"]) / "0.jsonl").write_text(json.dumps({"end": end}) + "\\n")

train(state)
"""


@pytest.mark.core
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("dies_at", "by_plan"), [pytest.param(5, 8, id="in an epoch"), pytest.param(7, 2, id="at its end")]
)
def test_the_step_of_a_worker_that_died_before_it_told_is_known_by_the_plan(
    tmp_path: Path, engine: str, dies_at: int, by_plan: int
) -> None:
    """Its gradients are in the commit, which stays: the step is not done again, and its samples are used once."""
    (tmp_path / "train.py").write_text(SCRIPT)
    with training(tmp_path, engine=engine, DIES_AT=str(dies_at)) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "2", script=tmp_path / "train.py")
        assert job.ends() == 0, job.said()
        (end,) = job.written("end")
    words = "train, epochs 0-1: each of 50 samples once"
    told = f"{words} ({by_plan} of them in the step in which a worker died)"
    assert end == {"holds": True, "words": told, "by_plan": by_plan, "step": 14}
