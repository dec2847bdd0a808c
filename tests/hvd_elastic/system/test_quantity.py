from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.system import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("500m", Decimal("0.5")),
        ("1.5", Decimal("1.5")),
        ("2k", 2000),
        ("1Ki", 1024),
        ("32Gi", 32 * 2**30),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("12e-3", Decimal("0.012")),
        ("1.5e+1", 15),
        ("5n", Decimal("5e-9")),
        ("7u", Decimal("7e-6")),
        (".5", Decimal("0.5")),
        ("1.", 1),
        ("1.Gi", 2**30),
        ("+2", 2),
        ("-1", -1),
    ],
)
def test_values(text: str, value: Decimal) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "Gi", "1 Gi", "1gi", "--1", "1e", "1ki", "1e1.5", "1eE", "1mm", ".", "+", "0x10", "1Gi\n", "1KiB", "\u0663"],
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        quantity.parse(text)


@pytest.mark.parametrize("text", ["9" * 40, "9" * 32, "1e99", "-1e22", "1000E", "1e999999999", "1e-999999999"])
def test_a_quantity_that_nothing_has(text: str) -> None:
    for read in (quantity.parse, quantity.cpu, quantity.memory):
        with pytest.raises(ValueError, match="quantity"):
            read(text)


@given(st.text() | st.from_regex(r"[+-]?[0-9]{0,31}\.?[0-9]{0,9}([eEinumkKMGTP]{0,2}[+-]?[0-9]{0,4})", fullmatch=True))
def test_any_text_is_a_bounded_quantity_or_none(text: str) -> None:
    try:
        amount = quantity.parse(text)
    except ValueError:
        return
    assert abs(amount) < 10**21
    assert (amount % 1 == 0) is (amount == int(amount))


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
