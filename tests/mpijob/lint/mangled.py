"""Manifests in which any value can be anywhere."""

import copy
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.mpijob.lint.overlay import MANIFESTS

STREAMS = [list(yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)) for path in sorted(MANIFESTS.glob("*.yaml"))]


words = st.sampled_from(
    [
        "",
        "sh",
        "-c",
        "--min-np",
        "--min-np=",
        "-np",
        "8",
        "-8",
        "$(X)",
        "a;b",
        "'",
        "|",
        "horovodrun",
        "exec",
        "env",
        "--",
    ]
)
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.lists(words, max_size=5),
    st.lists(st.none() | st.integers() | st.dictionaries(st.just("name"), st.integers(), max_size=1), max_size=3),
    st.dictionaries(st.sampled_from(["name", "value", "key", "x"]), st.none() | st.text(max_size=3), max_size=3),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


@st.composite
def mangled(draw: st.DrawFn) -> list[Any]:
    """A real stream with one to three values replaced by something else."""
    documents: list[Any] = copy.deepcopy(draw(st.sampled_from(STREAMS)))
    for _ in range(draw(st.integers(1, 3))):
        *parent, key = draw(st.sampled_from([place for place in places(documents) if place]))
        at: Any = documents
        for step in parent:
            at = at[step]
        at[key] = draw(junk)
    return documents
