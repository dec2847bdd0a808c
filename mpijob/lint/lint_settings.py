"""The linter's settings file, `.hvd-elastic-lint.yaml`: what a project asks of every run.

select: [HE1, HE2]       # rules to check, all if empty
ignore: [HE441]          # rules not to check
fail_on: warning         # error, warning, info or never
horovod: 0.28.1          # the Horovod of the images
baseline: lint.json      # known findings, beside this file
allow_no_job: true       # a file without an MPIJob is no error
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from hvd_elastic.mpijob.lint.job.horovod_version import HorovodVersion, horovod_version
from hvd_elastic.mpijob.lint.rule import Severity
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

SETTINGS_FILE: Final = ".hvd-elastic-lint.yaml"
"""Read from the working directory if no other is named."""


class FailOn(StrEnum):
    """The least severity of a finding that makes the linter end with 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"

    def fails(self, severity: Severity) -> bool:
        """Whether a finding of that severity is enough."""
        order = [FailOn.ERROR, FailOn.WARNING, FailOn.INFO]
        return self is not FailOn.NEVER and order.index(FailOn(severity)) <= order.index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintSettings:
    """What the settings file says. The command line wins over it; its `--ignore` adds to `ignore`."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: FailOn = FailOn.ERROR
    horovod: HorovodVersion | None = None
    baseline: Path | None = None
    allow_no_job: bool = False


def read_settings(path: Path) -> LintSettings:
    """Reads a settings file. Raises InvalidInputError with everything that is wrong with it."""
    from hvd_elastic.mpijob.description import yaml_document

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "not UTF-8"
        raise InvalidInputError([Problem(path=str(path), value=..., what=what)]) from error
    written, problems = yaml_document.parse(text, name=str(path)) if text.strip() else ({}, [])
    problems += [
        Problem(path=f"{path}: {problem.path}", value=problem.value, what=problem.what, way_out=problem.way_out)
        for problem in _problems(written)
    ]
    if problems:
        raise InvalidInputError(problems)
    version, baseline = written.get("horovod"), written.get("baseline")
    return LintSettings(
        select=tuple(written.get("select") or ()),
        ignore=tuple(written.get("ignore") or ()),
        fail_on=FailOn(written.get("fail_on", FailOn.ERROR)),
        horovod=None if version is None else horovod_version(str(version)),
        baseline=None if baseline is None else path.parent / baseline,
        allow_no_job=written.get("allow_no_job", False),
    )


_KEYS: Final = ("select", "ignore", "fail_on", "horovod", "baseline", "allow_no_job")


def _problems(written: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in written.items():
        what, way_out = _wrong(key, value)
        if what:
            yield Problem(path=key, value=value, what=what, way_out=way_out)


def _wrong(key: str, value: Any) -> tuple[str, str]:
    """What is wrong with a value, and the way out; empty if nothing is."""
    match key:
        case "select" | "ignore":
            right = isinstance(value, list) and all(isinstance(name, str) for name in value)
            return ("", "") if right else ("is not a list of rules", "write it as [HE101, HE2]")
        case "fail_on":
            return ("", "") if value in tuple(FailOn) else ("is not a level", f"choose among {', '.join(FailOn)}")
        case "horovod":
            return _wrong_version(value)
        case "baseline":
            return ("", "") if isinstance(value, str) and value else ("is not the name of a file", "name one")
        case "allow_no_job":
            return ("", "") if isinstance(value, bool) else ("is neither true nor false", "write one of the two")
    return "is not a setting of the linter", f"choose among {', '.join(_KEYS)}"


def _wrong_version(value: Any) -> tuple[str, str]:
    try:
        horovod_version(str(value))
    except InvalidInputError as error:
        return error.problems[0].what, error.problems[0].way_out
    return "", ""
