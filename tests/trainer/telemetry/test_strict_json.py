import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.telemetry.strict_json import strict_json


def refuse(word: str) -> None:
    pytest.fail(f"{word} is not JSON")


logged = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.floats(width=32).map(np.float32)
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), logged))
def test_a_strict_parser_reads_whatever_is_logged(values: dict[str, object]) -> None:
    assert json.loads(strict_json(values), parse_constant=refuse).keys() == values.keys()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_null(number: float) -> None:
    values = (number, np.float64(number), np.float32(number), torch.tensor(number), [number], {"inner": number})
    assert json.loads(strict_json({"loss": values}))["loss"] == [None] * 4 + [[None], {"inner": None}]


def test_a_tensor_of_one_element_is_a_number_and_any_other_a_text() -> None:
    values = {"one": torch.tensor([2]), "two": torch.tensor([1.0, 2.0]), "none": np.zeros(0), "complex": np.array(1j)}
    assert json.loads(strict_json(values)) == {"one": 2, "two": "tensor([1., 2.])", "none": "[]", "complex": "1j"}
