"""The reader: places, scalars as Kubernetes has them, and input that means harm."""

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.document.manifest_reader import MAX_BYTES, read
from hvd_elastic.mpijob.lint.document.view import View, json_path
from hvd_elastic.mpijob.lint.document.yaml_composer import MAX_DEPTH, MAX_VALUES
from hvd_elastic.mpijob.lint.document.yaml_scalars import resolve
from hvd_elastic.mpijob.lint.fix import dump

few = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


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
        ("1.5", 1.5),
        ("1.2.3", "1.2.3"),
        ("-De", "-De"),
        ("_1", "_1"),
    ],
)
def test_scalars_are_what_kubectl_makes_of_them(plain: str, value: object) -> None:
    assert only(f"a: {plain}") == {"a": value}
    assert only(f"a: '{plain}'") == {"a": plain}


def test_merge_keys_and_aliases() -> None:
    text = "base: &b {x: 1, z: 2}\njob: {<<: *b, z: 3}\nlist: [*b, *b]\n"
    assert only(text) == {
        "base": {"x": 1, "z": 2},
        "job": {"z": 3, "x": 1},
        "list": [{"x": 1, "z": 2}, {"x": 1, "z": 2}],
    }


def test_places() -> None:
    documents, _ = read("---\n# note\na: 1\n---\nspec:\n  list:\n  - x: hello\n    z: [1,\n      22]\n")
    region = documents[1].region(("spec", "list", 0, "x"))
    assert (region.line, region.column, region.end_line, region.end_column) == (7, 8, 7, 13)
    assert documents[1].region(("spec", "list", 0, "z", 1)).line == 9
    assert documents[1].region(("spec", "missing", "deeper")).line == 5


def test_a_broken_document_does_not_hide_the_others() -> None:
    documents, problems = read("a: 1\n---\nb: [\n---\nc: 3\n---\nd: {x: *none}\n", "f.yaml")
    assert [document.value for document in documents] == [{"a": 1}, {"c": 3}]
    assert [problem.path.rsplit(":", 1)[0] for problem in problems] == ["f.yaml:4", "f.yaml:7"]


def test_duplicate_keys_are_kept_for_the_rule() -> None:
    (document,), _ = read("a: {b: 1, b: 2}\n")
    assert [path for path, _ in document.duplicates()] == [("a", "b")]
    assert document.value == {"a": {"b": 2}}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x" * (MAX_BYTES + 1), "characters"),
        ("[" * 100_000, f"deeper than {MAX_DEPTH}"),
        ("{a: " * 100_000, f"deeper than {MAX_DEPTH}"),
        ("- " * 5_000 + "x", f"deeper than {MAX_DEPTH}"),
        ("[" + "1," * (MAX_VALUES + 1) + "]", f"more than {MAX_VALUES} values"),
        ("a: &a [*a]", "alias *a has no complete anchor"),
        ("a: &a {<<: *a}", "alias *a has no complete anchor"),
        ("a: !!python/object:os.system {}", "not known to Kubernetes"),
        ("a: !Ref b", "not known to Kubernetes"),
        ("? [1, 2]\n: 3", "a key is no scalar"),
        ("a: {<<: 3}", "no mapping"),
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


@given(st.text(max_size=200))
@few
def test_no_text_breaks_the_reader(text: str) -> None:
    documents, problems = read(text)
    lint.check(documents)
    assert all(str(problem) for problem in problems)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["y", "on", "1:30", "1e3", "1e+3", "0o17", "~", "=", "<<", "2026-01-01", "- a", "a: b", "\n"]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), values, max_size=4))
@few
def test_what_is_written_reads_back(value: dict[str, object]) -> None:
    text = yaml.safe_dump(value, default_flow_style=False)
    documents, problems = read(text)
    if problems or not documents:
        return
    again, problems = read(dump(documents))
    assert problems == []
    assert [d.value for d in again] == [d.value for d in documents]


@given(st.text(max_size=20))
def test_resolving_a_scalar_never_fails(text: str) -> None:
    assert isinstance(resolve(text), str | int | float | bool | None)


def test_json_paths() -> None:
    assert json_path(("spec", "a.b/c", 0, "it's")) == "$.spec['a.b/c'][0]['it\\'s']"
    assert View({"a": [1]}).get("a", "b").value is None
