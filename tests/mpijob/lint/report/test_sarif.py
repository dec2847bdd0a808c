"""A report as SARIF."""

import json
from typing import Any

import jsonschema

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.report import sarif
from hvd_elastic.priorityclasses.problem import Problem
from tests.mpijob.lint.overlay import MANIFESTS
from tests.mpijob.lint.reports import STOCK, stock_report
from tests.mpijob.modules import ModuleFile

SARIF_SCHEMA = ModuleFile(
    module="github.com/securego/gosec/v2", version="v2.30.0", path="report/sarif/testdata/sarif-schema-2.1.0.json"
)


def test_sarif_is_valid() -> None:
    """Valid by the schema of OASIS, which the Go module of gosec contains."""
    schema = json.loads(SARIF_SCHEMA.local().read_text())
    problem = Problem(path="x", value="", what="not YAML")
    for path in sorted(MANIFESTS.glob("*.yaml")):
        documents, _ = lint.read(path.read_text(), str(path))
        jsonschema.validate(json.loads(sarif.sarif(lint.check(documents), [problem], version="1.2.3")), schema)


def test_sarif_points_at_rules_and_places() -> None:
    found = stock_report()
    log: Any = json.loads(sarif.sarif(found, [], version="1.2.3"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [rule.id for rule in lint.all_rules()]
    assert len(run["results"]) == len(found.findings)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uri"] == "jobs/stock%20elastic.yaml"
        region = physical["region"]
        assert (region["startLine"], region["startColumn"]) < (
            region["endLine"],
            region["endColumn"],
        )
        assert region["startColumn"] >= 1


def test_silenced_findings_are_kept_with_their_reason() -> None:
    text = STOCK.read_text().replace(
        "metadata:\n", "metadata:\n  annotations: {lint.hvd-elastic.dev/HE441: the namespace denies all}\n"
    )
    documents, _ = lint.read(text)
    found = lint.check(documents)
    assert "HE441" not in {finding.rule.id for finding in found.findings}
    assert [(f.rule.id, f.silence_reason) for f in found.silenced] == [("HE441", "the namespace denies all")]
    log: Any = json.loads(sarif.sarif(found, [], version="1"))
    suppressed = [result for result in log["runs"][0]["results"] if "suppressions" in result]
    assert suppressed[0]["suppressions"] == [{"kind": "inSource", "justification": "the namespace denies all"}]
