"""The script's own SIGTERM handler: when it is called, and what is noted."""

import signal
from collections.abc import Iterator

import pytest

from hvd_elastic.trainer.elastic.script_signals import ScriptSignals
from hvd_elastic.trainer.elastic.training_mark import TrainingMarkWriter


@pytest.fixture(autouse=True)
def handler() -> Iterator[list[int]]:
    """A script's handler, and what it has received."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


def test_in_training_the_scripts_handler_is_called_at_once(handler: list[int]) -> None:
    mark = TrainingMarkWriter()
    with ScriptSignals(mark).training():
        assert not mark.is_ordered
        signal.raise_signal(signal.SIGTERM)
        assert handler == [signal.SIGTERM]
        assert mark.is_ordered


def test_between_two_worlds_it_waits_for_the_next(handler: list[int]) -> None:
    mark = TrainingMarkWriter()
    signals = ScriptSignals(mark)
    with signals.training():
        pass
    signal.raise_signal(signal.SIGTERM)
    assert (handler, mark.is_ordered) == ([], True)
    with signals.training():
        assert handler == [signal.SIGTERM]
    with signals.training():
        assert handler == [signal.SIGTERM], "it is called once"


def test_after_training_the_scripts_handler_is_its_own_again(handler: list[int]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    signals = ScriptSignals(TrainingMarkWriter())
    with signals.over_worlds():
        with signals.training():
            pass
        signal.raise_signal(signal.SIGTERM)
        assert handler == [], "all ranks wait for each other"
    assert handler == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_that_ends_training_is_told_alone(handler: list[int]) -> None:
    def train() -> None:
        signals = ScriptSignals(TrainingMarkWriter())
        with signals.over_worlds():
            with signals.training():
                pass
            signal.raise_signal(signal.SIGTERM)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        train()
    assert handler == []


def test_a_handler_that_comes_later_is_the_one_that_counts(handler: list[int]) -> None:
    later: list[int] = []
    signals = ScriptSignals(TrainingMarkWriter())
    with signals.training():
        signal.signal(signal.SIGTERM, lambda number, _: later.append(number))
    with signals.training():
        signal.raise_signal(signal.SIGTERM)
    assert (handler, later) == ([], [signal.SIGTERM])


def test_a_script_without_one_dies_as_before() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with ScriptSignals(TrainingMarkWriter()).training():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
