"""What is freed, and what is not, when `owner.json` or `latest` is deleted by hand."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hvd_elastic.stores.location import Location
from hvd_elastic.trainer.checkpoint import Checkpoints, CorruptError, FencedError, PrefixOwnedError
from hvd_elastic.trainer.checkpoint.claim import next_head
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import CheckpointId
from tests.trainer.checkpoint.snapshots import same, small

Open = Callable[..., Checkpoints]


def save(checkpoints: Checkpoints, *steps: int) -> None:
    for step in steps:
        checkpoints.save(small(step), step=step, world_size=1, reason="interval")
        assert checkpoints.flush(30), checkpoints.counts.error
        assert checkpoints.wait_idle(30)


def steps(url: str) -> list[int]:
    keys = Location.parse(url).open().keys("manifests")
    return sorted(int(key.removesuffix(".json").rsplit("-", 1)[1]) for key in keys)


def delete(url: str, key: str) -> None:
    Location.parse(url).open().delete([key])


def test_without_owner_json_the_job_goes_on_with_its_checkpoints(url: str, opened: Open) -> None:
    save(opened(url, keep=2), 1, 2)
    delete(url, "owner.json")
    again = opened(url, "two", keep=2)
    found = again.latest()
    assert found is not None
    assert same(found.load(), small(2))
    save(again, 3)
    assert steps(url) == [2, 3], "they are this job's: they count, and go when it is time"
    with pytest.raises(PrefixOwnedError, match="belongs to job 'research/a'"):
        opened(url, job="research/b")


def test_without_owner_json_another_job_has_the_prefix_and_deletes_nothing_that_was_there(
    url: str, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    former = opened(url, keep=1)
    save(former, 1)
    delete(url, "owner.json")
    new = opened(url, "two", job="research/b", keep=1)
    assert "the checkpoints of research/a are not used and not deleted" in caplog.text
    assert new.latest() is None, "it begins from nothing"
    save(new, 10, 11)
    again = opened(url, "three", job="research/b", keep=1)
    found = again.latest()
    assert found is not None
    assert found.step == 11
    save(again, 12)
    assert steps(url) == [1, 12], "the former job's stays, the new one's are kept as usual"
    with pytest.raises(FencedError):
        save_fenced(former)
    with pytest.raises(PrefixOwnedError, match="belongs to job 'research/b'"):
        opened(url)


def save_fenced(checkpoints: Checkpoints) -> None:
    for _ in range(2):
        checkpoints.save(small(9), step=9, world_size=1, reason="interval")
        assert not checkpoints.flush(30)


def test_a_new_owner_that_died_before_its_first_checkpoint_begins_from_nothing_again(url: str, opened: Open) -> None:
    save(opened(url), 1)
    delete(url, "owner.json")
    for incarnation in ("two", "three"):
        assert opened(url, incarnation, job="research/b").latest() is None


def test_what_is_found_without_latest_is_never_deleted(tmp_path: Path, opened: Open) -> None:
    url = f"file://{tmp_path}"
    save(opened(url, keep=1), 1)
    shutil.rmtree(tmp_path / "latest")
    again = opened(url, "two", keep=1)
    found = again.latest()
    assert found is not None
    assert found.step == 1
    save(again, 2, 3)
    assert steps(url) == [1, 3]


def test_damaged_records_name_the_way_out(tmp_path: Path, opened: Open) -> None:
    save(opened(f"file://{tmp_path}"), 1)
    (tmp_path / "owner.json").write_text("{")
    with pytest.raises(CorruptError, match=r"owner.json: .*: delete it; the job finds its checkpoints without it"):
        opened(f"file://{tmp_path}", "two")
    (tmp_path / "owner.json").unlink()
    max((tmp_path / "latest").iterdir()).write_text("{")
    with pytest.raises(CorruptError, match=r"latest: .*: delete it; the checkpoints are found without it"):
        opened(f"file://{tmp_path}", "two")


def test_a_claim_after_one_of_an_earlier_version_protects_nothing() -> None:
    """It wrote no owner into `latest`: the prefix changes hands only if `owner.json` was just written."""
    written = CheckpointId(epoch=3, sequence=2)
    first = next_head(None, incarnation="a", nonce="1", time=0.0, written=None, owner="x")
    assert (first.epoch, first.protects) == (1, None)
    from_before = first.__class__(**{**{n: getattr(first, n) for n in first.__slots__}, "owner": None, "step": 7})
    goes_on = next_head(from_before, incarnation="b", nonce="2", time=0.0, written=written, owner="x")
    assert (goes_on.epoch, goes_on.protects, goes_on.step) == (4, None, 7)
    taken = next_head(from_before, incarnation="b", nonce="2", time=0.0, written=written, owner="y", changes_hands=True)
    assert (taken.protects, taken.step, taken.manifest) == (written, None, None)
