"""From a training's batches to `checkpoints verify`: what a checkpoint alone proves of the samples."""

import copy
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.mpijob.contract import ENV_CHECKPOINT_STEPS, ENV_RUN_DIR
from hvd_elastic.trainer.data import sample_proof
from hvd_elastic.trainer.data.certified_pass import KEPT_ROWS
from hvd_elastic.trainer.data.progress import Progress
from hvd_elastic.trainer.data.sample_certificate import examine
from hvd_elastic.trainer.data.sample_proof import SampleProof
from hvd_elastic.trainer.data.sampler import EpochPlan, SampleOrder
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.durable.durable_tier import DurableTier
from hvd_elastic.trainer.state.elastic_state import State


@pytest.fixture(autouse=True, scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    horovod_patches.init()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENV_RUN_DIR, str(tmp_path_factory.mktemp("run")))
        yield


def train(folder: Path, epochs: int, *, stop: int | None = None, **options: Any) -> None:
    """Train on 50 samples. With `stop`, end after so many steps of the last epoch, with the last commit stored."""
    state = State(checkpoint=f"file://{folder}/store")
    state.sync()
    for state.epoch in state.remaining_epochs(epochs):
        for step, _ in enumerate(state.batches(range(50), batch_size=8, **options), start=1):
            state.commit()
            if state.epoch == epochs - 1 and step == stop:
                state._commits.save_to_store_sync("a test")
                state._commits.durable.close()
                return
    state._commits.save_final()
    state._commits.durable.close()


def samples(folder: Path, *, exit_code: int = 0) -> str:
    """What the verb says of the newest checkpoint, and how it ends."""
    done = CliRunner().invoke(cli, ["checkpoints", "verify", f"file://{folder}/store", "-o", "json"])
    assert done.exit_code == exit_code, done.output
    rows = json.loads(done.stdout)
    assert rows[0]["status"] == "whole"
    return str(rows[0]["samples"])


def test_each_sample_of_each_epoch_was_used_once(tmp_path: Path) -> None:
    train(tmp_path, 3)
    assert samples(tmp_path) == "train, epochs 0-2: each of 50 samples once"
    sample_proof.THIS_PROCESS.wait()
    assert sample_proof.words_of_this_process() == samples(tmp_path), "`status` has it from the figures"


def test_a_job_that_was_lost_whole_goes_on_with_its_certificate(tmp_path: Path) -> None:
    train(tmp_path, 2, stop=3)
    assert samples(tmp_path) == (
        "train, epoch 1: 24 of 50 samples once so far; train, epoch 0: each of 50 samples once"
    )
    train(tmp_path, 3)
    assert samples(tmp_path) == "train, epochs 0-2: each of 50 samples once"


def test_each_commit_is_handed_over_with_its_own_certificate_and_not_changed_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_CHECKPOINT_STEPS, "1")
    handed: list[tuple[Any, Any]] = []
    save = DurableTier.save

    def note(tier: DurableTier, snapshot: Mapping[str, Any], **named: Any) -> None:
        data = snapshot["progress"]["data"]
        handed.append((data, copy.deepcopy(data)))
        save(tier, snapshot, **named)

    monkeypatch.setattr(DurableTier, "save", note)
    state = State(checkpoint=f"file://{tmp_path}/store")
    state.sync()
    stored = 0
    for _ in state.batches(range(50), batch_size=8):
        before = len(handed)
        state._commits.durable.wait_idle(30)
        state.commit()
        certificate = state._batches.account.position.certificate
        assert certificate is not None
        if len(handed) > before:
            data, as_handed = handed[-1]
            assert as_handed["certificate"] == certificate.state_dict()
            assert data == as_handed
            stored += 1
    assert stored > 2
    state._commits.durable.close()


def test_samples_that_are_left_out_on_purpose_are_told(tmp_path: Path) -> None:
    train(tmp_path, 2, drop_last=True)
    assert samples(tmp_path).startswith("train, epochs 0-1: 48 of 50 samples once")


def test_epochs_that_each_end_in_another_way_make_no_checkpoint_larger(tmp_path: Path) -> None:
    state = State()
    state.sync()
    for state.epoch in state.remaining_epochs(60):
        for _ in state.batches(range(50), batch_size=1 + state.epoch % 7, max_steps=3, seed=state.epoch):
            state.commit()
    certificate = Progress.from_state_dict(state._commits.last["progress"]).data.certificate
    assert certificate is not None
    assert len(certificate.passes) <= KEPT_ROWS + 2
    finding = examine(certificate)
    assert finding.holds
    assert finding.words.startswith("train, epoch 59: 12 of 50 samples once so far; train, epoch 58: ")
    assert finding.words.endswith("; train, epochs 0-49: 591 samples once, and no other")


@pytest.mark.parametrize("wrong", [[0, 0], [0, 2]])
def test_a_sample_that_is_taken_twice_or_left_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: list[int]
) -> None:
    right = EpochPlan.indices

    def indices(plan: EpochPlan, order: SampleOrder) -> Iterator[list[int]]:
        """The same number of samples in each batch, and one of them another."""
        taken = {0: wrong[0], 1: wrong[1]}
        return ([taken.get(index, index) for index in each] for each in right(plan, order))

    monkeypatch.setattr(EpochPlan, "indices", indices)
    monkeypatch.setattr(sample_proof, "THIS_PROCESS", SampleProof())
    caplog.set_level(logging.WARNING, logger="hvd_elastic.trainer.data.sample_proof")
    train(tmp_path, 1)
    assert samples(tmp_path, exit_code=1) == "WRONG: samples were left out or used more than once"
    sample_proof.THIS_PROCESS.wait()
    said = [record.getMessage() for record in caplog.records if record.name == sample_proof.logger.name]
    assert said == ["the certificate of samples does not hold: samples were left out or used more than once"]
