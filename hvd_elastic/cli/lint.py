"""`hvd-elastic lint`: the hazards of any MPIJob."""

import sys
from importlib.metadata import version
from pathlib import Path

import click

from hvd_elastic.cli.output import Format, Result, output_option, render, show
from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.mpijob.lint.document.manifest_reader import MAX_CHARACTERS
from hvd_elastic.mpijob.lint.fix import dump
from hvd_elastic.mpijob.lint.report import lint_report, rule_pages, sarif
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem


@click.command("lint", short_help="List the hazards of any MPIJob.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@output_option(Format.TEXT, Format.JSON, Format.SARIF, default=Format.TEXT, flag="--output")
@click.option(
    "--select", multiple=True, metavar="RULE", help="Check only these: an id (HE101), the start of one (HE1) or a name."
)
@click.option("--ignore", multiple=True, metavar="RULE", help="Do not check these rules. Wins over --select.")
@click.option("--fix", is_flag=True, help="Print the manifests with every safe fix, and report what is left on stderr.")
@click.option("--explain", metavar="RULE", help="Print a rule's page, and read no FILE. `all` prints every page.")
def command(
    files: tuple[str, ...],
    *,
    output: Format,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fix: bool,
    explain: str | None,
) -> None:
    """List the hazards of MPIJobs, hand-written or generated, in FILEs or on standard input (`-`, the default).

    All FILEs are read together, because the objects around a job matter too. No cluster is contacted. The exit code is
    1 if there are errors, and 2 if something could not be read.
    """
    if explain is not None:
        click.echo(
            rule_pages.explain_all() if explain == "all" else rule_pages.explain(lint.select_rules([explain])), nl=False
        )
        return
    rules = lint.select_rules(_names(select), _names(ignore))
    documents, problems = _read(files or ("-",))
    fixed: list[lint.Finding] = []
    if fix:
        _refuse_other_formats(output)
        documents, fixed = lint.fix(documents, rules)
    found = lint.check(documents, rules)
    if not found.jobs and not problems:
        problems = [
            Problem(
                path=", ".join(files or ("-",)), value="", what="holds no MPIJob", way_out="name the file that has one"
            )
        ]
    _show(found, problems, output, documents if fix and not problems else None)
    if fixed:
        click.echo(f"{len(fixed)} fixed", err=True)
    if problems:
        raise InvalidInputError(problems)
    if found.count(lint.Severity.ERROR):
        sys.exit(Exit.ERROR)


def _names(values: tuple[str, ...]) -> list[str]:
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def _refuse_other_formats(output: Format) -> None:
    if output is not Format.TEXT:
        raise click.UsageError("--fix prints manifests, so it cannot be used with -o")


def _read(files: tuple[str, ...]) -> tuple[list[lint.Document], list[Problem]]:
    documents: list[lint.Document] = []
    problems: list[Problem] = []
    for name in files:
        try:
            read, broken = lint.read(_text(name), name)
        except (OSError, UnicodeDecodeError) as error:
            read, broken = [], [_unreadable(name, error)]
        documents += read
        problems += broken
    return documents, problems


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.buffer.read(4 * MAX_CHARACTERS + 1).decode("utf-8-sig")
    with Path(name).open("rb") as file:
        return file.read(4 * MAX_CHARACTERS + 1).decode("utf-8-sig")


def _unreadable(name: str, error: OSError | UnicodeDecodeError) -> Problem:
    what = f"not UTF-8 at byte {error.start}" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
    return Problem(path=name, value="", what=what)


def _show(found: lint.LintReport, problems: list[Problem], output: Format, fixed: list[lint.Document] | None) -> None:
    report = Result(
        written={
            Format.TEXT: lambda: lint_report.text(found),
            Format.JSON: lambda: lint_report.as_json(found, problems),
            Format.SARIF: lambda: sarif.sarif(found, problems, version=version("hvd-elastic")),
        }
    )
    if fixed is None:
        show(report, output)
    else:
        click.echo(dump(fixed), nl=False)
        click.echo(render(report, output), nl=False, err=True)
    if output is Format.TEXT and found.jobs:
        click.echo(lint_report.summary(found), err=True)
