"""How a verb shows a result: a table for people, JSON or YAML for programs, names for pipes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Format(StrEnum):
    """Values of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    title: str
    key: str
    """Key of the row's mapping. Absent and None print as `-`."""
    right: bool = False
    """Align to the right: numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a verb has found, free of how it is shown."""

    rows: Sequence[Mapping[str, Any]]
    """Plain data, one mapping a row: what JSON and YAML show."""
    columns: Sequence[Column] = field(default_factory=tuple)
    """What the table shows of it."""
    name_key: str = "name"
    """Key of a row that `-o name` prints."""
    kind: str = ""
    """With it, `-o name` prints `KIND/NAME`, which kubectl takes."""
    single: bool = False
    """The result is one thing: JSON and YAML show it without a list around it."""


def output_option(*formats: Format, default: Format = Format.TABLE) -> Callable[[_Command], _Command]:
    """`-o/--format`, as parameter `output: Format`. All formats unless some are named.

    Not `--output`: that is a key of the job description.
    """
    choices = [value.value for value in (formats or tuple(Format))]
    return click.option(
        "-o",
        "--format",
        "output",
        type=click.Choice(choices),
        default=default.value,
        show_default=True,
        callback=lambda _context, _parameter, value: Format(value),
        help="How to show the result.",
    )


def render(result: Result, output: Format) -> str:
    """The text of a result, with its final newline; empty where there is nothing to print."""
    match output:
        case Format.JSON:
            return json.dumps(_plain(result), indent=2, ensure_ascii=False) + "\n"
        case Format.YAML:
            from hvd_elastic.mpijob.manifests.output.yaml_stream import dump

            return dump([_plain(result)])
        case Format.NAME:
            prefix = f"{result.kind}/" if result.kind else ""
            return "".join(f"{prefix}{row[result.name_key]}\n" for row in result.rows)
        case Format.TABLE:
            return table(result.rows, result.columns)


def show(result: Result, output: Format) -> None:
    """Print a result to stdout."""
    click.echo(render(result, output), nl=False)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Columns aligned by spaces, titles in capitals, as kubectl prints them."""
    cells = [[column.title.upper() for column in columns]]
    cells += [[_cell(row.get(column.key)) for column in columns] for row in rows]
    widths = [max(map(len, texts)) for texts in zip(*cells, strict=True)]
    lines = (
        _GAP.join(
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(texts, widths, columns, strict=True)
        ).rstrip()
        for texts in cells
    )
    return "".join(f"{line}\n" for line in lines)


_GAP: Final = "   "


def _cell(value: object) -> str:
    """Printable in one line, whatever it holds: a terminal is not to be steered by a name."""
    if value is None:
        return "-"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return "".join(character if character.isprintable() else "?" for character in text)


def _plain(result: Result) -> Any:
    return result.rows[0] if result.single and result.rows else list(result.rows)
