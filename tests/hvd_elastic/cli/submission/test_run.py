"""`run` through the command line's own entry point, up to what it refuses: `tests/local/test_run.py` runs jobs."""

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
    assert "its workers find each other by Horovod alone, not by torch.distributed: use launch" in result.err
