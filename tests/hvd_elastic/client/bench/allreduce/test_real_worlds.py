"""`bench allreduce` as a person calls it, in processes that somebody else has started."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hvd_elastic.cli import cli
from tests.trainer.elastic.bare_world import ROOT, ends, world

COMMAND = str(ROOT / "hvd_elastic" / "cli" / "__main__.py")
SMALL = ("bench", "allreduce", "--min-bytes", "1Ki", "--max-bytes", "64Ki", "--iterations", "3", "-o", "json")


def checked(found: dict[str, Any]) -> None:
    """Numbers that fit together. How large they are is the machine's affair."""
    assert (found["ranks"], found["nodes"], found["device"]) == (2, 1, "cpu")
    assert [row["bytes"] for row in found["sizes"]] == [1024 * 2**power for power in range(7)]
    for row in found["sizes"]:
        assert 0 < row["min_seconds"] <= row["median_seconds"] <= row["max_seconds"]
        assert row["bus_gb_per_second"] == pytest.approx(row["bytes"] / row["median_seconds"] / 1e9)


@pytest.mark.process
def test_two_processes_of_horovod(tmp_path: Path) -> None:
    picture, result = tmp_path / "allreduce.svg", tmp_path / "allreduce.json"
    more = ("--device", "cpu", "--picture", str(picture), "--to", str(result))
    with world([COMMAND, *SMALL, *more], 2) as processes:
        (code, first), (other_code, second) = [ends(process) for process in processes]
    assert (code, other_code) == (0, 0), first + second
    found = json.loads(result.read_text())
    assert (found["library"], found["backend"]) == ("horovod", "gloo")
    checked(found)
    assert picture.read_text().startswith("<svg")


@pytest.mark.process
def test_only_rank_0_prints() -> None:
    with world([COMMAND, *SMALL[:-2], "--device", "cpu"], 2) as processes:
        (_, first), (_, second) = [ends(process) for process in processes]
    assert "BUSBW" in first
    assert "2 ranks on 1 node" in first
    assert "BUSBW" not in second


@pytest.mark.process
def test_a_process_alone_is_told_how_to_start_two() -> None:
    with world([COMMAND, *SMALL, "--device", "cpu"], 1) as (alone,):
        code, said = ends(alone)
    assert code == 2
    assert "error: this world has one rank" in said
    assert "Traceback" not in said


def has_mpi() -> bool:
    """Asked of another process, because the import starts MPI."""
    return not subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI"], capture_output=True, check=False
    ).returncode


def test_two_processes_of_mpi() -> None:
    mpirun = shutil.which("mpirun")
    if mpirun is None or not has_mpi():
        pytest.skip("no MPI on this machine")
    command = [mpirun, "-np", "2", "--oversubscribe", "--allow-run-as-root", sys.executable, COMMAND, *SMALL]
    done = subprocess.run([*command, "--library", "mpi4py"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    checked(json.loads(done.stdout))


@pytest.mark.process
def test_where_there_is_no_mpi_it_says_what_to_install() -> None:
    if has_mpi():
        pytest.skip("there is an MPI on this machine")
    command = [sys.executable, "-m", "hvd_elastic.cli", *SMALL, "--library", "mpi4py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "mpi4py finds no MPI (" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--min-bytes", "5"], "--min-bytes"),
        (["--library", "mpi4py", "--device", "cuda"], "--device cuda is of --library horovod"),
        (["--iterations", "0"], "--iterations"),
    ],
)
def test_bad_words_start_no_world(words: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, ["bench", "allreduce", *words])
    assert said in done.output + str(done.exception)
    assert getattr(done.exception, "exit_code", None) == 2 or done.exit_code == 2
