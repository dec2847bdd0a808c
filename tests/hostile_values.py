"""What a tenant may write where this project keeps its own: texts for a table, and JSON for hypothesis."""

import json
from dataclasses import fields
from enum import EnumMeta
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


TIMES: Final = frozenset({"unix", "began", "counts_since", "since", "stepped", "durable", "stall_since"})
counts = st.integers(-1, 1000) | st.integers(1 - 10**18, 10**18 - 1)
RIGHT: Final[dict[Any, st.SearchStrategy[Any]]] = {
    int: counts,
    int | None: st.none() | counts,
    bool: st.booleans(),
    bool | None: st.none() | st.booleans(),
    str: st.text(max_size=8),
    tuple[str, ...]: st.lists(st.sampled_from(["p-0", "p-1", "p-x"]), max_size=3),
    dict[str, float]: st.dictionaries(st.sampled_from(["m|spot", "m", "|unknown"]), st.floats(-1e16, 1e16)),
}
"""By a field's type."""


def documents(made: Any, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """JSON of a dataclass: all fields of their types, as large as they may be, but for two at most."""
    known = {each.name: _right(each) for each in fields(made)} | more
    wrong = st.dictionaries(st.sampled_from(sorted(known)), values, max_size=2)
    return st.tuples(st.fixed_dictionaries(known), wrong).map(lambda parts: json.dumps({**parts[0], **parts[1]}))


def _right(field: Any) -> st.SearchStrategy[Any]:
    if field.type in {float, float | None}:
        times = st.floats(0, 2e9)
        return times if field.name in TIMES else st.floats(-1e16, 1e16) | st.floats(0, 100)
    if isinstance(field.type, EnumMeta):
        return st.sampled_from(list(field.type))
    return RIGHT.get(field.type, st.just({}))


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
