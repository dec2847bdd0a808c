"""`run` through the command line's own entry point, up to what it refuses: `tests/local/test_run.py` runs jobs."""

from pathlib import Path

import pytest

from tests.hvd_elastic.cli.entry_point import Tool, tool


@pytest.fixture
def hvd_elastic(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    return tool(capsys, monkeypatch)


@pytest.mark.parametrize("by_flag", [True, False])
def test_horovodrun_launches_no_job_over_torch(
    hvd_elastic: Tool, monkeypatch: pytest.MonkeyPatch, *, by_flag: bool
) -> None:
    if not by_flag:
        monkeypatch.setenv("HVD_ELASTIC_ENGINE", "torch")
    engine = ["--engine", "torch"] if by_flag else []
    result = hvd_elastic("run", *engine, "--launcher", "horovodrun", "--", "python", "-c", "pass")
    assert result.code == 2
    assert (
        "its workers find each other by Horovod alone, not by torch.distributed: write launch, or engine: horovod"
        in result.err
    )


def test_a_file_that_names_an_engine_wins_over_the_environment(
    hvd_elastic: Tool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: a\ncommand: [no-such-program]\nengine: horovod\nlauncher: horovodrun\n")
    monkeypatch.setenv("HVD_ELASTIC_ENGINE", "torch")
    result = hvd_elastic("run", str(job))
    assert result.code == 2
    assert "no-such-program" in result.err
    assert "launcher" not in result.err


def test_horovodrun_itself_says_why_it_cannot(hvd_elastic: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_ELASTIC_ENGINE", "torch")
    result = hvd_elastic("horovodrun", "-np", "2", "--host-discovery-script", "hosts", "python", "train.py")
    assert result.code == 2
    assert "find each other by Horovod alone; hvd-elastic launch takes the same flags" in result.err
