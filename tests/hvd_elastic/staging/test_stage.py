"""Staging from a real S3 server into a real folder."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.staging import Staged, StageError, StageProgress, WantedData, stage, whats_missing
from hvd_elastic.staging.source_manifest import STATE_FOLDER, SUCCESS_FILE
from hvd_elastic.staging.stage_errors import (
    DigestError,
    UnusableSourceError,
    UnusableWantedError,
)
from hvd_elastic.stores.data_set.object_source import ObjectSource
from hvd_elastic.stores.errors import ChangedObjectError
from hvd_elastic.stores.object_requests import ListedObject
from hvd_elastic.system.atomic_file import replace_file
from testbed.s3_server import Put, PutParts

Stage = Callable[..., Staged]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def staged(endpoint: str, bucket: str, folder: Path) -> Stage:
    return partial(stage, f"s3://{bucket}/set", folder, endpoint=endpoint, threads=8)


def missing(folder: Path, source: str, rearrange: Sequence[str]) -> str | None:
    return whats_missing(WantedData(source=source, into=folder, rearrange=rearrange))


def content(folder: Path) -> Mapping[str, bytes]:
    """What a training script sees."""
    files = (path for path in folder.rglob("*") if path.is_file() and STATE_FOLDER not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != SUCCESS_FILE}


@pytest.mark.thorough
def test_a_thousand_small_objects(staged: Stage, put: Put, folder: Path) -> None:
    wanted = {f"{number % 7}/{number:04}.bin": str(number).encode() * (number % 50) for number in range(1100)}
    for key, data in wanted.items():
        put(key, data)
    seen: list[StageProgress] = []
    done = staged(report=seen.append)
    assert content(folder) == wanted
    assert (done.copied, done.kept, done.marker.objects, done.marker.unverified) == (1100, 0, 1100, 0)
    assert done.marker.size_bytes == sum(map(len, wanted.values()))
    assert [one.objects for one in seen] == sorted(one.objects for one in seen)
    assert (seen[-1].objects, seen[-1].size_bytes) == (seen[-1].of_objects, seen[-1].of_bytes)
    again = staged()
    assert (again.copied, again.kept, again.marker) == (0, 1100, done.marker)


def test_a_file_larger_than_a_range_is_read_in_ranges(staged: Stage, put: Put, folder: Path) -> None:
    data = os.urandom(5 * (1 << 20) + 17)
    put("large.bin", data)
    seen: list[StageProgress] = []
    assert staged(range_bytes=1 << 20, report=seen.append).marker.unverified == 0
    assert content(folder) == {"large.bin": data}
    assert len(seen) == 1 + 6, "what is there at first, and then each range"


def test_a_multipart_upload_is_verified_by_its_parts(staged: Stage, put_parts: PutParts, folder: Path) -> None:
    pieces = [os.urandom(5 << 20), os.urandom(1000)]
    put_parts("parts.bin", pieces)
    assert staged(range_bytes=1 << 20).marker.unverified == 0
    assert content(folder) == {"parts.bin": b"".join(pieces)}


@pytest.mark.process
def test_a_copier_that_was_killed_goes_on_where_it_was(
    staged: Stage, put: Put, folder: Path, endpoint: str, bucket: str
) -> None:
    wanted = {f"{number:03}": os.urandom(1000) for number in range(400)}
    for key, data in wanted.items():
        put(key, data)
    script = (
        "import sys, pathlib; from hvd_elastic.staging import stage\n"
        "stage(sys.argv[1], pathlib.Path(sys.argv[2]), endpoint=sys.argv[3], threads=4,"
        " report=lambda progress: print(progress.objects, flush=True))"
    )
    command = [sys.executable, "-c", script, f"s3://{bucket}/set", str(folder), endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 150:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert missing(folder, f"s3://{bucket}/set", []) is not None
    (folder / STATE_FOLDER / "incoming" / "left").write_bytes(b"half")
    done = staged()
    assert content(folder) == wanted
    assert done.kept >= 149  # the last one may have been renamed, and not yet recorded
    assert done.copied + done.kept == 400
    assert not list((folder / STATE_FOLDER / "incoming").iterdir())


@pytest.mark.process
def test_a_copier_that_was_killed_within_a_large_object_goes_on_there(
    staged: Stage, put: Put, folder: Path, endpoint: str, bucket: str
) -> None:
    ranges, kill_after = 40, (0, 1, 7, 30, 39)
    data = os.urandom((ranges - 1) * 1000 + 1)
    put("large", data)
    script = (
        "import os, sys, pathlib; from hvd_elastic.staging import stage\n"
        "from hvd_elastic.stores.data_set.object_source import ObjectSource\n"
        "def say(*words): os.write(1, (' '.join(map(str, words)) + '\\n').encode())\n"
        "pieces = ObjectSource.pieces\n"
        "def told(source, one, offset, length):\n"
        "    say('read', offset)\n"
        "    yield from pieces(source, one, offset, length)\n"
        "ObjectSource.pieces = told\n"
        "stage(sys.argv[1], pathlib.Path(sys.argv[2]), endpoint=sys.argv[3], threads=3, range_bytes=1000,"
        " report=lambda progress: say('there', progress.size_bytes))"
    )
    command = [sys.executable, "-c", script, f"s3://{bucket}/set", str(folder), endpoint]
    there = 0
    for kill_at in kill_after:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = list(_until(process.stdout, kill_at, process))
        read = [int(line.split()[1]) for line in lines if line.startswith("read")]
        assert len(read) == len(set(read)) <= ranges - there
        there = max([there, *(-(-int(line.split()[1]) // 1000) for line in lines if line.startswith("there"))])
    done = staged(range_bytes=1000)
    assert content(folder) == {"large": data}
    assert done.marker.unverified == 0
    assert not list((folder / STATE_FOLDER / "incoming").iterdir())


def _until(lines: Iterable[str], ranges: int, process: "subprocess.Popen[str]") -> Iterator[str]:
    """Lines until so many ranges are there, and the process is killed; then those that it had written."""
    for line in lines:
        yield line
        if line.startswith("there") and int(line.split()[1]) >= ranges * 1000:
            process.send_signal(signal.SIGKILL)


def test_only_what_changed_is_copied_again(staged: Stage, put: Put, client: Any, bucket: str, folder: Path) -> None:
    for key in "abcd":
        put(key, key.encode() * 10)
    first = staged()
    put("b", b"B" * 10)
    client.delete_object(Bucket=bucket, Key="set/d")
    (folder / "mine").write_text("notes")
    done = staged()
    assert (done.copied, done.kept, done.removed) == (1, 2, 1)
    assert content(folder) == {"a": b"a" * 10, "b": b"B" * 10, "c": b"c" * 10, "mine": b"notes"}
    assert done.marker.digest != first.marker.digest


@pytest.mark.parametrize("key", ["../outside", "{outside}", "a/../../outside", "", "a\0", 3, None, [[]], "x" * 300])
def test_a_record_of_what_staging_cannot_have_copied_deletes_nothing(
    staged: Stage, put: Put, folder: Path, key: object
) -> None:
    """Whoever may write to the shared folder may write its records, too."""
    outside = folder.parent / "outside"
    outside.write_bytes(b"another's")
    put("a", b"a" * 10)
    staged()
    with (folder / STATE_FOLDER / "records.jsonl").open("a") as records:
        key = key.format(outside=outside) if isinstance(key, str) else key
        records.write(json.dumps([key, "etag", 9, 1]) + "\n" + "[" * 100_000 + "\n")
    put("b", b"b" * 10)
    done = staged()
    assert (done.copied, done.kept, done.removed) == (1, 1, 0)
    assert outside.read_bytes() == b"another's"


def test_what_is_no_file_where_one_belongs_makes_way(staged: Stage, put: Put, folder: Path) -> None:
    """To open a FIFO would wait for its writer, for ever."""
    folder.mkdir()
    os.mkfifo(folder / "a")
    put("a", b"")
    staged()
    assert content(folder) == {"a": b""}


@pytest.mark.parametrize("damage", [b"", b"xx", b"yyyyyyyyyy"])
def test_a_file_that_was_truncated_or_overwritten_is_copied_again(
    staged: Stage, put: Put, folder: Path, damage: bytes
) -> None:
    for key in "ab":
        put(key, b"x" * 10)
    staged()
    (folder / "a").write_bytes(damage)
    assert staged().kept == 1
    assert content(folder) == {"a": b"x" * 10, "b": b"x" * 10}


def test_files_that_are_there_without_a_record_are_compared_not_copied(staged: Stage, put: Put, folder: Path) -> None:
    put("a", b"x" * 10)
    staged()
    (folder / STATE_FOLDER / "records.jsonl").unlink()
    inode = (folder / "a").stat().st_ino
    staged()
    assert (folder / "a").stat().st_ino == inode


def test_the_marker_goes_before_anything_changes(
    staged: Stage, put: Put, client: Any, bucket: str, folder: Path
) -> None:
    put("a", b"1")
    staged()
    put("a", b"2")
    put("b", b"2")

    def stop(progress: StageProgress) -> None:
        raise StageError("stopped")

    with pytest.raises(StageError, match="stopped"):
        staged(report=stop)
    assert missing(folder, f"s3://{bucket}/set", []) is not None


def test_a_large_object_that_was_damaged_on_the_way_begins_again(
    staged: Stage, put: Put, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(5000)
    put("large", data)
    pieces = ObjectSource.pieces

    def damaged(source: ObjectSource, one: ListedObject, offset: int, length: int) -> Iterable[bytes]:
        return [b"?" * length] if offset == 2000 else pieces(source, one, offset, length)

    monkeypatch.setattr(ObjectSource, "pieces", damaged)
    with pytest.raises(DigestError, match="large: the bytes that arrived are not those of version"):
        staged(range_bytes=1000)
    monkeypatch.undo()
    staged(range_bytes=1000)
    assert content(folder) == {"large": data}


def test_what_was_begun_of_an_object_that_changed_is_removed(staged: Stage, put: Put, folder: Path) -> None:
    put("large", os.urandom(5000))

    def stop(progress: StageProgress) -> None:
        if progress.size_bytes:
            raise StageError("stopped")

    with pytest.raises(StageError, match="stopped"):
        staged(threads=1, range_bytes=1000, report=stop)
    incoming = folder / STATE_FOLDER / "incoming"
    begun = {path.name for path in incoming.iterdir()}
    assert len(begun) == 2
    put("large", os.urandom(5000))
    with pytest.raises(StageError, match="stopped"):
        staged(threads=1, range_bytes=1000, report=stop)
    assert not begun & {path.name for path in incoming.iterdir()}


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(
    staged: Stage, put: Put, bucket: str, folder: Path
) -> None:
    put("a", os.urandom(4 << 20))

    def replace(progress: StageProgress) -> None:
        if progress.size_bytes == 1 << 20:
            put("a", os.urandom(4 << 20))

    with pytest.raises(ChangedObjectError, match="stage again"):
        staged(threads=1, range_bytes=1 << 20, report=replace)
    assert content(folder) == {}
    assert staged(threads=1).marker.objects == 1


def test_every_key_that_cannot_be_a_file_is_named(staged: Stage, put: Put) -> None:
    for key in ("ok", "a/../b", "c", "c/d", f"{STATE_FOLDER}/x", "long/" + "n" * 256):
        put(key, b"1")
    with pytest.raises(UnusableSourceError) as caught:
        staged()
    assert len(str(caught.value).splitlines()) == 4


def test_markers_of_folders_and_of_spark_are_not_data(staged: Stage, put: Put, folder: Path) -> None:
    for key, data in {"": b"", "f/": b"", "f/a": b"1", SUCCESS_FILE: b""}.items():
        put(key, data)
    assert staged().marker.objects == 1
    assert content(folder) == {"f/a": b"1"}


def test_an_empty_prefix_is_an_error(staged: Stage) -> None:
    with pytest.raises(StageError, match="no object"):
        staged()


def test_the_rearrangement_runs_once_for_each_data_set(staged: Stage, put: Put, bucket: str, folder: Path) -> None:
    put("a.txt", b"1")
    command = ["/bin/sh", "-c", "mkdir -p sorted; mv *.txt sorted/; echo run >> runs"]
    url = f"s3://{bucket}/set"
    staged()
    assert "rearrange command" in str(missing(folder, url, command))
    assert staged(rearrange=command).rearranged
    assert missing(folder, url, command) is None
    assert "another command" in str(missing(folder, url, ["other"]))
    assert not staged(rearrange=command).rearranged
    assert (folder / "runs").read_text() == "run\n"
    put("b.txt", b"2")
    assert staged(rearrange=command).rearranged
    assert (folder / "sorted" / "b.txt").read_bytes() == b"2"


def test_a_rearrangement_that_fails_leaves_no_marker(staged: Stage, put: Put, bucket: str, folder: Path) -> None:
    put("a", b"1")
    with pytest.raises(StageError, match="ended with code 3"):
        staged(rearrange=["/bin/sh", "-c", "exit 3"])
    assert missing(folder, f"s3://{bucket}/set", ["x"]) is not None
    with pytest.raises(StageError, match="no-such"):
        staged(rearrange=["no-such-command"])


def test_what_may_not_outlive_the_machine_is_not_called_whole(
    staged: Stage, put: Put, bucket: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_folder: Path) -> None:
        raise OSError(errno.ENOSPC, "no space")

    put("a", b"1")
    monkeypatch.setattr(sys.modules["hvd_elastic.staging.stage"], "sync_file_system", full)
    with pytest.raises(OSError, match="no space"):
        staged()
    assert missing(folder, f"s3://{bucket}/set", []) is not None
    monkeypatch.undo()
    assert staged().kept == 1


def test_a_second_stager_waits_for_the_first(staged: Stage, put: Put, folder: Path) -> None:
    for key in "abcdefgh":
        put(key, key.encode())
    with ThreadPoolExecutor(3) as pool:
        done = [each.result() for each in [pool.submit(staged) for _ in range(3)]]
    assert sorted(one.copied for one in done) == [0, 0, 8]
    assert len(content(folder)) == 8


def test_the_gate_knows_whose_data_it_is(staged: Stage, put: Put, bucket: str, folder: Path) -> None:
    assert "not staged" in str(missing(folder, "s3://other/set", []))
    put("a", b"1")
    staged()
    assert "holds" in str(missing(folder, "s3://other/set", []))
    assert missing(folder, f"s3://{bucket}/set/", []) is None


@pytest.mark.process
def test_a_gate_that_waits_takes_up_another_data_set(
    staged: Stage, put: Put, bucket: str, folder: Path, tmp_path: Path
) -> None:
    """The kubelet replaces the file of a ConfigMap in a pod that runs."""
    put("a", b"1")
    staged()
    wanted = tmp_path / "stage.json"

    def want(source: str) -> None:
        replace_file(wanted, json.dumps({"source": source, "into": str(folder), "rearrange": []}))

    want("s3://other/set")
    command = [sys.executable, "-m", "hvd_elastic.cli", "stage-gate", "--wanted", str(wanted)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as gate:
        assert gate.stderr is not None
        assert "this job wants s3://other/set" in gate.stderr.readline()
        want(f"s3://{bucket}/set")
        assert f"holds all of s3://{bucket}/set" in gate.stderr.readline()
    assert gate.returncode == 0


@pytest.mark.parametrize("text", ["", "[]", '{"source": "s3://b"}', "{}"])
def test_a_gate_that_is_not_told_what_to_wait_for_opens_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "stage.json").write_text(text)
    done = CliRunner().invoke(cli, ["stage-gate", "--once", "--wanted", str(tmp_path / "stage.json")])
    assert isinstance(done.exception, UnusableWantedError)
    assert done.exception.exit_code == 2
    assert "submit the job again" in str(done.exception)
