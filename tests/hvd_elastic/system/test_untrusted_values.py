"""One strict reader for what strangers write: plain JSON, bounded, finite, typed."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.system.untrusted_values import decimal_count, json_object, typed_fields
from tests import hostile_values

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.text(), plain, max_size=4), st.sampled_from([None, 1]))
def test_plain_json_is_read_as_it_was_written(document: dict[str, Any], indent: int | None) -> None:
    assert json_object(json.dumps(document, indent=indent)) == document


@pytest.mark.parametrize("name", [name for name in hostile_values.TEXTS if name != "half a pair"])
def test_what_is_no_plain_object_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        json_object(hostile_values.TEXTS[name])


@given(hostile_values.texts | st.none() | st.binary())
def test_any_other_text_is_refused_in_one_way(text: object) -> None:
    try:
        document = json_object(text)
    except ValueError:
        return
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_brackets_within_texts_nest_nothing() -> None:
    document = {"command": ['"[' * 100, "\\" * 101, "{" * 100], "name": "["}
    assert json_object(json.dumps(document)) == document


@pytest.mark.parametrize(("levels", "is_read"), [(32, True), (33, False)])
def test_depth_is_looked_at_before_it_is_parsed(levels: int, is_read: bool) -> None:
    text = '{"a":' * levels + "1" + "}" * levels
    wide = '{"b":[' + ",".join(["[]"] * 100) + '],"a":' + text + "}"
    assert json.loads(wide)["b"]
    if is_read:
        assert json_object(text)
    else:
        with pytest.raises(ValueError, match="nested deeper"):
            json_object(text)
    with pytest.raises(ValueError, match="nested deeper"):
        json_object(wide)


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("007", 7), ("999999999", 999_999_999), ("1" * 10, None), ("-1", None), ("1e3", None)]
)
def test_a_count_is_nine_digits_at_most(text: str, count: int | None) -> None:
    assert decimal_count(text) == count


@given(st.text() | hostile_values.values)
def test_nothing_else_is_a_count(value: object) -> None:
    count = decimal_count(value)
    assert count is None or (isinstance(value, str) and int(value) == count)


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Of every kind that a field has."""

    pause_seconds: float = 0.0
    gpu_seconds: dict[str, float] = field(default_factory=dict)
    loss: float | None = None


@pytest.mark.parametrize("document", [{"pause_seconds": 1e17}, {"pause_seconds": -1e17}, {"gpu_seconds": {"a": 1e300}}])
def test_no_sum_of_seconds_is_longer_than_anything_lasts(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="longer"):
        typed_fields(Sums, document)
    assert typed_fields(Sums, {"loss": 1e300, "pause_seconds": 1e15}) == {"loss": 1e300, "pause_seconds": 1e15}
