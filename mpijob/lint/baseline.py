"""The findings that are known already: a file of them, and what is new beside it.

An entry names file, job, rule and place, the place without the indexes of lists, because an item that is added moves
them. Entries that are alike are counted: one more than the file says is new.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from hvd_elastic.mpijob.lint.check import LintReport
from hvd_elastic.mpijob.lint.document.manifest_view import json_path
from hvd_elastic.mpijob.lint.rule import Finding
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_VERSION: Final = 1


class KnownFinding(NamedTuple):
    """What a finding is recognised by. Neither lines nor values are in it, so other changes do not make it new."""

    file: str
    """Relative to the baseline's folder, with `/`; `-` is standard input."""
    job: str
    """NAMESPACE/NAME."""
    rule: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The known findings, and how often each was found."""

    folder: Path
    """The folder of the baseline's file."""
    known: Mapping[KnownFinding, int] = field(default_factory=dict)

    @classmethod
    def of(cls, findings: Sequence[Finding], folder: Path) -> "Baseline":
        """The baseline that makes these findings known."""
        return cls(folder=folder, known=Counter(_key(finding, folder) for finding in findings))

    def without_known(self, report: LintReport) -> LintReport:
        """The report with the known findings apart."""
        left = Counter(self.known)
        new: list[Finding] = []
        known: list[Finding] = []
        for finding in report.findings:
            key = _key(finding, self.folder)
            (known if left[key] > 0 else new).append(finding)
            left[key] -= 1
        return replace(report, findings=tuple(new), known=tuple(known))

    def stale(self, report: LintReport) -> int:
        """How many known findings are found no more in a report that this baseline has divided."""
        return sum(self.known.values()) - len(report.known)

    def text(self) -> str:
        """What the file holds, sorted so that its changes are easy to review."""
        rows = [{**key._asdict(), "count": count} for key, count in sorted(self.known.items())]
        return json.dumps({"version": _VERSION, "findings": rows}, indent=2, ensure_ascii=False) + "\n"


def read_baseline(path: Path) -> Baseline:
    """Reads a baseline's file. Raises InvalidInputError with everything that is wrong with it."""
    way_out = "write it again with --write-baseline"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InvalidInputError([Problem(path=str(path), value=..., what=f"{reason}", way_out=way_out)]) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError([Problem(path=str(path), value=..., what=f"not JSON: {error}", way_out=way_out)]) from (
            error
        )
    version = content.get("version") if isinstance(content, dict) else None
    rows = content.get("findings") if isinstance(content, dict) else None
    if version != _VERSION or not isinstance(rows, list):
        what = f"not a baseline of version {_VERSION}"
        raise InvalidInputError([Problem(path=str(path), value=version, what=what, way_out=way_out)])
    wrong = [
        Problem(path=f"{path}: findings[{index}]", value=row, what="not a known finding", way_out=way_out)
        for index, row in enumerate(rows)
        if not _is_row(row)
    ]
    if wrong:
        raise InvalidInputError(wrong)
    known = {KnownFinding(*(row[name] for name in KnownFinding._fields)): row["count"] for row in rows}
    return Baseline(folder=path.parent, known=known)


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in KnownFinding._fields)
        and type(row.get("count")) is int
        and row["count"] > 0
    )


def _key(finding: Finding, folder: Path) -> KnownFinding:
    steps = tuple(step for step in finding.violation.path if isinstance(step, str))
    job = f"{finding.job.namespace}/{finding.job.name}"
    return KnownFinding(_relative(finding.document.source, folder), job, finding.rule.id, json_path(steps))


def _relative(source: str, folder: Path) -> str:
    return source if source == "-" else Path(os.path.relpath(source, folder)).as_posix()
