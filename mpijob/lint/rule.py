"""What a rule is: a pure function from a job to violations, registered together with its documentation."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_edit import ManifestEdit
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView, Path
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob

SILENCE_ANNOTATION_PREFIX: Final = "lint.hvd-elastic.dev/"
"""The annotation `lint.hvd-elastic.dev/HE101: reason` on an MPIJob silences that rule for the job."""
STATIC: Final = "static"
"""`lint.hvd-elastic.dev/static: reason` says that a job keeps its size on purpose: it silences `not-elastic`."""


class Severity(StrEnum):
    """An error breaks the job or its elasticity; a warning costs time, capacity or safety; info is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class ManifestPart(StrEnum):
    """The part of a manifest that a rule's examples show."""

    JOB = "the MPIJob"
    LAUNCHER = "the launcher's container"
    LAUNCHER_POD = "the launcher's pod template"
    WORKER = "the worker's container"
    WORKER_POD = "the worker's pod template"
    RELATED_OBJECT = "an object beside the MPIJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What a rule function yields: one place in the manifest that breaks the rule."""

    path: Path
    value: object
    message: str
    """What is wrong here, in one sentence with the numbers of this job."""
    edits: tuple[ManifestEdit, ...] = ()
    """A fix that cannot make the job worse; empty where a person must decide."""
    choice: bool = False
    """Whether a job description can ask for this. In a generated job it was chosen, and the finding is silenced."""
    assumes: str = ""
    """What the fix takes for granted because the manifest does not tell it; empty if nothing."""
    document: Document | None = None
    """The document that `path` belongs to, if it is not the job's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePage:
    """The documentation of a rule. `bad` and `good` are YAML fragments of `part`; tests run the rule on both."""

    what: str
    why: str
    fix: str
    part: ManifestPart
    bad: str
    good: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A hazard that the linter looks for. Its id never changes."""

    id: str
    name: str
    severity: Severity
    group: str
    """Name of the rule's module, without `_rules`."""
    page: RulePage
    keeps_from_starting: bool
    """Whether an error leaves the job without pods, or its launcher without workers, or ends it at once."""
    check: Callable[[LintedJob], Iterable[Violation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violation of a rule in one job."""

    rule: Rule
    job: LintedJob
    violation: Violation
    silence_reason: str | None = None
    """Why the finding is ignored: what an annotation of the job says, or that a job description chose it."""

    @property
    def document(self) -> Document:
        """The document that the violation's path belongs to."""
        return self.violation.document or self.job.document


_KEEP_FROM_STARTING: Final = ("schema", "pod", "start")
"""Groups of rules whose errors all keep a job from starting."""
_RULES: Final[dict[str, Rule]] = {}
_ID: Final = re.compile(r"HE[1-9]\d\d")


def rule(
    identity: str,
    name: str,
    severity: Severity,
    *,
    keeps_from_starting: bool = False,
    why: str,
    fix: str,
    part: ManifestPart,
    bad: str,
    good: str,
) -> Callable[[Callable[[LintedJob], Iterator[Violation]]], Callable[[LintedJob], Iterator[Violation]]]:
    """Registers the decorated function as a rule. Its docstring is the rule's summary, its module the rule's group.

    `keeps_from_starting` need not be said in the groups whose errors all do.
    """
    assert _ID.fullmatch(identity), identity
    assert identity not in _RULES, identity

    def register(check: Callable[[LintedJob], Iterator[Violation]]) -> Callable[[LintedJob], Iterator[Violation]]:
        what = " ".join((check.__doc__ or "").split())
        page = RulePage(what=what, why=why, fix=fix, part=part, bad=bad.strip("\n"), good=good.strip("\n"))
        group = check.__module__.rpartition(".")[2].removesuffix("_rules")
        _RULES[identity] = Rule(
            id=identity,
            name=name,
            severity=severity,
            group=group,
            page=page,
            keeps_from_starting=keeps_from_starting or group in _KEEP_FROM_STARTING,
            check=check,
        )
        return check

    return register


def all_rules() -> tuple[Rule, ...]:
    """Every registered rule, ordered by id."""
    return tuple(_RULES[key] for key in sorted(_RULES))


def violation(view: ManifestView, message: str, *edits: ManifestEdit, choice: bool = False) -> Violation:
    """A violation by the value in `view`, or by its absence."""
    return Violation(path=view.path, value=view.value, message=message, edits=edits, choice=choice)
