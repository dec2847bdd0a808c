"""A CSV file that a user gives: rows by the names of their columns, and what is wrong with them by file and line."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.plain_words import count_words

MOST_COUNTED: Final = 100_000
"""Of nodes, GPUs or workers. Kubernetes is made for 5,000 nodes."""
_MOST_SHOWN: Final = 20
"""A file of another kind is wrong in each of its lines."""


class CsvTable:
    """Reads rows, and keeps what is wrong with them until `check`."""

    def __init__(self, path: Path, text: str) -> None:
        """Raises InvalidInputError for what is not CSV."""
        self.path = path
        reader = csv.reader(text.splitlines(), skipinitialspace=True)
        try:
            lines = [(reader.line_num, [field.strip() for field in row]) for row in reader if row]
        except csv.Error as error:
            problem = Problem(path=f"{path}:{reader.line_num}", value=..., what=f"is not CSV: {error}")
            raise InvalidInputError([problem]) from error
        self._line, self.columns = lines[0] if lines else (1, [])
        self._rows = lines[1:]
        self._problems: list[Problem] = []

    def rows(self) -> Iterator[dict[str, str]]:
        """The rows with as many fields as there are columns, by their names. Empty lines are left out."""
        for self._line, row in self._rows:
            if len(row) == len(self.columns):
                yield dict(zip(self.columns, row, strict=True))
            else:
                self.wrong(",".join(row), f"has {count_words(len(row), 'field')}", f"write {', '.join(self.columns)}")

    def number(self, text: str, what: str, *, least: int = 0) -> float | None:
        """None for what is not a number from `least` on, which is noted."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if least <= value < math.inf:
            return value
        self.wrong(text, f"is not a {what} from {least} on")
        return None

    def count(self, text: str, what: str, *, least: int = 0) -> int | None:
        """None for what is not a whole number from `least` to MOST_COUNTED, which is noted."""
        value = self.number(text, what, least=least)
        if value is None or (value <= MOST_COUNTED and value == int(value)):
            return None if value is None else int(value)
        self.wrong(text, f"is not a whole {what} up to {MOST_COUNTED}")
        return None

    def wrong(self, value: object, what: str, way_out: str = "") -> None:
        """Note a problem of the present line."""
        self._problems.append(Problem(path=f"{self.path}:{self._line}", value=value, what=what, way_out=way_out))

    def check(self) -> None:
        """Raise InvalidInputError with the problems of all lines, or with the first of very many."""
        if not self._problems:
            return
        shown, left = self._problems[:_MOST_SHOWN], len(self._problems) - _MOST_SHOWN
        what = f"is wrong in {count_words(left, 'more line')}"
        more = [Problem(path=str(self.path), value=..., what=what)] if left > 0 else []
        raise InvalidInputError([*shown, *more])


def text_of(path: Path) -> str:
    """Raises InvalidInputError for a file that cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInputError([Problem(path=str(path), value=..., what=f"cannot be read: {reason}")]) from error
