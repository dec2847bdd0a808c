"""Verbs whose standard streams are closed, full, or cannot hold what is printed."""

import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hvd_elastic.cli.standard_streams import guarded_streams, uncleaned
from hvd_elastic.mpijob.contract import Exit

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
JOB = "--name a --image b -- python train.py"
NO_SPACE, NO_FILE = "No space left on device", "Bad file descriptor"


def in_shell(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`hvd-elastic WORDS`, where words may redirect."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m hvd_elastic.cli {words}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "run --help",
        pytest.param(f"generate {JOB}", marks=pytest.mark.core),
        "lint -o json examples/jobs/first.yaml",
        "simulate examples/jobs/first.yaml --nodes 2 --hours 1",
    ],
)
@pytest.mark.parametrize(("redirection", "why"), [(">/dev/full", NO_SPACE), (">&-", NO_FILE)])
def test_a_result_that_cannot_be_printed_is_one_sentence(words: str, redirection: str, why: str) -> None:
    verb, _, command = words.partition(" -- ")
    done = in_shell(f"{verb} {redirection}" + (f" -- {command}" if command else ""))
    assert done.stderr.splitlines()[-1] == f"error: standard output cannot be written: {why}"
    assert "Traceback" not in done.stderr
    assert done.returncode == Exit.OUTPUT_FAILED


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_words_that_are_lost_change_nothing(redirection: str) -> None:
    assert in_shell(f"schema {redirection}").stdout.startswith("{")
    assert in_shell(f"nothing {redirection}").returncode == Exit.BAD_INPUT


@pytest.mark.core
def test_a_closed_input_is_empty() -> None:
    done = in_shell("generate - <&-")
    assert done.stderr.startswith("error: job: '': is not a mapping")
    assert done.returncode == Exit.BAD_INPUT


def test_a_character_that_the_encoding_lacks_is_named() -> None:
    done = in_shell(f"generate --env A=ł {JOB}", PYTHONIOENCODING="latin-1")
    assert done.stderr.endswith("is not in its encoding, latin-1: set PYTHONIOENCODING=utf-8\n")
    assert done.returncode == Exit.OUTPUT_FAILED


@pytest.mark.distribution
@pytest.mark.parametrize("code", [0, 3])
def test_what_cannot_be_written_does_not_become_the_exit_code(code: int) -> None:
    """Which Python ends with 120 for which stream differs; of stdout's buffer all do."""
    ends = f"sys.stdout.write('1'); sys.exit({code})"
    guard = "from hvd_elastic.cli.standard_streams import guarded_streams"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:

        def end(text: str) -> int:
            argv = [sys.executable, "-c", f"import sys\n{text}"]
            return subprocess.run(argv, stdout=full, stderr=full, env=buffered, check=False).returncode

        assert end(ends) == 120
        assert end(f"{guard}\nwith guarded_streams(): {ends}") == code


def test_nothing_that_is_printed_goes_round_the_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """click would write into the buffer of a stream that is ASCII."""
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written := io.BytesIO(), encoding="ascii"))
    with guarded_streams():
        click.echo("one\x1b]0;two\x07\tthree")
        print("four\x1b", file=sys.stdout)
        uncleaned(sys.stdout).write("five\x1b")
    assert written.getvalue() == b"one?]0;two?\tthree\nfour?\nfive\x1b"
