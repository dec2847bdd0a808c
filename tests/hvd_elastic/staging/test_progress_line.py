"""What a staging says of itself is found again in its log."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.cli import cli
from hvd_elastic.staging.progress_line import StageProgress, last_progress, progress_words
from testbed.s3_server import Put

counts = st.integers(min_value=0, max_value=10**16)
progresses = st.builds(StageProgress, objects=counts, of_objects=counts, size_bytes=counts, of_bytes=counts)
noise = st.text(st.characters(blacklist_categories=["Cs"]), max_size=60).filter(lambda text: "objects" not in text)


@given(progresses, progresses, st.lists(noise), st.lists(noise))
def test_the_last_one_is_found_among_other_lines(
    first: StageProgress, last: StageProgress, before: list[str], after: list[str]
) -> None:
    log = [*before, f"s3://b/set: {progress_words(first)}, 3%", f"s3://b/set: {progress_words(last)}, 8%", *after]
    assert last_progress(log) == last


def test_a_log_without_one_tells_nothing() -> None:
    assert last_progress([]) is None
    assert last_progress(["3 of 4 objects", "s3://b: 1 of 2 objects, 0.00 of 0.00 GiB"]) is None


def test_parts() -> None:
    def progress(objects: int, size_bytes: int, of_bytes: int) -> StageProgress:
        return StageProgress(objects=objects, of_objects=2, size_bytes=size_bytes, of_bytes=of_bytes)

    assert [progress(1, 5, 10).part, progress(1, 0, 0).part, progress(2, 0, 0).part] == [0.5, 0.0, 1.0]
    assert [progress(2, 9, 10).is_whole, progress(1, 10, 10).is_whole, progress(2, 10, 10).is_whole] == [0, 0, 1]


def test_the_log_says_at_once_how_much_comes(endpoint: str, bucket: str, put: Put, tmp_path: Path) -> None:
    """Of a copy that goes on, too: what an earlier attempt has left counts as done."""
    words = ["--source", f"s3://{bucket}/set", "--into", str(tmp_path), "--endpoint", endpoint]
    for number in range(2):
        put(f"{number}.bin", b"xyz")
        done = CliRunner().invoke(cli, ["stage-copier", *words])
        assert done.exit_code == 0, done.output
        first = last_progress(done.stderr.splitlines()[:1])
        assert first == StageProgress(
            objects=number, of_objects=number + 1, size_bytes=3 * number, of_bytes=3 * number + 3
        )


@pytest.mark.process
def test_before_the_rearrangement_the_log_says_that_all_is_there(
    endpoint: str, bucket: str, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        put(f"{number}.bin", b"x" * number)
    seen = tmp_path / "seen"
    words = ["--source", f"s3://{bucket}/set", "--into", str(tmp_path / "data"), "--endpoint", endpoint]
    script = f"import pathlib; pathlib.Path({str(seen)!r}).touch()"
    done = CliRunner().invoke(cli, ["stage-copier", *words, "--", sys.executable, "-c", script])
    assert done.exit_code == 0, done.output
    assert seen.exists()
    whole = StageProgress(objects=3, of_objects=3, size_bytes=3, of_bytes=3)
    assert last_progress(done.stderr.splitlines()) == whole
