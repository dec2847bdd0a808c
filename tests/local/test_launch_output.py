"""`hvd-elastic launch` where its output, or what is written beside it, cannot be written. No Horovod: shell workers."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

LAUNCH = (sys.executable, "-m", "hvd_elastic.cli", "launch", "-np", "1", "--network-interface", "lo")
CHATTY = "yes 'a long line' | head -c 1000000; yes 'an error' | head -c 1000000 >&2; echo done > done"


def launch(folder: Path, *arguments: str, **streams: int) -> int:
    """Run a launcher to its end; returns its exit code."""
    command = [*LAUNCH, "-H", "localhost:1", "--run-dir", str(folder / "run"), *arguments]
    return subprocess.run(command, cwd=folder, timeout=60, check=False, **streams).returncode  # type: ignore[call-overload, no-any-return]


def closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("unwritable", [closed_pipe, full_disk])
@pytest.mark.parametrize("names", [("stdout",), ("stdout", "stderr")])
def test_an_unwritable_output_changes_nothing(tmp_path: Path, unwritable: object, names: Sequence[str]) -> None:
    assert callable(unwritable)
    descriptor = unwritable()
    try:
        assert launch(tmp_path, "sh", "-c", CHATTY, **dict.fromkeys(names, descriptor)) == 0
    finally:
        os.close(descriptor)
    assert (tmp_path / "done").exists()


def test_the_scripts_code_gets_through_an_unwritable_output(tmp_path: Path) -> None:
    descriptor = full_disk()
    assert launch(tmp_path, "sh", "-c", f"{CHATTY}; exit 3", stdout=descriptor, stderr=descriptor) == 3
    os.close(descriptor)
