"""Runs the rules over every job of a stream, and separates the findings that the job silences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.lint.document.manifest_edit import is_applicable
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.job.horovod_version import HorovodVersion
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, jobs
from hvd_elastic.mpijob.lint.rule import (
    SILENCE_ANNOTATION_PREFIX,
    STATIC,
    Finding,
    Rule,
    Severity,
    Violation,
    all_rules,
)
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

GENERATED: Final = f"the job was generated from a job description, which chose it (annotation {ANNOTATION_SPEC})"
_NOT_ELASTIC: Final = "not-elastic"


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The jobs that were checked and the findings, ordered by document and by place within it."""

    jobs: tuple[LintedJob, ...]
    findings: tuple[Finding, ...]
    silenced: tuple[Finding, ...] = ()
    known: tuple[Finding, ...] = ()
    """Those of a baseline."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors, those first that keep the job from starting."""
        found = [finding for finding in self.findings if finding.rule.severity is Severity.ERROR]
        return tuple(sorted(found, key=lambda finding: not finding.rule.keeps_from_starting))

    def count(self, severity: Severity) -> int:
        """Number of findings of that severity."""
        return sum(finding.rule.severity is severity for finding in self.findings)


def select_rules(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules named by `select` (all rules if it is empty) without those named by `ignore`.

    A rule is named by its id, by the start of an id (`HE2`) or by its name. Raises InvalidInputError if a name matches
    no rule.
    """
    wanted, unwanted = tuple(select), tuple(ignore)
    flags = [*(("--select", name) for name in wanted), *(("--ignore", name) for name in unwanted)]
    what, way_out = "matches no rule", "use an id such as HE101, the start of one such as HE2, or a rule's name"
    problems = [
        Problem(path=flag, value=name, what=what, way_out=way_out)
        for flag, name in flags
        if not any(_matches(rule, name) for rule in all_rules())
    ]
    if problems:
        raise InvalidInputError(problems)
    selected = (rule for rule in all_rules() if not wanted or any(_matches(rule, name) for name in wanted))
    return tuple(rule for rule in selected if not any(_matches(rule, name) for name in unwanted))


def _matches(rule: Rule, name: str) -> bool:
    return name == rule.name or (name.startswith("HE") and rule.id.startswith(name))


def check(
    documents: list[Document], rules: Sequence[Rule] | None = None, *, horovod: HorovodVersion | None = None
) -> LintReport:
    """Runs `rules` (all of them unless given) on every MPIJob among the documents.

    `horovod`: the Horovod of the jobs' images. None: what each image's name tells.
    """
    found = [replace(job, stated_horovod=horovod) for job in jobs(documents)]
    applied = all_rules() if rules is None else tuple(rules)
    findings = [finding for job in _with_other_jobs(found) for finding in _check_job(job, applied)]
    return LintReport(
        jobs=tuple(found),
        findings=tuple(finding for finding in findings if finding.silence_reason is None),
        silenced=tuple(finding for finding in findings if finding.silence_reason is not None),
    )


def _with_other_jobs(found: list[LintedJob]) -> Iterable[LintedJob]:
    for job in found:
        yield replace(job, other_jobs=tuple(other for other in found if other is not job))


def _check_job(job: LintedJob, rules: Sequence[Rule]) -> list[Finding]:
    findings = [_finding(job, rule, violation) for rule in rules for violation in rule.check(job)]
    return sorted(findings, key=_place)


def _finding(job: LintedJob, rule: Rule, violation: Violation) -> Finding:
    """Drops the fix if the manifest has values of other types where the edits would apply."""
    document = violation.document or job.document
    if not all(is_applicable(document.value, edit) for edit in violation.edits):
        violation = replace(violation, edits=(), assumes="")
    reason = _silence_reason(job, rule)
    if reason is None and violation.choice and job.generated:
        reason = GENERATED
    return Finding(rule=rule, job=job, violation=violation, silence_reason=reason)


def _place(finding: Finding) -> tuple[int, int, str]:
    source_range = finding.document.source_range(finding.violation.path)
    return source_range.line, source_range.column, finding.rule.id


def _silence_reason(job: LintedJob, rule: Rule) -> str | None:
    """The reason that the job's annotation gives for silencing the rule. An empty reason silences nothing."""
    annotations = job.view.get("metadata", "annotations")
    for name in (rule.id, rule.name, *((STATIC,) if rule.name == _NOT_ELASTIC else ())):
        reason = (annotations.get(SILENCE_ANNOTATION_PREFIX + name).text or "").strip()
        if reason:
            return reason
    return None
