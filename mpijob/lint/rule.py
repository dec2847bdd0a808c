"""What a rule is: a pure function from a job to findings, with its page as data beside it."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.mpijob.lint.document.edit import Edit
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.document.view import Path, View
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob

SILENCE: Final = "lint.hvd-elastic.dev/"
"""Annotation `lint.hvd-elastic.dev/HE101: reason` on the MPIJob: that rule is silent there."""


class Severity(StrEnum):
    """An error breaks the job or its elasticity; a warning costs time, capacity or safety; info is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class At(StrEnum):
    """The part of a manifest that a page's examples show."""

    JOB = "the MPIJob"
    LAUNCHER = "the launcher's container"
    LAUNCHER_POD = "the launcher's pod template"
    WORKER = "the worker's container"
    WORKER_POD = "the worker's pod template"
    STREAM = "an object beside the MPIJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """What a rule function yields. The rule's identity is added around it."""

    path: Path
    value: object
    message: str
    """What is wrong here, in one sentence that names the numbers of this job."""
    edits: tuple[Edit, ...] = ()
    """A fix that cannot make the job worse; empty where a person must decide."""
    document: Document | None = None
    """Where the path stands, when it is not in the job's own document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The rule's documentation. `bad` and `good` are YAML fragments of `at`, and tests run the rule on both."""

    what: str
    why: str
    fix: str
    at: At
    bad: str
    good: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A hazard with an identity that never changes."""

    id: str
    slug: str
    severity: Severity
    group: str
    page: Page
    check: Callable[[LintedJob], Iterable[Hit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A hazard in one job."""

    rule: Rule
    job: LintedJob
    hit: Hit
    silenced: str | None = None
    """The reason that an annotation gives for ignoring it."""

    @property
    def document(self) -> Document:
        """Where the hit's path stands."""
        return self.hit.document or self.job.document


_RULES: Final[dict[str, Rule]] = {}
_ID: Final = re.compile(r"HE[1-9]\d\d")


def rule(
    identity: str, slug: str, severity: Severity, *, why: str, fix: str, at: At, bad: str, good: str
) -> Callable[[Callable[[LintedJob], Iterator[Hit]]], Callable[[LintedJob], Iterator[Hit]]]:
    """Registers the function below it. Its docstring says what the rule does; the group is the module's name."""
    assert _ID.fullmatch(identity), identity
    assert identity not in _RULES, identity

    def register(check: Callable[[LintedJob], Iterator[Hit]]) -> Callable[[LintedJob], Iterator[Hit]]:
        what = " ".join((check.__doc__ or "").split())
        page = Page(what=what, why=why, fix=fix, at=at, bad=bad.strip("\n"), good=good.strip("\n"))
        group = check.__module__.rpartition(".")[2]
        _RULES[identity] = Rule(id=identity, slug=slug, severity=severity, group=group, page=page, check=check)
        return check

    return register


def registered() -> tuple[Rule, ...]:
    """Every rule, by id."""
    return tuple(_RULES[key] for key in sorted(_RULES))


def hit(view: View, message: str, *edits: Edit) -> Hit:
    """A hit on a value that is there, or on the place where it is missing."""
    return Hit(path=view.path, value=view.value, message=message, edits=edits)
