from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.mpijob.description import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("500m", Decimal("0.5")), ("1.5", Decimal("1.5")), ("2k", 2000), ("1Ki", 1024), ("32Gi", 32 * 2**30)],
)
def test_values(text: str, value: Decimal) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "-1", "1e9", "0x10", "1Gi\n", "9" * 40, "1KiB", "\u0663"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        quantity.parse(text)


@given(st.integers(1, 10**6), st.sampled_from(["Mi", "Gi", "Ti", "M", "G", "T"]))
def test_an_amount_of_memory_is_kept_as_it_was_written(number: int, unit: str) -> None:
    text = f"{number}{unit}"
    if unit == "M" and number < 2:
        return
    assert quantity.memory(text) == text


@given(st.integers(1, 10**12))
def test_mebibytes_are_rounded_down_and_read_back(number: int) -> None:
    value = quantity.parse(quantity.mebibytes(Decimal(number)))
    assert value <= max(number, 2**20)
    assert value > number - 2**20


@pytest.mark.parametrize("value", ["0", "0.0001", True, None, [], "x"])
def test_what_is_no_number_of_cpus(value: object) -> None:
    with pytest.raises(ValueError, match=r"CPU|quantity"):
        quantity.cpu(value)


def test_numbers_become_text() -> None:
    assert quantity.cpu(8) == "8"
    assert quantity.cpu(0.5) == "0.5"
    assert quantity.memory(2**30) == "1073741824"
