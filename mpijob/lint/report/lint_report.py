"""A report for people and as JSON."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from hvd_elastic.mpijob.lint.check import LintReport
from hvd_elastic.mpijob.lint.document.view import json_path
from hvd_elastic.mpijob.lint.rule import Finding, Rule, Severity
from hvd_elastic.priorityclasses.problem import Problem

_LONGEST = 60


def text(report: LintReport) -> str:
    """One line a finding: `file:line:column: severity id name: path: value: what is wrong`.

    Then, once for each rule that was found, why it bites and the way out.
    """
    lines = [_line(finding) for finding in report.findings]
    rules = sorted({finding.rule.id: finding.rule for finding in report.findings}.values(), key=lambda rule: rule.id)
    return "".join(f"{line}\n" for line in [*lines, *(note for rule in rules for note in _notes(rule))])


def _notes(rule: Rule) -> tuple[str, ...]:
    wrapped = (
        textwrap.fill(text, width=110, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
        for text in (f"Why: {rule.page.why}", f"Fix: {rule.page.fix}")
    )
    return ("", f"{rule.id} {rule.slug}", *wrapped)


def _line(finding: Finding) -> str:
    region = finding.document.region(finding.hit.path)
    place = f"{finding.document.source}:{region.line}:{region.column}"
    rule = finding.rule
    fixable = " (fixable)" if finding.hit.edits else ""
    path, value = json_path(finding.hit.path), shown(finding.hit.value)
    return f"{place}: {rule.severity} {rule.id} {rule.slug}: {path}: {value}: {finding.hit.message}{fixable}"


def shown(value: object) -> str:
    """A value on one line, cut where it is long."""
    if value is None:
        return "not set"
    written = json.dumps(value, ensure_ascii=False, default=str)
    return written if len(written) <= _LONGEST else f"{written[: _LONGEST - 3]}..."


def summary(report: LintReport) -> str:
    """What a person wants to know at the end: counts."""
    counts = {severity: report.count(severity) for severity in Severity}
    named = ", ".join(_counted(number, severity) for severity, number in counts.items() if number) or "no findings"
    fixable = sum(bool(finding.hit.edits) for finding in report.findings)
    more = f"; {fixable} fixable with --fix" if fixable else ""
    quiet = f"; {len(report.silenced)} silenced" if report.silenced else ""
    return f"{_counted(len(report.jobs), 'job')}: {named}{more}{quiet}"


def _counted(number: int, noun: str) -> str:
    plural = "" if number == 1 or noun == Severity.INFO else "s"
    return f"{number} {noun}{plural}"


def as_json(report: LintReport, problems: Sequence[Problem]) -> str:
    """Everything, for programs: findings, silenced findings with their reasons, and what could not be read."""
    content = {
        "jobs": [_job(report, index) for index in range(len(report.jobs))],
        "findings": [_entry(finding) for finding in report.findings],
        "silenced": [_entry(finding) | {"reason": finding.silenced} for finding in report.silenced],
        "problems": [{"path": p.path, "what": p.what, "wayOut": p.way_out} for p in problems],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, default=str, allow_nan=False) + "\n"


def _job(report: LintReport, index: int) -> dict[str, Any]:
    job = report.jobs[index]
    return {"file": job.document.source, "namespace": job.namespace, "name": job.name, "version": job.version}


def _entry(finding: Finding) -> dict[str, Any]:
    region = finding.document.region(finding.hit.path)
    return {
        "id": finding.rule.id,
        "name": finding.rule.slug,
        "severity": finding.rule.severity,
        "job": finding.job.name,
        "file": finding.document.source,
        "line": region.line,
        "column": region.column,
        "endLine": region.end_line,
        "endColumn": region.end_column,
        "path": json_path(finding.hit.path),
        "value": _finite(finding.hit.value),
        "message": finding.hit.message,
        "why": finding.rule.page.why,
        "fix": finding.rule.page.fix,
        "fixable": bool(finding.hit.edits),
    }


def _finite(value: object) -> object:
    """JSON has no NaN and no infinity; YAML has both."""
    try:
        json.dumps(value, allow_nan=False, default=str)
    except ValueError:
        return str(value)
    return value
