"""What a benchmark has found: tables, pictures and what became of its aims, and on what they were measured.

A benchmark prints each table as soon as it has it, and keeps all of them in `out/benchmarks/NAME.json`, from which
`benchmarks.report` makes a page.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.report.aim import Aim
from benchmarks.report.machine import product_digest, this_machine
from hvd_elastic.cli import output

FOLDER: Final = Path("out/benchmarks")

Value = str | float | int | None
"""What a cell holds. None: there is no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    title: str
    format: str = ""
    """How a figure is shown, as Python's `format()` takes it. Text is shown as it is."""

    def text(self, value: Value) -> str:
        """The value as a person reads it."""
        if value is None:
            return "-"
        return value if isinstance(value, str) else format(value, self.format)


def spread_columns(of: str, *, format: str) -> tuple[Column, ...]:  # noqa: A002  as of a column
    """Columns for `spread`; `of` says what of, with its unit."""
    return tuple(Column(title=f"{of}, {which}", format=format) for which in ("least", "median", "most"))


NEVER: Final = math.inf
"""Seconds until what did not come in the time that it was given."""


def figure(value: float) -> Value:
    """A figure as a cell holds it: in words if it never came."""
    return "never" if value == NEVER else value


def spread(values: Sequence[float]) -> tuple[Value, ...]:
    """The least, the median and the largest of some values, of which some may be NEVER; without any, no figures."""
    if not values:
        return None, None, None
    return figure(min(values)), figure(statistics.median(values)), figure(max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Figures, and what they are compared to, in one table."""

    name: str
    """Of the file that holds it as CSV."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    note: str = ""
    """What a reader must know beside the table: an aim that was missed, and why."""

    def texts(self) -> list[list[str]]:
        """The rows as a person reads them."""
        return [[column.text(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    def figures(self, column: str, *, rows: Collection[Value] | None = None) -> list[float]:
        """The figures of a column, of the rows whose first cells these are; None for all. Cells without are left out.

        Raises ValueError if there is no such column.
        """
        titles = [each.title for each in self.columns]
        if column not in titles:
            raise ValueError(f"there is no column {column!r}, only {titles}")
        number = titles.index(column)
        cells = [row[number] for row in self.rows if rows is None or row[0] in rows]
        return [float(cell) for cell in cells if isinstance(cell, int | float)]

    def __str__(self) -> str:
        columns = [
            output.Column(title=column.title, key=str(number), right=number > 0)
            for number, column in enumerate(self.columns)
        ]
        rows = [{str(number): text for number, text in enumerate(texts)} for texts in self.texts()]
        note = f"{self.note}\n" if self.note else ""
        return f"{self.title}\n\n{output.table(rows, columns)}{note}"


@dataclass(slots=True, kw_only=True)
class Record:
    """What one run of a benchmark has found."""

    name: str
    """Of the module."""
    question: str
    """That the figures answer."""
    options: Sequence[str] = field(default_factory=lambda: tuple(sys.argv[1:]))
    """With which it was run."""
    began: float = field(default_factory=time.time)
    """Unix seconds."""
    machine: str = field(default_factory=this_machine)
    """As it was when the benchmark began."""
    product: str = field(default_factory=product_digest)
    """Digest of the product's source."""
    tables: list[Table] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)
    """SVG documents by name."""
    aims: list[Aim] = field(default_factory=list)
    """What was promised of the figures."""

    @property
    def day(self) -> str:
        """On which the benchmark began."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.began))

    def add(self, table: Table) -> None:
        """Keep a table, and print it."""
        if not self.tables:
            print(self.machine)
        self.tables.append(table)
        print(f"\n{table}", flush=True)

    def promise(self, *aims: Aim) -> None:
        """Keep aims with what became of them, and print them."""
        self.aims += aims
        for aim in aims:
            print(f"{aim.outcome}: {aim.what}: {aim.found}, promised {aim.promised}", flush=True)

    def write(self, folder: Path = FOLDER) -> None:
        """Keep everything for the report, in place of the benchmark's last record."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record that `write` has written to `path`."""
        found: Mapping[str, Any] = json.loads(path.read_text())
        tables = [
            Table(**{**table, "columns": [Column(**column) for column in table["columns"]]})
            for table in found["tables"]
        ]
        aims = [Aim(**aim) for aim in found.get("aims", ())]
        return cls(**{"options": (), "product": "", **found, "tables": tables, "aims": aims})
