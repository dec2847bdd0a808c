"""What a save takes from training, told by the times of steps."""

import pytest

from hvd_elastic.trainer.checkpoint.save_cost import SaveCost


def steps(cost: SaveCost, seconds: float, count: int, *, saving: bool = False) -> None:
    for _ in range(count):
        cost.note_step(seconds, saving=saving)


def test_a_save_costs_what_its_steps_took_longer() -> None:
    cost = SaveCost()
    steps(cost, 0.1, 20)
    cost.note_step(0.5, saving=True)
    steps(cost, 0.12, 5, saving=True)
    assert cost.seconds is None, "it is not over"
    steps(cost, 0.1, 1)
    assert cost.seconds == pytest.approx(0.4 + 5 * 0.02)


def test_a_save_that_nobody_notices_costs_nothing() -> None:
    cost = SaveCost()
    steps(cost, 0.1, 20)
    steps(cost, 0.09, 5, saving=True)
    steps(cost, 0.1, 1)
    assert cost.seconds == 0.0


def test_one_evaluation_does_not_count_as_the_cost_of_saves() -> None:
    cost = SaveCost()
    for during in (0.2, 30.0, 0.2):
        steps(cost, 0.1, 20)
        steps(cost, during, 1, saving=True)
    steps(cost, 0.1, 1)
    assert cost.seconds == pytest.approx(0.1)


def test_what_is_usual_must_be_known_first() -> None:
    cost = SaveCost()
    steps(cost, 0.1, 2)
    steps(cost, 0.5, 3, saving=True)
    steps(cost, 0.1, 1)
    assert cost.seconds is None


def test_a_pause_is_no_cost() -> None:
    cost = SaveCost()
    steps(cost, 0.1, 20)
    steps(cost, 0.2, 3, saving=True)
    cost.drop_save()
    steps(cost, 0.1, 1)
    assert cost.seconds is None
