import logging
import threading
from pathlib import Path

import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS, ENV_INCARNATION, ENV_JOB
from hvd_elastic.trainer.checkpoint import PrefixOwnedError, StoreError, open_checkpoints, writing
from hvd_elastic.trainer.state import durable_tier
from hvd_elastic.trainer.state.durable_tier import RETRY_SECONDS, DurableTier, UnstorableError


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {
        ENV_CHECKPOINT: f"file://{folder}",
        ENV_JOB: "job",
        ENV_INCARNATION: "first",
        ENV_CHECKPOINT_STEPS: "2",
        **more,
    }


def test_without_a_url_there_is_no_tier() -> None:
    tier = DurableTier(environ={})
    tier.open("lineage")
    assert not tier.configured
    assert not tier.due(1000)
    assert tier.newest() is None
    assert not tier.insist({}, step=1, size=1, reason="sigterm", within_seconds=20)
    assert tier.flush()
    tier.close()


def test_the_environment_is_read_when_the_tier_is_opened(tmp_path: Path) -> None:
    """A standby makes its State before it knows its job."""
    known: dict[str, str] = {}
    tier = DurableTier(environ=known)
    known.update(environ(tmp_path))
    assert tier.configured
    tier.open("lineage")
    assert tier.insist({"weights": torch.ones(3)}, step=1, size=2, reason="sigterm", within_seconds=20)
    found = tier.newest()
    assert found is not None
    assert found["weights"].tolist() == [1.0, 1.0, 1.0]
    tier.close()


def test_a_job_cannot_take_anothers_prefix(tmp_path: Path) -> None:
    first = DurableTier(environ=environ(tmp_path))
    first.open("lineage")
    first.close()
    with pytest.raises(PrefixOwnedError):
        DurableTier(environ=environ(tmp_path, **{ENV_JOB: "other"})).open("lineage")


def test_training_goes_on_while_the_store_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new rank 0 of a job that holds its state needs no store; one that holds none must not start from zero."""
    now = [0.0]

    def silent(*_: object, **__: object) -> None:
        raise StoreError("no answer")

    monkeypatch.setattr(durable_tier, "open_checkpoints", silent)
    tier = DurableTier(environ=environ(tmp_path), clock=lambda: now[0])
    with pytest.raises(StoreError):
        tier.open("lineage")
    with caplog.at_level(logging.WARNING):
        tier.keep_open("lineage")
    assert "no answer" in caplog.text
    monkeypatch.setattr(durable_tier, "open_checkpoints", open_checkpoints)
    now[0] = RETRY_SECONDS - 1
    assert not tier.due(10)
    now[0] = RETRY_SECONDS
    assert tier.due(10)
    tier.close()


def test_whoever_takes_over_stores_the_next_commit(tmp_path: Path) -> None:
    """The writer before may have been cut short, again and again: the interval must not begin anew each time."""
    first = DurableTier(environ=environ(tmp_path))
    first.open("lineage")
    first.keep_open("lineage")
    assert not first.due(1), "it was the writer already"
    second = DurableTier(environ=environ(tmp_path))
    second.keep_open("lineage")
    assert second.due(1)
    assert not second.due(1)
    first.close()
    second.close()


def test_a_save_that_hangs_does_not_hold_the_next_one_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(writing, "upload", lambda *_: gate.wait(60))
    tier = DurableTier(environ=environ(tmp_path))
    tier.open("lineage")
    tier.offer({"a": 1}, step=1, size=1)
    assert not tier.insist({"a": 2}, step=2, size=1, reason="sigterm", within_seconds=0.05)
    gate.set()
    tier.close()


def test_what_only_a_pickle_could_hold_is_refused_at_the_start(tmp_path: Path) -> None:
    tier = DurableTier(environ=environ(tmp_path))
    tier.open("lineage")
    tier.refuse({"values": {"epoch": 1, "path": "plain"}})
    with pytest.raises(UnstorableError, match=r"values\.log"):
        tier.refuse({"values": {"log": logging.getLogger()}})
    tier.close()
