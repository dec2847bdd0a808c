"""Renders a report as SARIF 2.1.0, which code review tools show next to the lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from hvd_elastic.mpijob.lint.check import LintReport
from hvd_elastic.mpijob.lint.document.manifest_view import json_path
from hvd_elastic.mpijob.lint.report.lint_report import shown
from hvd_elastic.mpijob.lint.report.rule_pages import page
from hvd_elastic.mpijob.lint.rule import Finding, Rule, Severity, all_rules
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.plain_words import printable_json

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif(report: LintReport, problems: Sequence[Problem], *, version: str) -> str:
    """One run that describes every rule and locates every finding.

    Silenced findings are results that the source suppresses, findings of a baseline are suppressed from outside.
    """
    rules = all_rules()
    index = {rule.id: number for number, rule in enumerate(rules)}
    results = [_result(finding, index) for finding in (*report.findings, *report.silenced)]
    outside = {"suppressions": [{"kind": "external", "justification": "known: the baseline has it"}]}
    results += [_result(finding, index) | outside for finding in report.known]
    driver = {"name": "hvd-elastic lint", "semanticVersion": version, "rules": [_rule(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": not problems, "toolExecutionNotifications": [_notice(p) for p in problems]}
        ],
        "results": results,
    }
    return f"{printable_json({'$schema': SCHEMA, 'version': '2.1.0', 'runs': [run]}, indent=2)}\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.page.what},
        "fullDescription": {"text": rule.page.why},
        "help": {"text": rule.page.fix, "markdown": page(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    path = json_path(finding.violation.path)
    text = f"{path}: {shown(finding.violation.value)}: {finding.violation.message}. {finding.rule.page.fix}"
    result: dict[str, Any] = {
        "ruleId": finding.rule.id,
        "ruleIndex": index[finding.rule.id],
        "level": _LEVELS[finding.rule.severity],
        "message": {"text": text},
        "locations": [_location(finding, path)],
    }
    if finding.silence_reason is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.silence_reason}]
    return result


def _location(finding: Finding, path: str) -> dict[str, Any]:
    source_range = finding.document.source_range(finding.violation.path)
    place = {
        "startLine": source_range.line,
        "startColumn": source_range.column,
        "endLine": source_range.end_line,
        "endColumn": source_range.end_column,
    }
    return {
        "physicalLocation": {"artifactLocation": {"uri": _uri(finding.document.source)}, "region": place},
        "logicalLocations": [{"fullyQualifiedName": path, "kind": "object"}],
    }


def _uri(source: str) -> str:
    """A relative reference, or a file URI for an absolute path. Standard input is called `stdin`."""
    if source == "-":
        return "stdin"
    path = Path(source)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _notice(problem: Problem) -> dict[str, Any]:
    return {"level": "error", "message": {"text": f"{problem.path}: {problem.what}"}}
