import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.bench.line_chart import Axis, Line, decades, line_chart, round_steps

ABOVE_ZERO = st.floats(1e-9, 1e12)


@given(st.lists(ABOVE_ZERO, min_size=1))
def test_decades_enclose_all_values(values: list[float]) -> None:
    found = decades(values)
    assert found[0] <= min(values) * (1 + 1e-9)
    assert found[-1] >= max(values) * (1 - 1e-9)


@given(ABOVE_ZERO)
def test_round_steps_go_from_zero_past_the_largest(largest: float) -> None:
    found = round_steps(largest)
    assert found[0] == 0
    assert found[-1] >= largest * (1 - 1e-9)
    assert 2 <= len(found) <= 8


@pytest.mark.parametrize("is_logarithmic", [True, False])
def test_lines_stay_in_their_frame(is_logarithmic: bool) -> None:
    line = Line(name="a<b", points=[(1, 5), (1000, 0.5)])
    guess = Line(name="ideal", points=[(1, 5), (1000, 7)], dashed=True)
    axis = Axis(title="t", ticks=[(10, "10")], is_logarithmic=is_logarithmic)
    svg = ElementTree.fromstring(line_chart([line, guess], title="&", x=axis, y=axis))
    assert len(svg.findall("{*}circle")) == 2, "what was not measured has no dots"
    assert "a<b" in [text.text for text in svg.findall("{*}text")]
    drawn = [path.attrib["d"] for path in svg.findall("{*}path") if "stroke-width" in path.attrib]
    for x, y in re.findall(r"([\d.-]+),([\d.-]+)", "".join(drawn)):
        assert 80 <= float(x) <= 730
        assert 56 <= float(y) <= 356


def test_one_point_and_none_are_drawn_too() -> None:
    axis = Axis(title="t", ticks=[(3, "3")], is_logarithmic=True)
    lines = [Line(name="one", points=[(3, 3)]), Line(name="none", points=[])]
    assert len(ElementTree.fromstring(line_chart(lines, title="t", x=axis, y=axis)).findall("{*}circle")) == 1
