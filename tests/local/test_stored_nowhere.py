"""A job with a durable tier whose script has a state of Horovod's own: it is told, and not left to be found out."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_EVENTS
from testbed.local import forkserver

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SCRIPT = """
import horovod.torch as hvd
import torch
import hvd_elastic as elastic

elastic.init()
model = torch.nn.Linear(1, 1)
state = {state}(model=model, epoch=0)

@hvd.elastic.run
def train(state):
    state.commit()

train(state)
"""


def run(folder: Path, state: str, **environment: str) -> tuple[str, list[dict[str, object]]]:
    """Run the script alone. Returns its stderr, and its events of checkpoints."""
    script, told = folder / "train.py", folder / "told"
    script.write_text(SCRIPT.format(state=state))
    done = subprocess.run(
        [*forkserver.python(), str(script)],
        env={**os.environ, ENV_EVENTS: str(told), **environment},
        capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    lines = [json.loads(line) for path in told.glob("*.jsonl") for line in path.read_text().splitlines()]
    return done.stderr, [line for line in lines if line["event"] == "checkpoint"]


@pytest.mark.core
def test_a_state_that_is_never_stored_is_told_at_the_start(tmp_path: Path) -> None:
    said, (event,) = run(tmp_path, "hvd.elastic.TorchState", **{ENV_CHECKPOINT: f"file://{tmp_path}/store"})
    assert f"checkpoint: file://{tmp_path}/store stays empty, because the state is a TorchState, which lives in" in said
    assert "hvd_elastic.State(model=..., optimizer=..., ...)" in said
    assert event["saved"] is None
    assert str(event["error"]) in said
    assert not (tmp_path / "store").exists()


def test_no_word_without_a_durable_tier_nor_with_our_state(tmp_path: Path) -> None:
    assert "stays empty" not in run(tmp_path, "hvd.elastic.TorchState")[0]
    said, (event,) = run(tmp_path, "elastic.State", **{ENV_CHECKPOINT: f"file://{tmp_path}/store"})
    assert "stays empty" not in said
    assert event["error"] == ""
