"""What people hand to the linter that is no plain manifest: templates, snippets, parts of MPIJobs, other kinds."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.linted_job import GROUP, LintedJob
from hvd_elastic.mpijob.lint.job.mpijob_fields import UnknownField, field_errors

_ACTION: Final = re.compile(r"\{\{(?!\{)-?\s*([^{}\n]*)")
_OF_HELM: Final = re.compile(
    r"(?:^|[\s(])(?:[.$]*\.(?:Values|Release|Chart|Capabilities|Template)\b|(?:include|template)\s+\")"
)
"""An action that names an object of Helm's, or one of its named templates (https://helm.sh/docs/chart_template_guide).

Other things are written in double braces too: values of Argo Workflows, alert rules in a ConfigMap."""
_BRACES: Final = re.compile(r"\{[{%]|\$\{")
_UNFILLED: Final = re.compile(r"\{\{[^{}\n]*\}\}|\$\{[A-Za-z_]\w*\}")
_MPIJOB_TEXT: Final = re.compile(r"\bkind[\"']?[ \t]?:[ \t]?[\"']?MPIJob\b")
_DESCRIBED: Final = re.compile(r"^Kind: +MPIJob$", re.MULTILINE)
_EXPANDED: Final = frozenset(("command", "args", "env", "annotations"))
"""Fields whose text programs expand, a shell or whoever reads an annotation."""


class ForeignForm(NamedTuple):
    """A form that is no manifest, and how to get the manifest from it."""

    what: str
    way_out: str
    line: int = 0
    """The line that shows it; 0 if it is the whole file."""


_LINE_FORMS: Final = (
    (re.compile("```"), ForeignForm("a fence of Markdown is no YAML", "leave out the lines with ```")),
    (re.compile("//"), ForeignForm("`//` begins no comment in YAML or JSON", "leave the comment out, or write YAML")),
    (
        re.compile(r"(?:[\w@:~./-]{0,80}[$%]|>>>) \S"),
        ForeignForm("a shell's prompt is no YAML", "leave out the line with the command"),
    ),
    (
        re.compile(r" {0,60}+\t[ \t]{0,60}+[^ \t]"),
        ForeignForm("a tab indents this line", "indent with blanks; YAML takes no tabs"),
    ),
)
"""How a line begins in a text that is no YAML for its sake."""
UNFILLED: Final = ForeignForm("placeholders are not filled in", "lint the rendered file")
PATCH: Final = ForeignForm(
    "is a patch, not a whole MPIJob", "lint what it makes: `kustomize build DIR | hvd-elastic lint`"
)


def whole_form(text: str) -> ForeignForm | None:
    """The form of a text that is no manifest although it may be YAML; None if it may be a manifest."""
    if any(_OF_HELM.search(action[1]) for action in _ACTION.finditer(text)):
        render = "lint what it renders: `helm template CHART | hvd-elastic lint`"
        return ForeignForm("is a Helm template, not a manifest", render)
    if "\nAPI Version:" in text and _DESCRIBED.search(text):
        return ForeignForm("is what `kubectl describe` prints", "lint what `kubectl get mpijob NAME -o yaml` prints")
    return None


def broken_form(text: str, line: int) -> ForeignForm | None:
    """Why a text that was meant to be a manifest is no YAML, if that has a name. `line`: where a reader gave up."""
    lines = text.splitlines()
    if _BRACES.search("".join(lines[line - 1 : line])):
        return UNFILLED._replace(line=line)
    for start, form in _LINE_FORMS:
        number = next((number for number, written in enumerate(lines, start=1) if start.match(written)), 0)
        if number:
            return form._replace(line=number)
    return None


def unfilled(job: LintedJob) -> ManifestView | None:
    """A value of the job that is still to be filled in, and that a rule would take at its word; None if there is none.

    Shells and training scripts have braces of their own, so of a command only the launcher's options count.
    """
    for flag in job.command_line.flags.values():
        for value in flag.values:
            in_script = job.command_line.shell_script is not None
            if "{{" in value.text or (not in_script and _UNFILLED.search(value.text)):
                return ManifestView(value.text, value.path)
    return next((view for view in _texts(job.view) if _UNFILLED.search(str(view.value))), None)


def _texts(view: ManifestView) -> Iterator[ManifestView]:
    """The texts below a value, without those that programs expand. The reader bounds the depth."""
    if view.text is not None:
        yield view
    for key, child in view.pairs():
        if key not in _EXPANDED:
            yield from _texts(child)
    for child in view.items():
        yield from _texts(child)


def is_patch(job: LintedJob) -> bool:
    """Whether this is a part of an MPIJob that kustomize lays over a whole one: no container of it has an image.

    A job that has an unknown field is none: the image may stand where it is not looked for.
    """
    if job.version is None or not job.spec.value or not job.name:
        return False
    containers = [container for part in (job.launcher, job.worker) for container in part.pod.containers]
    if any(container.view.get("image").exists for container in containers):
        return False
    return not any(isinstance(error, UnknownField) for error in field_errors(job.view, job.version))


def inner_jobs(view: ManifestView) -> Iterator[ManifestView]:
    """MPIJobs within another object: Katib's `trialSpec`, the text of Argo's `manifest`.

    The reader bounds the depth.
    """
    if view.text is not None:
        if f"{GROUP}/" in view.text and _MPIJOB_TEXT.search(view.text):
            yield view
        return
    group = (view.get("apiVersion").text or "").partition("/")[0]
    if view.get("kind").value == "MPIJob" and group == GROUP and view.get("spec").exists:
        yield view
        return
    for key, child in view.pairs():
        if key != "annotations":
            yield from inner_jobs(child)
    for child in view.items():
        yield from inner_jobs(child)


def kinds(documents: Iterable[Document]) -> str:
    """What the documents are, for a file without an MPIJob: `a PyTorchJob and a Service`; empty if nothing names it."""
    named = dict.fromkeys(
        "list" if isinstance(document.value, list) else document.view.get("kind").text for document in documents
    )
    words = [f"{'an' if name[0] in 'AEIOU' else 'a'} {name}" for name in named if name]
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1] if words else "") if part)
