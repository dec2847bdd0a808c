"""What a worker says of its training, whatever it says."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger.training_figures import ResizePause, TrainingFigures

PAUSE = {"unix": 1_700_000_000.5, "seconds": 0.4, "from": 4, "to": 3, "step": 41, "repeated": 1}
WHOLE: dict[str, Any] = {
    "unix": 1_700_000_100.25,
    "step": 52,
    "size": 3,
    "epoch": 2,
    "steps_per_second": 9.5,
    "loss": 0.75,
    "metrics": {"accuracy": 0.5},
    "durable_step": 40,
    "samples": "train, epoch 0: each of 50 samples once\x1b",
    "durable": 1_700_000_050.0,
    "pauses": [PAUSE],
}


def read(document: object) -> TrainingFigures | None:
    return TrainingFigures.from_json(json.loads(json.dumps(document)))


def with_value(name: str, value: object) -> TrainingFigures:
    found = read({**WHOLE, name: value})
    assert found is not None
    return found


def test_a_whole_document() -> None:
    pause = ResizePause(unix=1_700_000_000.5, seconds=0.4, from_size=4, to_size=3, step=41, repeated=1)
    assert read(WHOLE) == TrainingFigures(
        unix=1_700_000_100.25,
        step=52,
        size=3,
        epoch=2,
        steps_per_second=9.5,
        loss=0.75,
        metrics={"accuracy": 0.5},
        durable_step=40,
        samples="train, epoch 0: each of 50 samples once?",
        durable=1_700_000_050.0,
        pauses=(pause,),
    )


def test_metrics_are_bounded_finite_numbers() -> None:
    wrong = {"nan": math.nan, "text": "1", "true": True, "x" * 65: 1.0}
    assert with_value("metrics", {**wrong, "x" * 64: 3}).metrics == {"x" * 64: 3.0}
    assert len(with_value("metrics", {str(number): number for number in range(40)}).metrics) == 16
    assert with_value("metrics", [1]).metrics == {}
    assert with_value("metrics", {"\x1b[2J\n": 1.0}).metrics == {"?[2J?": 1.0}


def test_what_is_left_out_is_not_known() -> None:
    assert read({"unix": 5}) == TrainingFigures(unix=5.0)
    assert read({"unix": 5, "step": 3, "a key of a later version": [1]}) == TrainingFigures(unix=5.0, step=3)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [],
        3,
        {},
        {"step": 3},
        {"unix": math.nan},
        {"unix": -1},
        {"unix": 1e300},
        {"unix": int("9" * 4000)},
    ],
)
def test_what_is_no_document_is_nothing(value: object) -> None:
    assert TrainingFigures.from_json(value) is None


@pytest.mark.parametrize("name", ["step", "durable_step", "epoch"])
@pytest.mark.parametrize("value", [-3, 10**18, 1.5, "4", True, None, [], {}, math.inf])
def test_a_count_is_a_whole_number_that_is_not_too_large(name: str, value: object) -> None:
    assert getattr(with_value(name, value), name) == -1


@pytest.mark.parametrize("name", ["loss", "steps_per_second", "durable"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1", True, None, [1.0]])
def test_a_number_is_finite(name: str, value: object) -> None:
    assert getattr(with_value(name, value), name) is None


def test_only_the_loss_may_be_negative() -> None:
    assert with_value("loss", -0.5).loss == -0.5
    assert with_value("steps_per_second", -0.5).steps_per_second is None
    assert with_value("durable", -0.5).durable is None


def test_pauses_without_an_end_or_a_duration_are_none_and_the_last_eight_count() -> None:
    hostile = [None, 3, {}, {**PAUSE, "unix": "now"}, {**PAUSE, "seconds": -1}, {**PAUSE, "seconds": math.nan}]
    assert with_value("pauses", hostile).pauses == ()
    assert with_value("pauses", {"0": PAUSE}).pauses == ()
    (pause,) = with_value("pauses", [{**PAUSE, "from": "4", "to": -1, "step": None, "repeated": 1.5}]).pauses
    assert (pause.from_size, pause.to_size, pause.step, pause.repeated) == (0, 0, -1, 0)
    many = [{**PAUSE, "step": step} for step in range(100)]
    assert [pause.step for pause in with_value("pauses", many).pauses] == list(range(92, 100))


@given(
    st.dictionaries(
        st.sampled_from([*WHOLE, "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*PAUSE]), inner, max_size=6),
        ),
    )
)
def test_whatever_comes_figures_are_numbers_that_can_be_shown(document: dict[str, object]) -> None:
    found = read({"unix": 1, **document})
    if found is None:
        return
    numbers = [found.unix, found.steps_per_second, found.loss, found.durable]
    numbers += [number for pause in found.pauses for number in (pause.unix, pause.seconds)]
    assert all(number is None or math.isfinite(number) for number in numbers)
    assert all(type(count) is int for count in (found.step, found.size, found.epoch, found.durable_step))
