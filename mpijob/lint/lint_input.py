"""What a file given to the linter is: manifests, a job description of ours, or something that is neither."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hvd_elastic.mpijob.lint.document.manifest_reader import Document, read
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.foreign_input import (
    PATCH,
    UNFILLED,
    ForeignForm,
    broken_form,
    inner_jobs,
    is_patch,
    kinds,
    unfilled,
    whole_form,
)
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, jobs
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_JOB: Final = "MPIJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class LintInput:
    """What one file holds."""

    documents: tuple[Document, ...] = ()
    """Kubernetes manifests."""
    descriptions: int = 0
    """Job descriptions without a problem."""
    mentions_job: bool = True
    """Whether its text names MPIJobs at all. If not, and it cannot be read, it may be none of the linter's business."""
    problems: tuple[Problem, ...] = ()
    """Why it, or a part of it, cannot be used; of a job description, everything that is wrong with it."""

    @property
    def kinds(self) -> str:
        """The kinds of its objects, for a file without an MPIJob: `a PyTorchJob`; empty if it has none."""
        return kinds(self.documents)


def read_input(text: str, source: str = "-") -> LintInput:
    """Reads a file's text. Never raises."""
    mentions_job = _JOB in text
    if form := whole_form(text):
        return LintInput(problems=(_of_form(form, source),), mentions_job=mentions_job)
    documents, problems = read(text, source)
    if problems and mentions_job and (form := broken_form(text, _line(problems[0]))):
        return LintInput(problems=(_of_form(form, source),))
    if len(documents) == 1 and not problems and is_job_description(documents[0].value):
        found = _description_problems(text, documents[0])
        return LintInput(descriptions=int(not found), problems=found)
    read_jobs = [(document, jobs([document])) for document in documents]
    found_in = [(document, found, _in_vain(document, found)) for document, found in read_jobs]
    return LintInput(
        # A document with an MPIJob that would be linted in vain is left out: each of its findings may be false.
        documents=tuple(document for document, found, in_vain in found_in if not (found and in_vain)),
        problems=(*problems, *(problem for _, _, in_vain in found_in for problem in in_vain)),
        mentions_job=mentions_job,
    )


def _line(problem: Problem) -> int:
    """The line of a problem of the reader, whose place is FILE:LINE:COLUMN; 0 if it is the whole file."""
    line = "".join(problem.path.split(":")[-2:-1])
    return int(line) if line.isdecimal() and len(line) < 10 else 0


def _of_form(form: ForeignForm, source: str) -> Problem:
    place = f"{source}:{form.line}:1" if form.line else source
    return Problem(path=place, value=..., what=form.what, way_out=form.way_out)


def _in_vain(document: Document, found: list[LintedJob]) -> list[Problem]:
    """Why a document's MPIJobs would be linted in vain, or why the rules do not see them."""
    if found:
        return [problem for job in found if (problem := _of_job(document, job))]
    what = f"an MPIJob inside {kinds([document]) or 'a document without a kind'} is seen, and not read"
    places = [_place(document, view) for view in inner_jobs(document.view)]
    return [Problem(path=place, value=..., what=what, way_out="lint it in a file of its own") for place in places]


def _of_job(document: Document, job: LintedJob) -> Problem | None:
    if view := unfilled(job):
        return Problem(path=_place(document, view), value=view.value, what=UNFILLED.what, way_out=UNFILLED.way_out)
    if is_patch(job):
        return Problem(path=_place(document, job.view), value=..., what=PATCH.what, way_out=PATCH.way_out)
    return None


def _place(document: Document, view: ManifestView) -> str:
    source_range = document.source_range(view.path)
    return f"{document.source}:{source_range.line}:{source_range.column}"


def is_job_description(value: object) -> bool:
    """Whether this is meant to be a job description: no Kubernetes object, but a command and workers, or an image."""
    if not isinstance(value, Mapping) or {"apiVersion", "kind"} & value.keys():
        return False
    return "command" in value and ("workers" in value or {"name", "image"} <= value.keys())


def _description_problems(text: str, document: Document) -> tuple[Problem, ...]:
    from hvd_elastic.mpijob.job_reader import read_job

    try:
        read_job(text)
    except InvalidInputError as error:
        return tuple(replace(problem, path=_key_place(document, problem.path)) for problem in error.problems)
    return ()


def _key_place(document: Document, path: str) -> str:
    steps: list[Any] = [part for part in re.split(r"[.\[\]]", path) if part]
    steps = [int(step) if step.isdecimal() and len(step) < 6 else step for step in steps]
    return f"{_place(document, ManifestView(None, tuple(steps)))}: {path}"
