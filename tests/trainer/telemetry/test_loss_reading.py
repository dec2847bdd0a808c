"""A logged loss as a number. The GPU is a stand-in that finishes copies when the test says so."""

import math

import numpy as np
import pytest
import torch

from hvd_elastic.trainer.telemetry import loss_reading
from hvd_elastic.trainer.telemetry.loss_reading import LossReading


def number(value: object) -> float | None:
    reading = LossReading()
    reading.note(value)
    return reading.number()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 0.5),
        (3, 3.0),
        (np.float32(0.25), 0.25),
        (torch.tensor(0.5), 0.5),
        (torch.tensor([2]), 2.0),
        (torch.tensor(0.5, requires_grad=True) * 2, 1.0),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
    ],
)
def test_whatever_scripts_log_becomes_a_number(value: object, expected: float) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, torch.tensor(math.nan), torch.zeros(2), np.zeros(3), 10**400, True, "0.5", None, [1]]
)
def test_what_is_no_finite_number_is_left_out(value: object) -> None:
    assert number(value) is None


def test_nothing_is_known_before_a_value() -> None:
    assert LossReading().number() is None


def test_the_graph_of_a_loss_is_let_go() -> None:
    reading = LossReading()
    reading.note(torch.tensor(0.5, requires_grad=True) * 2)
    assert reading._last.grad_fn is None


class OnGpu:
    """Stands for a tensor on a GPU."""

    is_cuda = True

    def __init__(self, value: float) -> None:
        self.value = value

    def detach(self) -> "OnGpu":
        return self

    def item(self) -> float:
        raise AssertionError("this would wait for the GPU")


class ReadyOnGpu(OnGpu):
    """One for which somebody waits."""

    def item(self) -> float:
        return self.value


class Done:
    """Stands for a `torch.cuda.Event`."""

    def __init__(self) -> None:
        self.is_over = False

    def query(self) -> bool:
        return self.is_over


def test_a_value_on_a_gpu_is_read_when_its_copy_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Done] = []

    def begin(value: OnGpu) -> tuple[float, Done]:
        copies.append(Done())
        return value.value, copies[-1]

    monkeypatch.setattr(loss_reading, "_copy_in_background", begin)
    reading = LossReading()
    reading.note(OnGpu(1.0))
    assert reading.number() is None
    reading.note(OnGpu(2.0))
    assert reading.number() is None, "the first copy is under way"
    assert len(copies) == 1
    copies[0].is_over = True
    assert reading.number() == 1.0
    copies[1].is_over = True
    assert reading.number() == 2.0
    reading.note(ReadyOnGpu(3.0))
    assert reading.number(wait=True) == 3.0, "at the end nothing else asks for it"
