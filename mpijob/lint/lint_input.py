"""What a file given to the linter is: manifests, a job description of ours, or a template that is no YAML yet."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hvd_elastic.mpijob.lint.document.manifest_reader import Document, read
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_ACTION: Final = re.compile(r"\{\{(?!\{)-?\s*([^{}\n]*)")
_OF_HELM: Final = re.compile(
    r"(?:^|[\s(])(?:[.$]*\.(?:Values|Release|Chart|Capabilities|Template)\b|(?:include|template)\s+\")"
)
"""An action that names an object of Helm's, or one of its named templates (https://helm.sh/docs/chart_template_guide).

Other things are written in double braces too: values of Argo Workflows, alert rules in a ConfigMap."""

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


def read_input(text: str, source: str = "-") -> LintInput:
    """Reads a file's text. Never raises."""
    if any(_OF_HELM.search(action[1]) for action in _ACTION.finditer(text)):
        problem = Problem(
            path=source,
            value=...,
            what="is a Helm template, not a manifest",
            way_out="lint what it renders: `helm template CHART | hvd-elastic lint`",
        )
        return LintInput(problems=(problem,), mentions_job=_JOB in text)
    documents, problems = read(text, source)
    if len(documents) == 1 and not problems and is_job_description(documents[0].value):
        found = _description_problems(text, documents[0])
        return LintInput(descriptions=int(not found), problems=found)
    return LintInput(documents=tuple(documents), problems=tuple(problems), mentions_job=_JOB in text)


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
        return tuple(replace(problem, path=_place(document, problem.path)) for problem in error.problems)
    return ()


def _place(document: Document, path: str) -> str:
    steps: list[Any] = [part for part in re.split(r"[.\[\]]", path) if part]
    steps = [int(step) if step.isdecimal() and len(step) < 6 else step for step in steps]
    source_range = document.source_range(tuple(steps))
    return f"{document.source}:{source_range.line}:{source_range.column}: {path}"
