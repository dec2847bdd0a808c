"""The lines of a trace as fields, and what is wrong with them, by file and line."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_MOST_SHOWN: Final = 20
"""A file of another kind is wrong in each of its lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One line."""

    line: int
    """Counted from 1, as editors do."""
    fields: tuple[str, ...]


class RowReader:
    """Reads fields of rows, and keeps what is wrong with them until `check`."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._problems: list[Problem] = []

    def rows(self, lines: Iterable[tuple[int, str]], columns: Sequence[str]) -> Iterator[TraceRow]:
        """The rows that have so many fields. Lines are split at commas, and empty lines left out."""
        for number, text in lines:
            if not text.strip():
                continue
            row = TraceRow(line=number, fields=tuple(field.strip() for field in text.split(",")))
            if len(row.fields) == len(columns):
                yield row
            else:
                self.wrong(row.line, text.strip(), f"has {len(row.fields)} fields", f"write {', '.join(columns)}")

    def number(self, row: TraceRow, place: int, what: str) -> float | None:
        """A number from 0 on; None if it is none."""
        try:
            value = float(row.fields[place])
        except ValueError:
            value = math.nan
        if 0 <= value < math.inf:
            return value
        self.wrong(row.line, row.fields[place], f"is not a {what} from 0 on")
        return None

    def count(self, row: TraceRow, place: int, what: str) -> int | None:
        """A whole number from 0 on; None if it is none."""
        value = self.number(row, place, what)
        if value is None or value == int(value):
            return None if value is None else int(value)
        self.wrong(row.line, row.fields[place], f"is not a whole {what}")
        return None

    def wrong(self, line: int, value: object, what: str, way_out: str = "") -> None:
        """Note a problem of a line."""
        self._problems.append(Problem(path=f"{self.file}:{line}", value=value, what=what, way_out=way_out))

    def check(self) -> None:
        """Raise InvalidInputError with the problems of all lines, or with the first of very many."""
        if not self._problems:
            return
        shown, left = self._problems[:_MOST_SHOWN], len(self._problems) - _MOST_SHOWN
        more = [Problem(path=self.file, value=..., what=f"{left} more lines are wrong")] if left > 0 else []
        raise InvalidInputError([*shown, *more])
