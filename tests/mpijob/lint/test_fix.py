"""Fixing terminates, and changes only what the findings name."""

from typing import Any

from hypothesis import HealthCheck, given, settings

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.manifests.writers import yaml_stream
from tests.mpijob.lint.mangled import mangled
from tests.mpijob.lint.overlay import CLEAN, MANIFESTS
from tests.properties import examples


@given(mangled())
@settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))
def test_fixing_ends_and_leaves_nothing_fixable(documents: list[Any]) -> None:
    read, _ = lint.read(yaml_stream.dump(documents))
    after, _ = lint.fix(read)
    assert not [finding for finding in lint.check(after).findings if finding.violation.edits]
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


def test_findings_that_are_left_stand_where_they_stood() -> None:
    """The report names the file that was read, so its lines are meant."""
    documents, _ = lint.read((MANIFESTS / "stock-elastic.yaml").read_text(), "job.yaml")
    after, _ = lint.fix(documents)
    assert ("HE201", 18) in places(after)
    assert places(after) <= places(documents)


def places(documents: list[lint.Document]) -> set[tuple[str, int]]:
    return {
        (finding.rule.id, finding.document.source_range(finding.violation.path).line)
        for finding in lint.check(documents).findings
    }
