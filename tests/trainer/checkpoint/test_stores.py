"""The guarantees of all stores: on a real folder, on moto's S3 server, on fake-gcs-server, and on Azurite."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256

import pytest

from hvd_elastic.stores.location import Location
from hvd_elastic.stores.store import Store
from hvd_elastic.trainer.checkpoint.errors import CorruptError


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Location.parse(url).open()
    yield opened
    opened.close()


def put(store: Store, key: str, data: bytes) -> None:
    upload = store.start_upload(key, len(data))
    upload.put(1, 0, bytearray(data), sha256(data).digest())
    upload.finish()


def test_what_is_not_there(store: Store) -> None:
    assert store.read("owner.json") is None
    assert store.keys("manifests") == ()
    store.delete(["manifests/a"])
    with pytest.raises(CorruptError, match="missing"):
        store.read_into("data/a", 0, memoryview(bytearray(1)))


def test_a_key_is_created_once(store: Store) -> None:
    assert store.create("manifests/a", b"mine")
    assert store.create("manifests/a", b"mine"), (
        "the same bytes are the caller's own, written before the answer was lost"
    )
    assert not store.create("manifests/a", b"other")
    found = store.read("manifests/a")
    assert found is not None
    assert found.data == b"mine"
    assert store.keys("manifests") == ("manifests/a",)


def test_a_register_moves_only_from_the_version_that_was_read(store: Store) -> None:
    first = store.replace("latest", b"1", version=None)
    assert first is not None
    assert store.replace("latest", b"other", version=None) is None
    second = store.replace("latest", b"2", version=first)
    assert second is not None
    assert store.replace("latest", b"late", version=first) is None
    assert store.replace("latest", b"2", version=first) == second, "the answer to this writer was lost"
    found = store.read("latest")
    assert found is not None
    assert (found.data, found.version) == (b"2", second)


def race(writers: int, action: Callable[[int], object]) -> list[object]:
    start, results = threading.Barrier(writers), [None] * writers

    def run(number: int) -> None:
        start.wait()
        results[number] = action(number)  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(results)


def create_one(store: Store, turn: int, writer: int) -> bool:
    return store.create(f"manifests/{turn}", b"%d" % writer)


def move_one(store: Store, turn: int, version: str | None, writer: int) -> str | None:
    return store.replace("latest", b"%d %d" % (turn, writer), version=version)


def test_of_many_writers_at_once_one_wins(store: Store) -> None:
    for turn in range(5):
        won = race(6, partial(create_one, store, turn))
        assert won.count(True) == 1
    version = store.replace("latest", b"start", version=None)
    for turn in range(5):
        moved = race(6, partial(move_one, store, turn, version))
        (version,) = [v for v in moved if isinstance(v, str)]


def test_a_large_object_is_invisible_until_it_is_finished_and_gone_when_aborted(store: Store) -> None:
    size = store.part_bytes + 3
    upload = store.start_upload("data/a", size)

    for number, at in ((2, store.part_bytes), (1, 0)):
        piece = bytes([number]) * min(store.part_bytes, size - at)
        upload.put(number, at, bytearray(piece), sha256(piece).digest())
        assert store.keys("data") == ()
    upload.finish()
    assert store.keys("data") == ("data/a",)
    target = bytearray(5)
    store.read_into("data/a", store.part_bytes - 2, memoryview(target))
    assert bytes(target) == b"\x01\x01\x02\x02\x02"
    with pytest.raises(CorruptError):
        store.read_into("data/a", size - 1, memoryview(bytearray(5)))
    with pytest.raises(CorruptError):
        store.read_into("data/a", size + 9, memoryview(bytearray(5)))
    store.start_upload("data/b", 10).abort()
    store.discard_uploads("data", lambda key: pytest.fail(f"{key} was left by an abort"))


def test_what_crashed_uploads_left_is_swept(store: Store) -> None:
    for key in ("data/dead", "data/alive"):
        store.start_upload(key, 10).put(1, 0, bytearray(10), sha256(bytes(10)).digest())
    seen: list[str] = []
    store.discard_uploads("data", lambda key: "dead" in key)
    store.discard_uploads("data", lambda key: bool(seen.append(key)))  # type: ignore[func-returns-value]
    assert [key.split(".")[0] for key in seen] == ["data/alive"]


def test_deleting_keeps_others(store: Store) -> None:
    for name in "abc":
        put(store, f"data/{name}", b"x")
    store.delete(["data/a", "data/c", "data/never"])
    assert store.keys("data") == ("data/b",)
