import logging
from pathlib import Path

import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS, ENV_INCARNATION, ENV_JOB
from hvd_elastic.trainer.checkpoint import PrefixOwnedError, StoreError, open_checkpoints
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
    assert tier.load_newest() is None
    tier.save({}, step=1, size=1, reason="sigterm")
    assert not tier.idle
    assert not tier.wait_idle(20)
    assert tier.flush()
    tier.close()


def test_the_environment_is_read_when_the_tier_is_opened(tmp_path: Path) -> None:
    """A standby creates its State before it knows its job."""
    known: dict[str, str] = {}
    tier = DurableTier(environ=known)
    known.update(environ(tmp_path))
    assert tier.configured
    tier.open("lineage")
    tier.save({"weights": torch.ones(3)}, step=1, size=2, reason="sigterm")
    assert tier.flush(20)
    found = tier.load_newest()
    assert found is not None
    assert found["weights"].tolist() == [1.0, 1.0, 1.0]
    tier.close()


def test_a_job_cannot_take_anothers_prefix(tmp_path: Path) -> None:
    first = DurableTier(environ=environ(tmp_path))
    first.open("lineage")
    first.close()
    with pytest.raises(PrefixOwnedError):
        DurableTier(environ=environ(tmp_path, **{ENV_JOB: "other"})).open("lineage")


def test_training_continues_while_the_store_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new rank 0 that holds the state needs no store. One that holds none must not start from zero."""
    now = [0.0]

    def unreachable(*_: object, **__: object) -> None:
        raise StoreError("no answer")

    monkeypatch.setattr(durable_tier, "open_checkpoints", unreachable)
    tier = DurableTier(environ=environ(tmp_path), clock=lambda: now[0])
    with pytest.raises(StoreError):
        tier.open("lineage")
    with caplog.at_level(logging.WARNING):
        tier.open_or_retry("lineage")
    assert "no answer" in caplog.text
    monkeypatch.setattr(durable_tier, "open_checkpoints", open_checkpoints)
    now[0] = RETRY_SECONDS - 1
    assert not tier.due(10)
    now[0] = RETRY_SECONDS
    assert tier.due(10)
    tier.close()


def test_a_new_writer_stores_the_next_commit(tmp_path: Path) -> None:
    """Former writers may have been interrupted, one after the other: the interval must not start again each time."""
    first = DurableTier(environ=environ(tmp_path))
    first.open("lineage")
    first.open_or_retry("lineage")
    assert not first.due(1), "it was already the writer"
    second = DurableTier(environ=environ(tmp_path))
    second.open_or_retry("lineage")
    assert second.due(1)
    assert not second.due(1)
    first.close()
    second.close()


def test_a_value_that_needs_pickle_is_refused_at_the_start(tmp_path: Path) -> None:
    tier = DurableTier(environ=environ(tmp_path))
    tier.open("lineage")
    tier.validate({"values": {"epoch": 1, "path": "plain"}})
    with pytest.raises(UnstorableError, match=r"values\.log"):
        tier.validate({"values": {"log": logging.getLogger()}})
    tier.close()
