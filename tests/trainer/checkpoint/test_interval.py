"""What a save takes from training, told by the times of steps."""

import pytest

from hvd_elastic.trainer.checkpoint.interval import AutomaticInterval


class Training:
    def __init__(self) -> None:
        self.interval = AutomaticInterval()
        self._saves = 0

    def step(self, seconds: float, count: int = 1, *, saving: bool = False) -> None:
        """Take steps. `saving`: one save begins in the first of them, and ends in the last."""
        self._saves += saving
        for left in reversed(range(count)):
            self.interval.note_step(seconds, started=self._saves, idle=not (saving and left))


def test_a_save_costs_what_its_steps_took_longer() -> None:
    training = Training()
    training.step(0.1, 20)
    training.step(0.5, saving=True)
    training.step(0.12, 5, saving=True)
    assert training.interval.cost_seconds is None, "it is not over"
    training.step(0.1)
    assert training.interval.cost_seconds == pytest.approx(0.4 + 5 * 0.02)


def test_a_save_that_nobody_notices_costs_nothing() -> None:
    training = Training()
    training.step(0.1, 20)
    training.step(0.09, 5, saving=True)
    training.step(0.1)
    assert training.interval.cost_seconds == 0.0


def test_one_evaluation_does_not_count_as_the_cost_of_saves() -> None:
    training = Training()
    for during in (0.2, 30.0, 0.2):
        training.step(0.1, 20)
        training.step(during, saving=True)
    training.step(0.1)
    assert training.interval.cost_seconds == pytest.approx(0.1)


def test_what_is_usual_must_be_known_first() -> None:
    training = Training()
    training.step(0.1, 2)
    training.step(0.5, 3, saving=True)
    training.step(0.1)
    assert training.interval.cost_seconds is None


def test_a_pause_is_no_cost() -> None:
    training = Training()
    training.step(0.1, 20)
    training.step(0.2, 3, saving=True)
    training.interval.drop_save()
    training.step(0.1)
    assert training.interval.cost_seconds is None
