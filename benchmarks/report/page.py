"""The page of a report: first all aims, then a section for each benchmark, with its tables, pictures and machine."""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.report.aim import Outcome
from benchmarks.report.programs import Program
from benchmarks.report.record import Record, Table

_TEMPLATE: Final = "page.html.jinja"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One benchmark on the page."""

    name: str
    record: Record | None
    """None: it has found nothing."""
    said: str
    """The end of its output."""


def write_page(sections: Sequence[Section], folder: Path, *, left_out: Sequence[Program] = ()) -> Path:
    """Write the page and a CSV file for each table into `folder`; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["svg"] = _inline
    records = [section.record for section in sections if section.record]
    for table in (table for record in records for table in record.tables):
        _write_csv(table, folder / f"{table.name}.csv")
    page = folder / "index.html"
    template = environment.get_template(_TEMPLATE)
    absent = [section.name for section in sections if section.record is None]
    said = {"verdict": verdict(records), "states": states(records)}
    page.write_text(template.render(sections=sections, left_out=left_out, absent=absent, **said))
    return page


def verdict(records: Iterable[Record]) -> str:
    """How many aims are met, as a sentence; empty if there are none."""
    counts = Counter(aim.outcome for record in records for aim in record.aims)
    parts = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    return f"Of {counts.total()} aims: {parts}." if counts else ""


def states(records: Iterable[Record]) -> str:
    """Of how many states of the product the figures are, as a sentence; empty if there are none."""
    counts = Counter(record.product for record in records)
    if len(counts) > 1:
        return f"They are of {len(counts)} states of the product: do not compare one section to another."
    return f"All are of one state of the product, {next(iter(counts))}." if counts else ""


def _inline(document: str) -> Markup:
    """An SVG document as part of a page: without what comes before its root."""
    return Markup(document[document.index("<svg") :])


def _write_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.title for column in table.columns])
        writer.writerows(table.rows)
