"""How figures grow with a size: by which factor each doubling multiplies them."""

import itertools
import math
from collections.abc import Collection

from benchmarks.report.record import Column, Table, Value


def growth(table: Table, *, name: str, of: Collection[str] | None = None) -> Table:
    """From each row of `table` to the next. Its first column is the size, in ascending order.

    Args:
        table: what was measured.
        name: of the result.
        of: titles of the columns that count; None for all but the first.
    """
    chosen = [number for number, column in enumerate(table.columns) if number and (of is None or column.title in of)]
    return Table(
        name=name,
        title=f"By how much that grows when the number of {table.columns[0].title} doubles",
        columns=(
            Column(title=table.columns[0].title),
            *(Column(title=table.columns[number].title, format=".2f") for number in chosen),
        ),
        rows=[
            [f"{smaller[0]} to {larger[0]}", *(_factor(smaller, larger, number) for number in chosen)]
            for smaller, larger in itertools.pairwise(list(row) for row in table.rows)
        ],
        note="2 is linear, 4 the square.",
    )


def _factor(smaller: list[Value], larger: list[Value], number: int) -> float | None:
    """The factor of one doubling, of as many as lie between the rows. None where a figure is missing or 0."""
    figures = (smaller[0], larger[0], smaller[number], larger[number])
    low, high, before, after = (figure if isinstance(figure, int | float) else 0.0 for figure in figures)
    if before <= 0 or after <= 0 or not 0 < low < high:
        return None
    return float((after / before) ** (1 / math.log2(high / low)))
