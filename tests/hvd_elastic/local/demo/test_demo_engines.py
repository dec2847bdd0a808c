"""The demo over torch.distributed: what it leaves out, and says so."""

from pathlib import Path

from click.testing import CliRunner

from hvd_elastic.cli.this_machine.demo import command


def test_stock_horovodrun_cannot_be_asked_for_over_torch(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["--engine", "torch", "--stock", "--output", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "stock horovodrun, which knows Horovod alone: leave out --engine torch" in done.output
    assert not (tmp_path / "out").exists()
