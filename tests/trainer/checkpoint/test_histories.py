"""In any sequence of saves, crashes, restarts, former writers and bit rot, the newest whole checkpoint is found.

The state machine runs the real writer, claim, retention and reader on real files. A crash acts like SIGKILL: just
before or just after some request, the process stops and does not clean up.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hvd_elastic.stores.file_store import FileStore, FileUpload
from hvd_elastic.stores.store import StoredObject
from hvd_elastic.trainer.checkpoint.claim import Claim
from hvd_elastic.trainer.checkpoint.errors import CorruptError, FencedError
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import CheckpointId, Manifest
from hvd_elastic.trainer.checkpoint.reading import find_newest
from hvd_elastic.trainer.checkpoint.writing import SaveRequest, prune, write
from tests.properties import examples
from tests.trainer.checkpoint.snapshots import same, small

KEEP = 2

T = TypeVar("T")


class Crash(BaseException):
    """The process was killed."""


class MortalUpload:
    """An upload that dies with its process."""

    def __init__(self, store: "MortalStore", upload: FileUpload) -> None:
        self.store, self.upload = store, upload

    def put(self, number: int, offset: int, data: bytearray, sha256: bytes) -> None:
        self.store.live(lambda: self.upload.put(number, offset, data, sha256))

    def finish(self) -> None:
        self.store.live(self.upload.finish)

    def abort(self) -> None:
        self.store.live(self.upload.abort)


class MortalStore(FileStore):
    """A folder, as seen by a process that dies when `requests_left` is used up."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, part_bytes=64, threads=1, sleep=lambda _: None)
        self.requests_left: int | None = None
        self.after = False

    def live(self, request: Callable[[], T]) -> T:
        if self.requests_left is None:
            return request()
        self.requests_left -= 1
        if self.requests_left < 0:
            raise Crash
        if self.requests_left == 0:
            if self.after:
                request()
            self.requests_left = -1
            raise Crash
        return request()

    def read(self, key: str) -> StoredObject | None:
        return self.live(lambda: super(MortalStore, self).read(key))

    def create(self, key: str, data: bytes) -> bool:
        return self.live(lambda: super(MortalStore, self).create(key, data))

    def replace(self, key: str, data: bytes, *, version: str | None) -> str | None:
        return self.live(lambda: super(MortalStore, self).replace(key, data, version=version))

    def keys(self, folder: str) -> tuple[str, ...]:
        return self.live(lambda: super(MortalStore, self).keys(folder))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.live(lambda key=key: super(MortalStore, self).delete([key]))  # type: ignore[misc]

    def start_upload(self, key: str, size_bytes: int) -> FileUpload:
        upload = self.live(lambda: super(MortalStore, self).start_upload(key, size_bytes))
        return MortalUpload(self, upload)  # type: ignore[return-value]


class Writer:
    """A process that is rank 0."""

    def __init__(self, root: Path, incarnation: str) -> None:
        self.store = MortalStore(root)
        self.claim = Claim.acquire(self.store, job="a", incarnation=incarnation, nonce=incarnation, time=0.0)
        self.sequence = 0
        self.rejected: list[str] = []

    def save(self, step: int) -> None:
        self.sequence += 1
        request = SaveRequest(
            capture=Capture.take(small(step)), sequence=self.sequence, step=step, world_size=1, reason="test", time=0.0
        )
        manifest = write(self.claim, request, stop=threading.Event())
        prune(self.claim, manifest, keep=KEEP, rejected=self.rejected)


class Histories(RuleBasedStateMachine):
    """The writer's step increases; a restart continues from the checkpoint that was found."""

    @initialize()
    def start(self) -> None:
        shm = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.rotten: set[str] = set()
        self.incarnations = 0
        self.step = 0
        self.zombie: Writer | None = None
        self.writer = self.begin()

    def begin(self) -> Writer:
        self.incarnations += 1
        return Writer(self.root, f"launcher-{self.incarnations}")

    @rule(steps=st.integers(1, 5))
    def save(self, steps: int) -> None:
        self.step += steps
        before = set(self.complete())
        self.writer.save(self.step)
        known_good = sorted((before | set(self.complete())) - set(self.writer.rejected))
        assert set(known_good[-KEEP:]) <= set(self.complete()), "one of the newest was deleted"
        assert CheckpointId.from_key(max(self.complete())) == CheckpointId(
            epoch=self.writer.claim.head.epoch, sequence=self.writer.sequence
        )

    @rule(steps=st.integers(1, 5), requests=st.integers(1, 14), after=st.booleans())
    def crash_in_save_and_restart(self, steps: int, requests: int, after: bool) -> None:
        self.step += steps
        self.writer.store.requests_left, self.writer.store.after = requests, after
        with suppress(Crash):
            self.writer.save(self.step)
        self.writer.store.requests_left = None
        self.restart()

    @rule()
    def restart(self) -> None:
        before = self.complete()
        self.zombie, self.writer = self.writer, self.begin()
        self.find(before)

    def find(self, before: list[str]) -> None:
        good = [key for key in before if key not in self.rotten]
        if before and not good:
            try:
                find_newest(self.writer.store, self.writer.claim.owner, threading.Event())
            except CorruptError:
                self.start()
                return
            raise AssertionError("a damaged checkpoint was used")
        found, rejected = find_newest(self.writer.store, self.writer.claim.owner, threading.Event())
        if not before:
            assert found is None
            return
        assert found is not None
        assert found.name == max(good)
        assert same(found.load(), small(found.step))
        assert {r.manifest for r in rejected} == {key for key in before if key > max(good)}
        self.writer.rejected = [r.manifest for r in rejected]
        self.step = found.step

    @precondition(lambda self: self.zombie is not None)
    @rule()
    def a_zombie_saves(self) -> None:
        assert self.zombie is not None
        before = set(self.complete())
        try:
            self.zombie.save(10_000)
        except FencedError:
            assert set(self.complete()) == before
            return
        raise AssertionError("an earlier launcher wrote")

    @rule()
    def the_newest_rots(self) -> None:
        if not (complete := self.complete()):
            return
        manifest = Manifest.decode((self.root / max(complete)).read_bytes())
        data = bytearray((self.root / manifest.data).read_bytes())
        data[len(data) // 2] ^= 1
        (self.root / manifest.data).write_bytes(data)
        self.rotten ^= {max(complete)}

    @rule()
    def the_register_is_deleted(self) -> None:
        """A person deletes it: no checkpoint is lost, but the present writer ends."""
        shutil.rmtree(self.root / "latest")
        self.zombie = None
        before = self.complete()
        self.writer = self.begin()
        self.find(before)

    def complete(self) -> list[str]:
        """Return the manifests that were written and not deleted, oldest first."""
        folder = self.root / "manifests"
        return sorted(f"manifests/{path.name}" for path in folder.iterdir()) if folder.is_dir() else []

    @invariant()
    def every_manifest_has_its_data(self) -> None:
        complete = self.complete()
        for key in complete:
            manifest = Manifest.decode((self.root / key).read_bytes())
            assert (self.root / manifest.data).stat().st_size == manifest.size_bytes, "a manifest without its data"

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root, ignore_errors=True)


Histories.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=12)
TestHistories = Histories.TestCase
