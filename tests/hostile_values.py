"""What a tenant may write where this project keeps its own: texts for a table, and JSON for hypothesis."""

import json
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

DEEP: Final = "[" * 100_000
DIGITS: Final = "9" * 5000
TEXTS: Final = {
    "brackets": DEEP,
    "closed brackets": "[" * 300 + "]" * 300,
    "objects": '{"a":' * 100_000,
    "a list": "[1]",
    "null": "null",
    "digits": DIGITS,
    "a number of digits": f'{{"unix":1,"since":1,"activity":"training","step":{DIGITS}}}',
    "infinite": '{"unix":1e999,"before":1e999,"workers":1e999,"care":1e999,"since":1}',
    "not a number": '{"unix":NaN,"before":NaN,"workers":{"min":NaN},"care":NaN}',
    "an open text": '{"a":"' + '\\"' * 50_000,
    "quotes": '"' * 100_000,
    "half a pair": '{"name":"\\ud800"}',
    "long": " " * 2_000_000 + "{}",
}
"""By what is wrong with them."""

numbers = st.integers(-(10**30), 10**30) | st.floats() | st.sampled_from([0, -1, 1, 10**18, 2**63, 1e308, 1e-320])
words = st.text(max_size=10) | st.sampled_from([DIGITS, "1k", "1e3", "-1", "9" * 40, "\u0663", "", "True"])
leaves = st.none() | st.booleans() | numbers | words
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))
texts = (
    values.map(json.dumps) | st.text(max_size=60) | st.text('{}[]",:\\0123456789eE.-n', max_size=60)
    | st.sampled_from(sorted(TEXTS.values()))
)  # fmt: skip


def documents(known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[str]:
    """JSON objects with these fields, of which some have another value than they should, or are missing."""
    fields = {name: right | values for name, right in known.items()}
    return st.fixed_dictionaries({}, optional=fields).map(json.dumps)


def altered(good: Any) -> st.SearchStrategy[Any]:
    """A document like `good`, in which values at any depth are others or missing."""
    kept: st.SearchStrategy[Any]
    if isinstance(good, dict):
        kept = st.fixed_dictionaries({}, optional={name: altered(value) for name, value in good.items()})
    elif isinstance(good, list):
        kept = st.tuples(*map(altered, good)).map(list)
    else:
        kept = st.just(good)
    return st.just(good) | kept | values
