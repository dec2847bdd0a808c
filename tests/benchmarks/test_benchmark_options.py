"""The options that benchmarks share."""

import argparse

import pytest

from benchmarks.systems.product import HOROVODRUN, LAUNCH
from benchmarks.systems.stock import STOCK
from benchmarks.systems.system import System, add_systems_option

SYSTEMS = (LAUNCH, HOROVODRUN, STOCK)


def chosen(*words: str, default: tuple[System, ...] = ()) -> list[System]:
    parser = argparse.ArgumentParser()
    add_systems_option(parser, SYSTEMS, default=default)
    found: list[System] = parser.parse_args(words).systems
    return found


def test_systems_are_measured_in_their_own_order() -> None:
    assert chosen() == [*SYSTEMS]
    assert chosen(default=(LAUNCH,)) == [LAUNCH]
    assert chosen("--systems", "stock,launch") == [LAUNCH, STOCK]


def test_a_system_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        chosen("--systems", "launch,lanch")
    assert "no system is called lanch; there are launch, horovodrun, stock" in capsys.readouterr().err
