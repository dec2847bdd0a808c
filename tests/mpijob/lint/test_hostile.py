"""Anything may stand anywhere in a manifest: a rule never fails, and a fix never breaks what it did not mean."""

import copy
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.report import lint_report, sarif
from hvd_elastic.mpijob.manifests.output import yaml_stream
from tests.mpijob.lint.overlay import CLEAN, MANIFESTS

STREAMS = [list(yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)) for path in sorted(MANIFESTS.glob("*.yaml"))]
some = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))

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
    """A real stream with up to three values exchanged for something else."""
    documents: list[Any] = copy.deepcopy(draw(st.sampled_from(STREAMS)))
    for _ in range(draw(st.integers(1, 3))):
        *parent, key = draw(st.sampled_from([place for place in places(documents) if place]))
        at: Any = documents
        for step in parent:
            at = at[step]
        at[key] = draw(junk)
    return documents


@given(mangled())
@some
def test_no_rule_fails_on_any_manifest(documents: list[Any]) -> None:
    read, problems = lint.read(yaml_stream.dump(documents), "job.yaml")
    found = lint.check(read)
    assert lint_report.text(found) is not None
    assert lint_report.as_json(found, problems)
    assert sarif.sarif(found, problems, version="0")


@given(mangled())
@some
def test_fixing_ends_and_leaves_nothing_fixable(documents: list[Any]) -> None:
    read, _ = lint.read(yaml_stream.dump(documents))
    after, _ = lint.fix(read)
    assert not [finding for finding in lint.check(after).findings if finding.hit.edits]
    assert lint.fix(after)[1] == []


def test_fixing_changes_only_what_it_names() -> None:
    documents, _ = lint.read((MANIFESTS / "stock-elastic.yaml").read_text())
    before: Any = documents[0].value
    (after,), fixed = lint.fix(documents)
    value: Any = after.value
    assert [finding.rule.id for finding in fixed]
    launcher = value["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["command"][0] == "horovodrun"
    assert (
        launcher["args"] == before["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"]
    )
    assert list(value) == list(before)
    assert value["metadata"] == before["metadata"]


def test_fixing_a_clean_stream_changes_nothing() -> None:
    documents, _ = lint.read(CLEAN.read_text())
    after, fixed = lint.fix(documents)
    assert (after, fixed) == (documents, [])
    again, _ = lint.read(yaml_stream.dump(document.value for document in after))
    assert [d.value for d in again] == [d.value for d in documents]
