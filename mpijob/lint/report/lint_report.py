"""Renders a report as text for people and as JSON for programs."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from hvd_elastic.mpijob.lint.check import LintReport
from hvd_elastic.mpijob.lint.document.manifest_view import json_path
from hvd_elastic.mpijob.lint.rule import Finding, Rule, Severity
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.plain_words import count_words, printable, printable_json

_MAX_VALUE_LENGTH = 60


def text(report: LintReport) -> str:
    """One line per finding, the errors first: `file:line:column: severity id name: path: value: what is wrong`.

    After the findings come, once per rule, the reason and the fix.
    """
    rest = [finding for finding in report.findings if finding.rule.severity is not Severity.ERROR]
    lines = [_line(finding) for finding in (*report.errors, *rest)]
    rules = sorted({finding.rule.id: finding.rule for finding in report.findings}.values(), key=lambda rule: rule.id)
    return "".join(f"{line}\n" for line in [*map(printable, lines), *(note for rule in rules for note in _notes(rule))])


def short(report: LintReport) -> str:
    """One line per finding, and nothing else: `file:line:column: id name: what is wrong`."""
    return "".join(f"{printable(_short_line(finding))}\n" for finding in report.findings)


def _short_line(finding: Finding) -> str:
    return f"{_place(finding)}: {finding.rule.id} {finding.rule.name}: {finding.violation.message}{_fixable(finding)}"


def _place(finding: Finding) -> str:
    source_range = finding.document.source_range(finding.violation.path)
    return f"{finding.document.source}:{source_range.line}:{source_range.column}"


def _fixable(finding: Finding) -> str:
    assumes = f"; assumes {finding.violation.assumes}" if finding.violation.assumes else ""
    return f" (fixable{assumes})" if finding.violation.edits else ""


def _notes(rule: Rule) -> tuple[str, ...]:
    wrapped = (
        textwrap.fill(text, width=110, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
        for text in (f"Why: {rule.page.why}", f"Fix: {rule.page.fix}")
    )
    return ("", f"{rule.id} {rule.name}", *wrapped)


def _line(finding: Finding) -> str:
    rule, path, value = finding.rule, json_path(finding.violation.path), shown(finding.violation.value)
    what = f"{path}: {value}: {finding.violation.message}{_fixable(finding)}"
    return f"{_place(finding)}: {rule.severity} {rule.id} {rule.name}: {what}"


def shown(value: object) -> str:
    """A value on one line, shortened if it is long."""
    if value is None:
        return "not set"
    written = printable_json(value, default=str)
    return written if len(written) <= _MAX_VALUE_LENGTH else f"{written[: _MAX_VALUE_LENGTH - 3]}..."


def summary(report: LintReport) -> str:
    """The numbers of jobs and findings, on one line. Below it, which rules were silenced for which job, and why."""
    counts = {severity: report.count(severity) for severity in Severity}
    findings = ", ".join(_counted(number, severity) for severity, number in counts.items() if number) or "no findings"
    fixable = sum(bool(finding.violation.edits) for finding in report.findings)
    fixable_part = f"; {fixable} fixable with --fix" if fixable else ""
    silenced_part = f"; {len(report.silenced)} silenced" if report.silenced else ""
    known_part = f"; {len(report.known)} known from the baseline" if report.known else ""
    first = f"{_counted(len(report.jobs), 'job')}: {findings}{fixable_part}{silenced_part}{known_part}"
    return "\n".join([first, *_silenced(report)])


def _silenced(report: LintReport) -> list[str]:
    rules: dict[tuple[str, str], list[str]] = {}
    for finding in report.silenced:
        rules.setdefault((finding.job.name, finding.silence_reason or ""), []).append(finding.rule.id)
    return [
        printable(f"silenced in {job}: {', '.join(sorted(set(names)))}: {' '.join(reason.split())}")
        for (job, reason), names in rules.items()
    ]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if noun == Severity.INFO else count_words(number, noun)


def as_json(report: LintReport, problems: Sequence[Problem]) -> str:
    """The whole report: findings, silenced ones with their reasons, known ones, and what could not be read."""
    content = {
        "jobs": [_job(report, index) for index in range(len(report.jobs))],
        "findings": [_entry(finding) for finding in report.findings],
        "silenced": [_entry(finding) | {"reason": finding.silence_reason} for finding in report.silenced],
        "known": [_entry(finding) for finding in report.known],
        "problems": [{"path": p.path, "what": p.what, "wayOut": p.way_out} for p in problems],
    }
    return f"{printable_json(content, indent=2, default=str, allow_nan=False)}\n"


def _job(report: LintReport, index: int) -> dict[str, Any]:
    job = report.jobs[index]
    return {"file": job.document.source, "namespace": job.namespace, "name": job.name, "version": job.version}


def _entry(finding: Finding) -> dict[str, Any]:
    source_range = finding.document.source_range(finding.violation.path)
    return {
        "id": finding.rule.id,
        "name": finding.rule.name,
        "severity": finding.rule.severity,
        "job": finding.job.name,
        "file": finding.document.source,
        "line": source_range.line,
        "column": source_range.column,
        "endLine": source_range.end_line,
        "endColumn": source_range.end_column,
        "path": json_path(finding.violation.path),
        "value": _finite(finding.violation.value),
        "message": finding.violation.message,
        "why": finding.rule.page.why,
        "fix": finding.rule.page.fix,
        "fixable": bool(finding.violation.edits),
        "fixAssumes": finding.violation.assumes or None,
    }


def _finite(value: object) -> object:
    """The value as text if JSON cannot represent it: unlike YAML, JSON has neither NaN nor infinity."""
    try:
        json.dumps(value, allow_nan=False, default=str)
    except ValueError:
        return str(value)
    return value
