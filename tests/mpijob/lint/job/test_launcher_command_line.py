"""The launcher's flags are parsed as horovodrun parses them, and the table of its options matches the real parser."""

import argparse
import sys

import pytest

from hvd_elastic.mpijob.lint.job.container_command import ShellWord, unwrap
from hvd_elastic.mpijob.lint.job.launcher_command_line import OPTIONS, PROGRAMS, LauncherProgram, parse


def words(*texts: str) -> tuple[ShellWord, ...]:
    return tuple(ShellWord(text, ("command", index)) for index, text in enumerate(texts))


def test_flags_in_every_spelling() -> None:
    command_line = parse(
        unwrap(
            words("horovodrun", "-np=2", "--min-num-proc", "1", "--slots", "4", "--blacklist-cooldown-range", "5", "20")
            + words("-hostfile", "h", "--what", "--log-level", "INFO", "python", "--min-np", "7"),
            {},
            PROGRAMS,
        )
    )
    assert command_line.program is LauncherProgram.HOROVODRUN
    assert (command_line.number("-np"), command_line.number("--min-np"), command_line.number("--slots-per-host")) == (
        2,
        1,
        4,
    )
    assert [word.text for word in command_line.flags["--blacklist-cooldown-range"].values] == ["5", "20"]
    assert [word.text for word in command_line.unknown] == ["--what"]
    assert [word.text for word in command_line.training_command] == ["python", "--min-np", "7"]


def test_other_launchers() -> None:
    def launcher(*texts: str) -> LauncherProgram:
        return parse(unwrap(words(*texts), {}, PROGRAMS)).program

    assert launcher("python3", "-m", "horovod.runner", "-np", "2", "t") is LauncherProgram.HOROVODRUN
    assert launcher("/opt/bin/mpiexec.hydra", "-n", "2", "t") is LauncherProgram.MPIRUN
    assert launcher("hvd-elastic", "launch", "-np", "2", "t") is LauncherProgram.HVD_ELASTIC
    assert launcher("hvd-elastic", "worker", "--", "t") is LauncherProgram.OTHER
    assert launcher("python", "train.py") is LauncherProgram.OTHER


def test_options_that_only_hvd_elastic_has_take_their_values() -> None:
    command_line = parse(
        unwrap(words("hvd-elastic", "launch", "-np", "1", "--own", "x", "--other=y", "--", "t", "-x"), {}, PROGRAMS)
    )
    assert [word.text for word in command_line.training_command] == ["t", "-x"]
    assert [word.text for word in command_line.unknown] == ["--own", "--other=y"]


def test_the_options_are_those_of_horovodrun(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("horovod.runner.launch", reason="Horovod is not installed")
    parsers: list[argparse.ArgumentParser] = []

    def keep(parser: argparse.ArgumentParser, *_: object) -> argparse.Namespace:
        parsers.append(parser)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", keep)
    monkeypatch.setattr(sys, "argv", ["horovodrun"])
    with pytest.raises(SystemExit):
        launch.parse_args()
    real = {
        name: (_values(action), action.type is int) for action in parsers[0]._actions for name in action.option_strings
    }
    ours = {name: (option.values, option.integer) for name, option in OPTIONS.items()}
    assert ours == real


def _values(action: argparse.Action) -> int:
    return 1 if action.nargs is None else int(action.nargs)
