"""Unquoted scalars have the values that kubectl gives them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.mpijob.lint.document.manifest_reader import read
from hvd_elastic.mpijob.yaml_input.yaml_scalars import kubectl_scalar, yaml_1_2_scalar


def only(text: str) -> object:
    documents, problems = read(text)
    assert problems == []
    (document,) = documents
    return document.value


@pytest.mark.parametrize(
    ("plain", "value"),
    [
        ("y", True),
        ("on", True),
        ("No", False),
        ("~", None),
        ("0555", 0o555),
        ("0o17", 15),
        ("0x1F", 31),
        ("-12", -12),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1e+3", 1000.0),
        ("1e3", "1e3"),
        ("1e+400", "1e+400"),
        ("1.5", 1.5),
        ("1.", 1.0),
        ("-.5e-1", -0.05),
        ("1.2.3", "1.2.3"),
        ("-De", "-De"),
        ("_1", "_1"),
    ],
)
def test_scalars_have_the_values_that_kubectl_gives_them(plain: str, value: object) -> None:
    assert only(f"a: {plain}") == {"a": value}
    assert only(f"a: '{plain}'") == {"a": plain}


@given(st.text(max_size=20))
def test_resolving_a_scalar_never_fails(text: str) -> None:
    for resolve in (kubectl_scalar, yaml_1_2_scalar):
        assert isinstance(resolve(text), str | int | float | bool | None)
