"""The table of horovodrun's options is held against the real parser."""

import argparse
import sys

import pytest

from hvd_elastic.mpijob.lint.model.horovodrun_flags import OPTIONS


def test_options_are_horovodruns(monkeypatch: pytest.MonkeyPatch) -> None:
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
