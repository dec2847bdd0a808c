"""Every rule is run on the examples of its page: the bad one triggers it, the good one does not."""

import re
from pathlib import Path

import pytest

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.rule import Finding
from tests.mpijob.lint.overlay import CLEAN, MANIFESTS, overlaid

RULES = {rule.id: rule for rule in lint.all_rules()}
HAZARDS = sorted(path for path in MANIFESTS.glob("*.yaml") if path != CLEAN)


def found(text: str) -> tuple[Finding, ...]:
    documents, problems = lint.read(text, "job.yaml")
    assert not problems
    return lint.check(documents).findings


def test_clean_job_has_no_finding() -> None:
    assert [(f.rule.id, f.violation) for f in found(CLEAN.read_text())] == []


@pytest.mark.parametrize("identity", RULES)
def test_bad_example_triggers_and_is_fixed_where_it_can_be(identity: str) -> None:
    rule = RULES[identity]
    documents, _ = lint.read(overlaid(rule.page.bad, rule.page.part))
    before = lint.check(documents, [rule]).findings
    assert before
    after, fixed = lint.fix(documents, [rule])
    left = lint.check(after, [rule]).findings
    assert not [finding for finding in left if finding.violation.edits]
    assert len(fixed) == sum(bool(finding.violation.edits) for finding in before)


@pytest.mark.parametrize("identity", RULES)
def test_good_example_does_not_trigger(identity: str) -> None:
    rule = RULES[identity]
    documents, problems = lint.read(overlaid(rule.page.good, rule.page.part))
    assert not problems
    assert [finding.violation for finding in lint.check(documents, [rule]).findings] == []


@pytest.mark.parametrize("path", HAZARDS, ids=lambda path: path.stem)
def test_hazardous_manifest(path: Path) -> None:
    """The first line of a manifest lists exactly the rules that must report it."""
    expected = re.findall(r"HE\d{3}", path.read_text().partition("\n")[0])
    assert sorted({finding.rule.id for finding in found(path.read_text())}) == sorted(expected)


def test_every_rule_has_a_whole_page() -> None:
    for rule in RULES.values():
        page = rule.page
        assert all(len(text) > 5 for text in (page.what, page.why, page.fix, page.bad, page.good)), rule.id
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name), rule.id
        assert page.what.endswith("."), rule.id
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
