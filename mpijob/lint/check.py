"""Runs the rules over the jobs of a stream: selection, silence, order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hvd_elastic.mpijob.lint.document.edit import fits
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob, jobs
from hvd_elastic.mpijob.lint.rule import SILENCE, Finding, Hit, Rule, Severity, registered
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """What was found, in the order of the documents and of the places in them."""

    jobs: tuple[LintedJob, ...]
    findings: tuple[Finding, ...]
    silenced: tuple[Finding, ...] = ()

    def count(self, severity: Severity) -> int:
        """Findings of that severity."""
        return sum(finding.rule.severity is severity for finding in self.findings)


def chosen(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules that `select` names less those that `ignore` names, by id, by the start of an id (`HE2`) or by slug.

    Raises InvalidInputError for names that fit no rule.
    """
    wanted, unwanted = tuple(select), tuple(ignore)
    flags = [*(("--select", name) for name in wanted), *(("--ignore", name) for name in unwanted)]
    what, way_out = "fits no rule", "an id such as HE101, the start of one such as HE2, or a rule's name"
    problems = [
        Problem(path=flag, value=name, what=what, way_out=way_out)
        for flag, name in flags
        if not any(_fits(known, name) for known in registered())
    ]
    if problems:
        raise InvalidInputError(problems)
    rules = (known for known in registered() if not wanted or any(_fits(known, name) for name in wanted))
    return tuple(known for known in rules if not any(_fits(known, name) for name in unwanted))


def _fits(known: Rule, name: str) -> bool:
    return name == known.slug or (name.startswith("HE") and known.id.startswith(name))


def check(documents: list[Document], rules: Sequence[Rule] | None = None) -> LintReport:
    """Applies the rules (all of them unless given) to every MPIJob among the documents."""
    found = jobs(documents)
    applied = registered() if rules is None else tuple(rules)
    findings = [finding for job in _beside(found) for finding in _check_job(job, applied)]
    return LintReport(
        jobs=tuple(found),
        findings=tuple(f for f in findings if f.silenced is None),
        silenced=tuple(f for f in findings if f.silenced is not None),
    )


def _beside(found: list[LintedJob]) -> Iterable[LintedJob]:
    for job in found:
        yield replace(job, others=tuple(other for other in found if other is not job))


def _check_job(job: LintedJob, rules: Sequence[Rule]) -> list[Finding]:
    findings = [_finding(job, known, hit) for known in rules for hit in known.check(job)]
    return sorted(findings, key=_place)


def _finding(job: LintedJob, known: Rule, hit: Hit) -> Finding:
    """With the fix only where the manifest's own shape allows it: anything may stand anywhere."""
    document = hit.document or job.document
    feasible = all(fits(document.value, edit) for edit in hit.edits)
    return Finding(rule=known, job=job, hit=hit if feasible else replace(hit, edits=()), silenced=_silence(job, known))


def _place(finding: Finding) -> tuple[int, int, str]:
    region = finding.document.region(finding.hit.path)
    return region.line, region.column, finding.rule.id


def _silence(job: LintedJob, known: Rule) -> str | None:
    """The reason that the job gives for silencing the rule. No reason, no silence."""
    annotations = job.view.get("metadata", "annotations")
    for name in (known.id, known.slug):
        reason = (annotations.get(SILENCE + name).text or "").strip()
        if reason:
            return reason
    return None
