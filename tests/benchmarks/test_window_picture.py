"""The picture of a recorded window: what it says is what was measured."""

from xml.etree import ElementTree

import pytest

from benchmarks.replay.measured_window import Measured
from benchmarks.replay.window_picture import Lane, Span, lane, window_picture

SVG = "{http://www.w3.org/2000/svg}"
BEGAN = 1000.0


def measured(*steps: tuple[float, int]) -> Measured:
    """Steps by the second of the window, and the size of the world."""
    return Measured(
        window="made up",
        system="launch",
        seconds=100.0,
        began=BEGAN,
        asks=[{"second": 20.0, "gpus": 1}, {"second": 60.0, "gpus": 0}],
        steps=[{"time": BEGAN + at, "size": size, "step": number} for number, (at, size) in enumerate(steps)],
        waits=[],
    )


def test_a_lane_has_who_used_the_gpus_and_when() -> None:
    steps = [(at / 2, 3) for at in range(40)] + [(20 + at / 2, 2) for at in range(80)]
    made = lane(measured(*steps), name="ours", caption="all of it")
    assert made.inference == [Span(begins=20.0, ends=60.0, gpus=1)]
    assert made.training == [Span(begins=0.0, ends=20.0, gpus=3), Span(begins=20.0, ends=59.5, gpus=2)]


def test_where_training_stands_still_it_has_no_gpus() -> None:
    made = lane(measured((1.0, 3), (1.5, 3), (31.5, 1), (32.0, 1)), name="stock", caption="")
    assert made.training == [Span(begins=1.0, ends=1.5, gpus=3), Span(begins=31.5, ends=32.0, gpus=1)]


def test_a_system_that_never_trained_has_an_empty_lane() -> None:
    assert lane(measured(), name="stock", caption="").training == []


def test_areas_are_in_proportion_and_do_not_overlap() -> None:
    """Who asks for one of three GPUs for half of the time has a sixth of the lane."""
    lanes = [
        Lane(
            name="a < b",
            caption="100%",
            inference=[Span(begins=0.0, ends=50.0, gpus=1)],
            training=[Span(begins=0.0, ends=50.0, gpus=2), Span(begins=50.0, ends=100.0, gpus=3)],
        ),
        Lane(name="stock", caption="", inference=[], training=[]),
    ]
    root = ElementTree.fromstring(window_picture(lanes, title="T", seconds=100.0, gpus=3))
    boxes = [dict(box.attrib) for box in root.iter(f"{SVG}rect")]
    areas = {
        kind: sum(float(box["width"]) * float(box["height"]) for box in boxes if box["class"] == f"rd-{kind}")
        for kind in ("inference", "training")
    }
    assert areas["training"] == 5 * areas["inference"]
    first = next(box for box in boxes if box["class"] == "rd-inference")
    below = next(box for box in boxes if box["class"] == "rd-training")
    assert float(first["y"]) + float(first["height"]) == float(below["y"])
    assert "a < b" in "".join(root.itertext())


@pytest.mark.parametrize(("seconds", "tick"), [(180.0, "30 s"), (3600.0, "10 min")])
def test_its_axis_reads_in_the_unit_of_its_length(seconds: float, tick: str) -> None:
    root = ElementTree.fromstring(window_picture([], title="T", seconds=seconds, gpus=3))
    assert tick in [text.text for text in root.iter(f"{SVG}text")]


def test_it_needs_no_network_and_reads_in_the_dark() -> None:
    text = window_picture([], title="T", seconds=10.0, gpus=3)
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1, "the namespace alone"
