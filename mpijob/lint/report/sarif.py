"""A report as SARIF 2.1.0, which code review tools show beside the lines."""

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from hvd_elastic.mpijob.lint.check import LintReport
from hvd_elastic.mpijob.lint.document.view import json_path
from hvd_elastic.mpijob.lint.report.lint_report import shown
from hvd_elastic.mpijob.lint.report.rule_pages import page
from hvd_elastic.mpijob.lint.rule import Finding, Rule, Severity, registered
from hvd_elastic.priorityclasses.problem import Problem

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif(report: LintReport, problems: Sequence[Problem], *, version: str) -> str:
    """One run with every rule described, each finding with its region, silenced ones as suppressed."""
    rules = registered()
    index = {rule.id: number for number, rule in enumerate(rules)}
    results = [_result(finding, index) for finding in (*report.findings, *report.silenced)]
    driver = {"name": "hvd-elastic lint", "semanticVersion": version, "rules": [_rule(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": not problems, "toolExecutionNotifications": [_notice(p) for p in problems]}
        ],
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.slug.split("-")),
        "shortDescription": {"text": rule.page.what},
        "fullDescription": {"text": rule.page.why},
        "help": {"text": rule.page.fix, "markdown": page(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    path = json_path(finding.hit.path)
    text = f"{path}: {shown(finding.hit.value)}: {finding.hit.message}. {finding.rule.page.fix}"
    result: dict[str, Any] = {
        "ruleId": finding.rule.id,
        "ruleIndex": index[finding.rule.id],
        "level": _LEVELS[finding.rule.severity],
        "message": {"text": text},
        "locations": [_location(finding, path)],
    }
    if finding.silenced is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.silenced}]
    return result


def _location(finding: Finding, path: str) -> dict[str, Any]:
    region = finding.document.region(finding.hit.path)
    place = {
        "startLine": region.line,
        "startColumn": region.column,
        "endLine": region.end_line,
        "endColumn": region.end_column,
    }
    return {
        "physicalLocation": {"artifactLocation": {"uri": _uri(finding.document.source)}, "region": place},
        "logicalLocations": [{"fullyQualifiedName": path, "kind": "object"}],
    }


def _uri(source: str) -> str:
    """A relative reference, or a file URI for an absolute path. Standard input has no name of its own."""
    if source == "-":
        return "stdin"
    path = PurePath(source)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _notice(problem: Problem) -> dict[str, Any]:
    return {"level": "error", "message": {"text": f"{problem.path}: {problem.what}"}}
