"""Damage of every kind to the newest checkpoint: the one before is used, whatever the damaged one claims."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from hvd_elastic.stores.store import SMALL_BYTES
from hvd_elastic.trainer.checkpoint import Checkpoints, CorruptError, IncompatibleError
from hvd_elastic.trainer.checkpoint.format import archive
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import Manifest
from tests.trainer.checkpoint.snapshots import same, small

Open = Callable[..., Checkpoints]
Damage = Callable[[Path], None]


def newest(root: Path, folder: str) -> Path:
    return max((root / folder).iterdir())


def rewrite(root: Path, **changes: object) -> None:
    """Write the newest manifest again, with a digest that is right."""
    path = newest(root, "manifests")
    path.write_bytes(replace(Manifest.decode(path.read_bytes()), **changes).encode())  # type: ignore[arg-type]


def claims(**changes: object) -> Damage:
    return lambda root: rewrite(root, **changes)


def is_no_archive(root: Path) -> None:
    newest(root, "data").write_bytes(b"x" * 100)
    rewrite(root, size_bytes=100, sha256=(sha256(b"x" * 100).hexdigest(),))


def is_an_archive_of_another_version(root: Path) -> None:
    path = newest(root, "data")
    data = path.read_bytes().replace(b'{"tensor":', b'{"future":')
    path.write_bytes(data)
    rewrite(root, sha256=(sha256(data).hexdigest(),))


def lies_elsewhere(root: Path) -> None:
    shutil.move(newest(root, "data"), root / "elsewhere")
    rewrite(root, data="../" * 20 + str(root / "elsewhere"))


def lies_above(root: Path) -> None:
    name = newest(root, "data").name
    shutil.move(newest(root, "data"), root / name)
    rewrite(root, data=f"data/../{name}")


def is_the_one_before(root: Path) -> None:
    """Its data is another checkpoint's: right bytes, wrong step."""
    before = Manifest.decode(sorted((root / "manifests").iterdir())[-2].read_bytes())
    rewrite(root, data=before.data, sha256=before.sha256, size_bytes=before.size_bytes)


def endless_manifest(root: Path) -> None:
    os.truncate(newest(root, "manifests"), SMALL_BYTES + 1)


@pytest.mark.parametrize(
    "damage",
    [
        claims(size_bytes=10**15, part_bytes=10**15),
        claims(size_bytes=10**15, part_bytes=1),
        claims(size_bytes=10**30, part_bytes=10**30),
        claims(size_bytes=-5, sha256=()),
        claims(size_bytes=0, sha256=()),
        claims(part_bytes=0),
        claims(part_bytes=-1, sha256=()),
        claims(size_bytes=1.5),
        claims(size_bytes=True),
        claims(size_bytes=16),
        claims(step="7"),
        claims(time=1e300),
        claims(time=float("nan")),
        claims(step=-1),
        claims(data=7),
        claims(data="/etc/passwd"),
        claims(data="owner.json"),
        claims(data="data/00000001-00000003-../x"),
        claims(sha256=(7,)),
        claims(sha256=("aa",)),
        is_no_archive,
        is_an_archive_of_another_version,
        is_the_one_before,
        lies_elsewhere,
        lies_above,
        endless_manifest,
        lambda root: newest(root, "data").unlink(),
        lambda root: os.truncate(newest(root, "data"), 10),
        lambda root: os.truncate(newest(root, "data"), 1 << 40),
        lambda root: newest(root, "data").write_bytes(b""),
        lambda root: newest(root, "manifests").write_bytes(b""),
        lambda root: newest(root, "manifests").write_bytes(b"[]"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path: Path, opened: Open, caplog: pytest.LogCaptureFixture, damage: Damage
) -> None:
    writer = opened(f"file://{tmp_path}")
    for step in (1, 2, 3):
        writer.save(small(step), step=step, world_size=1, reason="interval")
        assert writer.flush(30)
    writer.close()
    damage(tmp_path)
    found = opened(f"file://{tmp_path}").latest()
    assert found is not None
    assert found.step == 2
    assert same(found.load(), small(2))
    assert f"checkpoint manifests/{newest(tmp_path, 'manifests').name} is not used: " in caplog.text


def test_a_class_that_the_script_lacks_is_no_damage(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every older checkpoint has it too: the script is wrong, and going back would lose the newest state."""
    writer = opened(f"file://{tmp_path}")
    for step in (1, 2):
        writer.save(small(step), step=step, world_size=1, reason="interval")
        assert writer.flush(30)

    def lacks(buffer: torch.Tensor, *, stand_ins: bool) -> dict[str, object]:
        raise IncompatibleError("no such class")

    monkeypatch.setattr("hvd_elastic.trainer.checkpoint.reading.restore", lacks)
    with pytest.raises(IncompatibleError):
        opened(f"file://{tmp_path}").latest()


def test_nothing_is_allocated_for_a_size_that_is_not_there(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(f"file://{tmp_path}")
    writer.save(small(1), step=1, world_size=1, reason="interval")
    assert writer.flush(30)
    rewrite(tmp_path, size_bytes=10**11, part_bytes=10**11)
    made: list[object] = []
    monkeypatch.setattr(torch, "empty", lambda *sizes, **_: made.append(sizes))
    with pytest.raises(CorruptError, match=r"has \d+ bytes, its manifest names 100000000000"):
        opened(f"file://{tmp_path}").latest()
    assert made == []
    assert newest(tmp_path, "data").stat().st_size > archive.HEAD_BYTES
