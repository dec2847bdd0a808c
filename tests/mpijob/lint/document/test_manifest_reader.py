"""Documents of a stream: where their values are, and what happens to broken ones."""

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.document.manifest_reader import read
from hvd_elastic.mpijob.lint.fix import dump
from tests.properties import examples

few = settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))


def test_source_ranges() -> None:
    documents, _ = read("---\n# note\na: 1\n---\nspec:\n  list:\n  - x: hello\n    z: [1,\n      22]\n")
    source_range = documents[1].source_range(("spec", "list", 0, "x"))
    assert (source_range.line, source_range.column, source_range.end_line, source_range.end_column) == (7, 8, 7, 13)
    assert documents[1].source_range(("spec", "list", 0, "z", 1)).line == 9
    assert documents[1].source_range(("spec", "missing", "deeper")).line == 5


def test_a_broken_document_does_not_hide_the_others() -> None:
    documents, problems = read("a: 1\n---\nb: [\n---\nc: 3\n---\nd: {x: *none}\n", "f.yaml")
    assert [document.value for document in documents] == [{"a": 1}, {"c": 3}]
    assert [problem.path.rsplit(":", 1)[0] for problem in problems] == ["f.yaml:4", "f.yaml:7"]


def test_duplicate_keys_are_kept_for_the_rule() -> None:
    (document,), _ = read("a: {b: 1, b: 2}\n")
    assert [path for path, _ in document.duplicates()] == [("a", "b")]
    assert document.value == {"a": {"b": 2}}


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
