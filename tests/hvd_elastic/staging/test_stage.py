"""Staging from a real S3 server into a real folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.staging import Staged, StageError, StageProgress, stage, whats_missing
from hvd_elastic.staging.source_manifest import STATE_FOLDER, SUCCESS_FILE
from hvd_elastic.staging.stage_errors import ChangedObjectError, UnusableSourceError

Put = Callable[[str, bytes], None]
Stage = Callable[..., Staged]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def staged(endpoint: str, bucket: str, folder: Path) -> Stage:
    return partial(stage, f"s3://{bucket}/set", folder, endpoint=endpoint, threads=8)


def content(folder: Path) -> Mapping[str, bytes]:
    """What a training script sees."""
    files = (path for path in folder.rglob("*") if path.is_file() and STATE_FOLDER not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != SUCCESS_FILE}


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
    assert len(seen) == 6


def test_a_multipart_upload_is_verified_by_its_parts(staged: Stage, client: Any, bucket: str, folder: Path) -> None:
    at = {"Bucket": bucket, "Key": "set/parts.bin"}
    upload = client.create_multipart_upload(**at)["UploadId"]
    pieces = [os.urandom(5 << 20), os.urandom(1000)]
    parts = [
        {"PartNumber": number, "ETag": client.upload_part(**at, UploadId=upload, PartNumber=number, Body=piece)["ETag"]}
        for number, piece in enumerate(pieces, 1)
    ]
    client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload={"Parts": parts})
    assert staged(range_bytes=1 << 20).marker.unverified == 0
    assert content(folder) == {"parts.bin": b"".join(pieces)}


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
    assert whats_missing(folder, source=f"s3://{bucket}/set", rearrange=[]) is not None
    (folder / STATE_FOLDER / "incoming" / "left").write_bytes(b"half")
    done = staged()
    assert content(folder) == wanted
    assert done.kept >= 149  # the last one may have been renamed, and not yet recorded
    assert done.copied + done.kept == 400
    assert not list((folder / STATE_FOLDER / "incoming").iterdir())


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
    assert whats_missing(folder, source=f"s3://{bucket}/set", rearrange=[]) is not None


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
    assert "rearrange command" in str(whats_missing(folder, source=url, rearrange=command))
    assert staged(rearrange=command).rearranged
    assert whats_missing(folder, source=url, rearrange=command) is None
    assert "another command" in str(whats_missing(folder, source=url, rearrange=["other"]))
    assert not staged(rearrange=command).rearranged
    assert (folder / "runs").read_text() == "run\n"
    put("b.txt", b"2")
    assert staged(rearrange=command).rearranged
    assert (folder / "sorted" / "b.txt").read_bytes() == b"2"


def test_a_rearrangement_that_fails_leaves_no_marker(staged: Stage, put: Put, bucket: str, folder: Path) -> None:
    put("a", b"1")
    with pytest.raises(StageError, match="ended with code 3"):
        staged(rearrange=["/bin/sh", "-c", "exit 3"])
    assert whats_missing(folder, source=f"s3://{bucket}/set", rearrange=["x"]) is not None
    with pytest.raises(StageError, match="no-such"):
        staged(rearrange=["no-such-command"])


def test_a_second_stager_waits_for_the_first(staged: Stage, put: Put, folder: Path) -> None:
    for key in "abcdefgh":
        put(key, key.encode())
    with ThreadPoolExecutor(3) as pool:
        done = [each.result() for each in [pool.submit(staged) for _ in range(3)]]
    assert sorted(one.copied for one in done) == [0, 0, 8]
    assert len(content(folder)) == 8


def test_the_gate_knows_whose_data_it_is(staged: Stage, put: Put, bucket: str, folder: Path) -> None:
    assert "not staged" in str(whats_missing(folder, source="s3://other/set", rearrange=[]))
    put("a", b"1")
    staged()
    assert "holds" in str(whats_missing(folder, source="s3://other/set", rearrange=[]))
    assert whats_missing(folder, source=f"s3://{bucket}/set/", rearrange=[]) is None
