"""`generate` through the command line's own entry point."""

import io
import json
from pathlib import Path

import pytest
import yaml

from tests.hvd_elastic.cli.entry_point import Tool, tool
from tests.mpijob import admission
from tests.mpijob.examples import EXAMPLES, Example

JOB = "name: a\nimage: b:1\ncommand: [python, train.py]\nworkers: {min: 1, max: 4, gpus: 1}\n"


@pytest.fixture
def hvd_elastic(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    return tool(capsys, monkeypatch)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_each_example(hvd_elastic: Tool, example: Example) -> None:
    ran = hvd_elastic("generate", str(example.path), "--as", example.target.value)
    assumes = "older Kueue set queue.whole" if example.name == "kueue" else ""
    assert (ran.code, ran.err.count("\n")) == (0, int(bool(assumes)))
    assert assumes in ran.err
    assert ran.out == example.golden.read_text(encoding="utf-8")


def test_flags_win_over_the_file(hvd_elastic: Tool, job: str) -> None:
    ran = hvd_elastic(
        "generate", job, "--workers", "2:6", "--env", "A=b=c", "--monitor", "--zones", "x", "--zones", "y", "-o", "json"
    )
    listing = json.loads(ran.out)
    assert listing["kind"] == "List"
    manifest = listing["items"][-1]
    assert manifest["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 6
    description = json.loads(manifest["metadata"]["annotations"]["hvd-elastic.dev/job"])
    assert description["workers"]["min"] == 2
    assert description["workers"]["gpus"] == 1
    assert description["env"] == {"A": "b=c"}
    assert description["zones"] == ["x", "y"]
    assert description["monitor"] is True


def test_flags_alone(hvd_elastic: Tool) -> None:
    ran = hvd_elastic("generate", "--name", "a", "--image", "b", "--workers", "1:2", "--", "python", "x.py", "--", "-o")
    manifest = list(yaml.safe_load_all(ran.out))[-1]
    command = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[-4:] == ["python", "x.py", "--", "-o"]
    assert admission.errors(manifest) == []


def test_standard_input(hvd_elastic: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(JOB))
    assert hvd_elastic("generate", "-", "-o", "name").out.splitlines()[-1] == "mpijob.kubeflow.org/a"


def test_bad_input_prints_every_problem_and_touches_nothing(hvd_elastic: Tool, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("nmae: a\nimage: a b\ncommand: [x]\nworkers: {min: 5, max: 2}\n")
    ran = hvd_elastic(
        "generate", str(path), "--env", "NO", "--cooldown", "1", "x", "--output-dir", str(tmp_path / "out")
    )
    assert ran.code == 2
    assert ran.out == ""
    for start in (
        "nmae: 'a'",
        "image: 'a b'",
        "name: is missing",
        "workers.start: 5",
        "--env: 'NO'",
        "--cooldown: 'x'",
    ):
        assert start in ran.err, ran.err
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_job_that_only_a_cluster_cannot_run(hvd_elastic: Tool) -> None:
    ran = hvd_elastic("generate", "--name", "a", "--output-dir", "/proc/nowhere", "--", "python")
    assert (ran.code, ran.out) == (2, "")
    assert "image: is missing" in ran.err


def test_a_file_that_is_not_there(hvd_elastic: Tool) -> None:
    ran = hvd_elastic("generate", "/nowhere/job.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert "/nowhere/job.yaml" in ran.err


def test_an_unknown_flag(hvd_elastic: Tool, job: str) -> None:
    ran = hvd_elastic("generate", job, "--wrkers", "1:2")
    assert (ran.code, ran.out) == (2, "")
    assert "--workers" in ran.err


def test_a_kustomize_base(hvd_elastic: Tool, job: str, tmp_path: Path) -> None:
    ran = hvd_elastic("generate", job, "--output-dir", str(tmp_path / "base"))
    assert (ran.code, ran.out) == (0, "")
    base = yaml.safe_load((tmp_path / "base" / "kustomization.yaml").read_text())
    manifests = [yaml.safe_load((tmp_path / "base" / name).read_text()) for name in base["resources"]]
    assert manifests == list(yaml.safe_load_all(hvd_elastic("generate", job).out))


def test_a_folder_that_cannot_be_written(hvd_elastic: Tool, job: str) -> None:
    ran = hvd_elastic("generate", job, "--output-dir", "/proc/nowhere")
    assert ran.code == 1
    assert ran.err.startswith("error: /proc/nowhere")


def test_help_describes_each_key(hvd_elastic: Tool) -> None:
    text = " ".join(hvd_elastic("generate", "--help").out.split())
    assert "--workers-min VALUE" in text
    assert "a single idle GPU is worth using" in text
    assert "[-- COMMAND...]" in text


@pytest.mark.parametrize("verb", ["node-groups", "autoscaler"])
def test_a_flag_that_is_a_verb_now_says_so(hvd_elastic: Tool, verb: str) -> None:
    ran = hvd_elastic("generate", f"--{verb}", "--image", "b:1", "--cloud", "mars")
    assert (ran.code, ran.out) == (2, "")
    assert f"--{verb} is a verb of its own now: hvd-elastic {verb}" in ran.err
    assert f"--{verb}" not in hvd_elastic("generate", "--help").out
