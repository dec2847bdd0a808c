"""What is printed: lines, JSON, SARIF, pages."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.report import lint_report, rule_pages, sarif
from hvd_elastic.priorityclasses.problem import Problem
from tests.mpijob.lint.overlay import MANIFESTS
from tests.mpijob.modules import ModuleFile

SARIF_SCHEMA = ModuleFile(
    module="github.com/securego/gosec/v2", version="v2.30.0", path="report/sarif/testdata/sarif-schema-2.1.0.json"
)
STOCK = MANIFESTS / "stock-elastic.yaml"
DOCS = Path(__file__).parents[3] / "docs" / "lint.md"


def stock() -> lint.LintReport:
    documents, problems = lint.read(STOCK.read_text(), "jobs/stock elastic.yaml")
    assert problems == []
    return lint.check(documents)


def test_lines_point_at_the_value() -> None:
    lines = STOCK.read_text().splitlines()
    findings, _, notes = lint_report.text(stock()).partition("\n\n")
    assert "HE104 permanent-blacklist\n  Why: " in notes
    for line in findings.splitlines():
        match = re.match(r"jobs/stock elastic\.yaml:(\d+):(\d+): (error|warning|info) HE\d{3} ", line)
        assert match, line
        number, column = int(match[1]), int(match[2])
        assert lines[number - 1][column - 1 : column].strip(), line


def test_json_has_everything() -> None:
    content = json.loads(lint_report.as_json(stock(), [Problem(path="x", value="", what="w")]))
    first = content["findings"][0]
    assert {"id", "severity", "path", "value", "why", "fix", "line"} <= first.keys()
    assert content["jobs"] == [
        {
            "file": "jobs/stock elastic.yaml",
            "namespace": "default",
            "name": "tensorflow-mnist-elastic",
            "version": "v2beta1",
        }
    ]
    assert content["problems"] == [{"path": "x", "what": "w", "wayOut": ""}]


def test_sarif_is_valid() -> None:
    """OASIS' own schema, as gosec's module carries it."""
    schema = json.loads(SARIF_SCHEMA.local().read_text())
    problem = Problem(path="x", value="", what="not YAML")
    for path in sorted(MANIFESTS.glob("*.yaml")):
        documents, _ = lint.read(path.read_text(), str(path))
        jsonschema.validate(json.loads(sarif.sarif(lint.check(documents), [problem], version="1.2.3")), schema)


def test_sarif_points_at_rules_and_places() -> None:
    found = stock()
    log: Any = json.loads(sarif.sarif(found, [], version="1.2.3"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [rule.id for rule in lint.registered()]
    assert len(run["results"]) == len(found.findings)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uri"] == "jobs/stock%20elastic.yaml"
        region = physical["region"]
        assert (region["startLine"], region["startColumn"]) < (region["endLine"], region["endColumn"])
        assert region["startColumn"] >= 1


def test_silenced_findings_are_kept_with_their_reason() -> None:
    text = STOCK.read_text().replace(
        "metadata:\n", "metadata:\n  annotations: {lint.hvd-elastic.dev/HE441: the namespace denies all}\n"
    )
    documents, _ = lint.read(text)
    found = lint.check(documents)
    assert "HE441" not in {finding.rule.id for finding in found.findings}
    assert [(f.rule.id, f.silenced) for f in found.silenced] == [("HE441", "the namespace denies all")]
    log: Any = json.loads(sarif.sarif(found, [], version="1"))
    suppressed = [result for result in log["runs"][0]["results"] if "suppressions" in result]
    assert suppressed[0]["suppressions"] == [{"kind": "inSource", "justification": "the namespace denies all"}]


def test_every_example_is_yaml() -> None:
    for rule in lint.registered():
        for example in (rule.page.bad, rule.page.good):
            assert [part for part in yaml.safe_load_all(example) if part], rule.id


def test_the_document_is_fresh() -> None:
    assert DOCS.read_text() == rule_pages.book(), f"stale: run `{rule_pages.COMMAND}`"
