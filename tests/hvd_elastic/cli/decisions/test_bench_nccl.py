"""`bench nccl` as a person calls it."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hvd_elastic.cli import cli
from hvd_elastic.client.bench.nccl.nccl_network import WrongNetworkError
from hvd_elastic.client.bench.nccl.nccl_report import WrongNumbersError
from tests.hvd_elastic.client.bench.nccl import nccl_text as text

JOB = ("--name", "bert", "--image", "train:1", "--workers", "2", "--workers-gpus", "8")


def call(*words: str, log: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["bench", "nccl", *words], input=log)


def test_the_manifest_goes_to_kubectl() -> None:
    said = call(*JOB, "--max-bytes", "1Mi", "--", "python", "train.py")
    assert said.exit_code == 0, said.output
    made = yaml.safe_load(said.stdout)
    assert (made["kind"], made["metadata"]["name"]) == ("MPIJob", "bert-nccl")
    launcher = made["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert "1048576" in launcher["command"]
    assert call(*JOB, "-o", "name", "--", "x").stdout == "mpijob.kubeflow.org/bert-nccl\n"


def test_a_log_as_table_json_and_csv(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(text.output())
    said = call("--parse", str(log), "--expect", "efa")
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[1].split() == ["1Ki", "float", "20", "us", "0.05", "0.05", "0", "0.06", "0"]
    assert "bus bandwidth: 0.1325 GB/s on average, 0.26 GB/s at most; network: efa" in said.stdout
    found = json.loads(call("--parse", str(log), "-o", "json").stdout)
    assert found["networks"] == ["efa"]
    assert found["rows"][2]["in_place"]["bus_gb_per_second"] == 0.26
    rows = list(csv.DictReader(io.StringIO(call("--parse", str(log), "-o", "csv").stdout)))
    assert [row["in_place_bus_gb_per_second"] for row in rows] == ["0.06", "0.09", "0.26"]


@pytest.mark.parametrize("log", [text.SOCKET, text.OFI_TCP, text.EFA_THEN_SOCKET, ""])
def test_sockets_where_efa_was_expected_fail_and_the_numbers_are_seen(log: str) -> None:
    said = call("--parse", "-", "--expect", "efa", log=text.output(log))
    assert isinstance(said.exception, WrongNetworkError)
    assert said.exception.exit_code == 3
    assert "0.26 GB/s at most" in said.stdout
    assert call("--parse", "-", log=text.output(log)).exit_code == 0, "without --expect nothing was asked"


def test_wrong_numbers_fail() -> None:
    said = call("--parse", "-", log=text.output(rows=text.row(1024, wrong="3")))
    assert isinstance(said.exception, WrongNumbersError)


@pytest.mark.parametrize(
    "words",
    [
        (*JOB, "--expect", "efa", "--", "x"),
        ("--parse", "-", "--name", "bert"),
        ("--parse", "-", "-o", "name"),
        (*JOB, "-o", "csv", "--", "x"),
        ("--parse", "/no/such/file"),
    ],
)
def test_words_that_do_not_go_together(words: tuple[str, ...]) -> None:
    assert call(*words, log=text.output()).exit_code == 2
