"""A report as lines of text and as JSON."""

import json
import re

from hvd_elastic.mpijob.lint.report import lint_report
from hvd_elastic.priorityclasses.problem import Problem
from tests.mpijob.lint.reports import STOCK, stock_report


def test_lines_point_at_the_value() -> None:
    lines = STOCK.read_text().splitlines()
    findings, _, notes = lint_report.text(stock_report()).partition("\n\n")
    assert "HE104 permanent-blacklist\n  Why: " in notes
    for line in findings.splitlines():
        match = re.match(r"jobs/stock elastic\.yaml:(\d+):(\d+): (error|warning|info) HE\d{3} ", line)
        assert match, line
        number, column = int(match[1]), int(match[2])
        assert lines[number - 1][column - 1 : column].strip(), line


def test_json_has_everything() -> None:
    content = json.loads(lint_report.as_json(stock_report(), [Problem(path="x", value="", what="w")]))
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
