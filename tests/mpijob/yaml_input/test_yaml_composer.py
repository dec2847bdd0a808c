"""Merge keys and aliases, and the limits on hostile streams."""

import pytest

from hvd_elastic.mpijob.lint.document.manifest_reader import read
from hvd_elastic.mpijob.yaml_input.yaml_composer import (
    MAX_CHARACTERS,
    MAX_COPIED,
    MAX_VALUES,
    UnreadableError,
    read_value,
)
from hvd_elastic.mpijob.yaml_input.yaml_scalars import KUBECTL

MAX_DEPTH = KUBECTL.max_depth


def only(text: str) -> object:
    documents, problems = read(text)
    assert problems == []
    (document,) = documents
    return document.value


def test_merge_keys_and_aliases() -> None:
    text = "base: &b {x: 1, z: 2}\njob: {<<: *b, z: 3}\nlist: [*b, *b]\n"
    assert only(text) == {
        "base": {"x": 1, "z": 2},
        "job": {"z": 3, "x": 1},
        "list": [{"x": 1, "z": 2}, {"x": 1, "z": 2}],
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x" * (MAX_CHARACTERS + 1), "characters"),
        ("[" * 500, f"deeper than {MAX_DEPTH}"),
        ("[" * 100_000, "nest"),  # PyYAML 6.0.4 refuses it before we do
        ("{a: " * 100_000, f"deeper than {MAX_DEPTH}"),
        ("- " * 5_000 + "x", f"deeper than {MAX_DEPTH}"),
        ("[" + "1," * (MAX_VALUES + 1) + "]", f"more than {MAX_VALUES} values"),
        ("a: &a [*a]", "alias *a has no complete anchor"),
        ("a: &a {<<: *a}", "alias *a has no complete anchor"),
        ("a: !!python/object:os.system {}", "is not known"),
        ("a: !Ref b", "is not known"),
        ("? [1, 2]\n: 3", "a key is not a scalar"),
        ("a: {<<: 3}", "not a mapping"),
        ("a: \x07", "not readable"),
        ("a:\n\t- b", "not YAML"),
    ],
)
def test_hostile_streams_are_refused_with_a_reason(text: str, what: str) -> None:
    documents, problems = read(text)
    assert documents == []
    assert what in problems[0].what


def test_alias_bombs_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    documents, problems = read("\n".join(lines))
    assert documents == []
    assert "aliases are expanded" in problems[0].what
    deep = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200)]
    assert "nested deeper" in read("\n".join(deep))[1][0].what


def test_merging_one_mapping_again_and_again_is_refused() -> None:
    """Each `<<` looks at all of the keys, also where the mapping has them all."""
    keys = ", ".join(f"k{i}: 1" for i in range(1000))
    documents, problems = read(f"a: &a {{{keys}}}\nb: {{{', '.join(['<<: *a'] * 1000)}}}\n")
    assert documents == []
    assert "aliases are expanded" in problems[0].what


def test_a_stream_of_small_documents_may_not_copy_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 4)]
    document = "\n".join(lines)
    documents, problems = read("\n---\n".join([document] * 100))
    assert 0 < len(documents) < 20
    assert f"copy more than {MAX_COPIED} values" in problems[-1].what


def test_a_value_of_one_document() -> None:
    assert read_value("a: [1, y]\n") == {"a": [1, True]}
    assert read_value("") is None
    with pytest.raises(UnreadableError, match="more than one document"):
        read_value("a: 1\n---\nb: 2\n")
    with pytest.raises(UnreadableError, match="characters"):
        read_value("x" * (MAX_CHARACTERS + 1))
