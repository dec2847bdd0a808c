"""How a verb shows its result: a table for people, JSON or YAML for programs, names for pipes.

A verb declares its formats with `output_option`, puts what it found into a `Result`, and calls `show`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

import click

from hvd_elastic.system.plain_words import printable, printable_json

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Format(StrEnum):
    """The values of `-o`. Each verb has some of them."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    TEXT = "text"
    SARIF = "sarif"
    CSV = "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    title: str
    key: str
    """Key of the value in a row. A value that is absent or None prints as `-`."""
    right: bool = False
    """Whether to align to the right, for numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a verb has found, independent of the format in which it is shown. A verb fills in what its formats need."""

    rows: Sequence[Mapping[str, Any]] = ()
    """What the table shows: one mapping of plain data per row."""
    columns: Sequence[Column] = ()
    """The columns of the table."""
    data: Any = None
    """What JSON shows. None: a list of the rows."""
    documents: Sequence[Any] | None = None
    """The YAML documents. None: one document, with what JSON shows."""
    names: Sequence[str] = ()
    """What `-o name` prints, one per line: `KIND/NAME`, which kubectl takes."""
    written: Mapping[Format, Callable[[], str]] = field(default_factory=dict)
    """Formats that the verb's own library writes. Each is called only if it is asked for."""


def output_option(
    *formats: Format, default: Format = Format.TABLE, flag: str = "--format"
) -> Callable[[_Command], _Command]:
    """`-o` with these formats, as the parameter `output: Format` of the verb.

    `flag` is the long name. Verbs that take a job have `--format`, because `output` is a key of the job description.
    """
    return click.option(
        "-o",
        flag,
        "output",
        type=click.Choice([value.value for value in formats]),
        default=default.value,
        show_default=True,
        callback=lambda _context, _parameter, value: Format(value),
        help="How to show the result.",
    )


def of_manifests(
    manifests: Sequence[Mapping[str, Any]],
    *,
    rows: Sequence[Mapping[str, Any]] = (),
    columns: Sequence[Column] = (),
) -> Result:
    """Kubernetes manifests in the forms that kubectl reads: a `List` as JSON, a stream as YAML, `KIND.GROUP/NAME`."""
    return Result(
        rows=rows,
        columns=columns,
        data={"apiVersion": "v1", "kind": "List", "items": list(manifests)},
        documents=manifests,
        names=[_kubectl_name(manifest) for manifest in manifests],
    )


def say(sentence: str) -> None:
    """Tell people one sentence beside the result, on stderr."""
    click.echo(printable(sentence), err=True)


def show(result: Result, output: Format) -> None:
    """Print a result to stdout."""
    click.echo(render(result, output), nl=False)


def render(result: Result, output: Format) -> str:
    """The text of a result with its final newline; empty if there is nothing to print."""
    if output in result.written:
        return result.written[output]()
    data = list(result.rows) if result.data is None else result.data
    match output:
        case Format.TABLE:
            return table(result.rows, result.columns)
        case Format.JSON:
            return f"{printable_json(data, indent=2)}\n"
        case Format.YAML:
            from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump

            return dump([data] if result.documents is None else result.documents)
        case Format.NAME:
            return "".join(f"{printable(name)}\n" for name in result.names)
        case _:
            raise ValueError(f"this result cannot be shown as {output}")


_GAP: Final = 3
"""Spaces between two columns, as kubectl prints them."""


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Columns aligned by spaces, titles in capitals, as kubectl prints them.

    A table is as wide as its content: a line that is cut or wrapped cannot be parsed. rich would take ten times as
    long for a thousand rows, and is asked only how wide a character is.
    """
    from rich.cells import cell_len

    titles = [column.title.upper() for column in columns]
    lines = [titles, *([_cell(row.get(column.key)) for column in columns] for row in rows)]
    widths = [max(map(cell_len, texts)) for texts in zip(*lines, strict=True)]

    def aligned(text: str, column: Column, width: int) -> str:
        missing = " " * (width - cell_len(text))
        return missing + text if column.right else text + missing

    return "".join(f"{(' ' * _GAP).join(map(aligned, texts, columns, widths)).rstrip()}\n" for texts in lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return printable(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _kubectl_name(manifest: Mapping[str, Any]) -> str:
    """`KIND.GROUP/NAME`, as kubectl prints it."""
    group = manifest["apiVersion"].rpartition("/")[0]
    kind = manifest["kind"].lower()
    name = manifest["metadata"]["name"]
    return f"{kind}.{group}/{name}" if group else f"{kind}/{name}"
