"""`hvd-elastic lint`: the hazards of any MPIJob."""

import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import click

from hvd_elastic.cli.output import Format, Result, output_option, render, say, show
from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.mpijob.lint.baseline import Baseline, read_baseline
from hvd_elastic.mpijob.lint.fix import dump
from hvd_elastic.mpijob.lint.job.horovod_version import horovod_version
from hvd_elastic.mpijob.lint.lint_input import LintInput, read_input
from hvd_elastic.mpijob.lint.lint_settings import SETTINGS_FILE, FailOn, LintSettings, read_settings
from hvd_elastic.mpijob.lint.report import lint_report, rule_pages, sarif
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.mpijob.yaml_input.yaml_composer import MAX_CHARACTERS
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.plain_words import count_words


@click.command("lint", short_help="List the hazards of any MPIJob.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@output_option(Format.TEXT, Format.JSON, Format.SARIF, default=Format.TEXT, flag="--output")
@click.option(
    "--select", multiple=True, metavar="RULE", help="Check only these: an id (HE101), the start of one (HE1) or a name."
)
@click.option("--ignore", multiple=True, metavar="RULE", help="Do not check these rules. Wins over --select.")
@click.option(
    "--fail-on",
    type=click.Choice([level.value for level in FailOn]),
    help="Exit with 1 if there is a finding of this severity or a worse one.  [default: error]",
)
@click.option(
    "--horovod",
    metavar="VERSION",
    help="The Horovod of the images, where their names do not tell it: 0.28.1+hvdelastic.2.",
)
@click.option(
    "--baseline", type=click.Path(path_type=Path), metavar="FILE", help="Known findings, which are not told again."
)
@click.option("--write-baseline", is_flag=True, help="Write all findings into the baseline's FILE, and exit with 0.")
@click.option("--allow-no-job", is_flag=True, help="No FILE need hold an MPIJob, or even be a manifest.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Settings for these options.  [default: {SETTINGS_FILE} in this folder, if it is there]",
)
@click.option("--errors", is_flag=True, help="Only the errors, in a line each without why and fix.")
@click.option("--fix", is_flag=True, help="Print the manifests with every safe fix, and report what is left on stderr.")
@click.option("--explain", metavar="RULE", help="Print a rule's page, and read no FILE. `all` prints every page.")
def command(
    files: tuple[str, ...],
    *,
    output: Format,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str | None,
    horovod: str | None,
    baseline: Path | None,
    write_baseline: bool,
    allow_no_job: bool,
    config: Path | None,
    errors: bool,
    fix: bool,
    explain: str | None,
) -> None:
    """List the hazards of MPIJobs, hand-written or generated, in FILEs or on standard input (`-`, the default).

    All FILEs are read together, because the objects around a job matter too. A FILE that is a job description is
    checked as one. No cluster is contacted. The exit code is 1 if there are errors, and 2 if something could not be
    read or a job description has problems.
    """
    if explain is not None:
        click.echo(
            rule_pages.explain_all() if explain == "all" else rule_pages.explain(lint.select_rules([explain])), nl=False
        )
        return
    given = _settings(config)
    settings = replace(
        given,
        select=tuple(_names(select)) or given.select,
        ignore=(*_names(ignore), *given.ignore),
        fail_on=FailOn(fail_on) if fail_on else given.fail_on,
        horovod=horovod_version(horovod) if horovod else given.horovod,
        baseline=baseline or given.baseline,
        allow_no_job=allow_no_job or given.allow_no_job,
    )
    if fix and (output is not Format.TEXT or write_baseline):
        raise click.UsageError("--fix prints manifests, so it cannot be used with -o or --write-baseline")
    if write_baseline and settings.baseline is None:
        raise click.UsageError("--write-baseline needs --baseline FILE")
    _lint(files or ("-",), settings, output, errors=errors, fix=fix, write_baseline=write_baseline)


def _settings(config: Path | None) -> LintSettings:
    default = Path(SETTINGS_FILE)
    if config is None and not default.is_file():
        return LintSettings()
    return read_settings(config or default)


def _lint(
    files: tuple[str, ...], settings: LintSettings, output: Format, *, errors: bool, fix: bool, write_baseline: bool
) -> None:
    rules = lint.select_rules(settings.select, settings.ignore)
    inputs = [_read(name) for name in files]
    documents = [document for one in inputs for document in one.documents]
    problems = _problems(inputs, settings)
    fixed: list[lint.Finding] = []
    if fix and not problems:
        documents, fixed = lint.fix(documents, rules, horovod=settings.horovod)
    found = lint.check(documents, rules, horovod=settings.horovod)
    descriptions = sum(one.descriptions for one in inputs)
    if not (found.jobs or descriptions or problems or len(files) > 1 or settings.allow_no_job):
        way_out = "name the file that has one, or add --allow-no-job"
        what = f"holds no MPIJob and no job description{f', but {inputs[0].kinds}' if inputs[0].kinds else ''}"
        problems = [Problem(path=files[0], value=..., what=what, way_out=way_out)]
    if write_baseline and settings.baseline and not problems:
        _write(Baseline.of(found.findings, settings.baseline.parent), settings.baseline)
        return
    if settings.baseline:
        known = read_baseline(settings.baseline)
        found = known.without_known(found)
        if stale := known.stale(found):
            say(f"{stale} of {settings.baseline} no longer found: --write-baseline removes them")
    if fix and not problems:
        click.echo(dump(documents), nl=False)
    _show(found, problems, output, errors=errors, beside_manifests=fix)
    if output is Format.TEXT and descriptions:
        say(f"{count_words(descriptions, 'job description')} without problems")
    _show_fixed(fixed)
    if problems:
        raise InvalidInputError(problems)
    if any(settings.fail_on.fails(finding.rule.severity) for finding in found.findings):
        sys.exit(Exit.ERROR)


def _problems(inputs: list[LintInput], settings: LintSettings) -> list[Problem]:
    """What could not be read, without what need not be, which is said."""
    passed_over = [one for one in inputs if settings.allow_no_job and not one.mentions_job]
    for problem in (problem for one in passed_over for problem in one.problems):
        say(f"passed over, because it names no MPIJob: {problem}")
    return [problem for one in inputs if one not in passed_over for problem in one.problems]


def _names(values: tuple[str, ...]) -> list[str]:
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def _read(name: str) -> LintInput:
    try:
        return read_input(_text(name), name)
    except (OSError, UnicodeDecodeError) as error:
        return LintInput(problems=(_unreadable(name, error),))


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.buffer.read(4 * MAX_CHARACTERS + 1).decode("utf-8-sig")
    with Path(name).open("rb") as file:
        return file.read(4 * MAX_CHARACTERS + 1).decode("utf-8-sig")


def _unreadable(name: str, error: OSError | UnicodeDecodeError) -> Problem:
    if isinstance(error, UnicodeDecodeError):
        return Problem(path=name, value=..., what=f"not UTF-8 at byte {error.start}", way_out="save it as UTF-8")
    return Problem(path=name, value="", what=error.strerror or str(error))


def _write(baseline: Baseline, path: Path) -> None:
    try:
        path.write_text(baseline.text(), encoding="utf-8")
    except OSError as error:
        raise InvalidInputError([Problem(path=str(path), value=..., what=error.strerror or str(error))]) from error
    say(f"known from now on: {count_words(sum(baseline.known.values()), 'finding')}, in {path}")


def _show(
    found: lint.LintReport, problems: list[Problem], output: Format, *, errors: bool, beside_manifests: bool
) -> None:
    """`beside_manifests`: stdout is for the manifests of `--fix` alone, also when there are none."""
    shown = replace(found, findings=found.errors) if errors else found
    report = Result(
        written={
            Format.TEXT: lambda: lint_report.short(shown) if errors else lint_report.text(shown),
            Format.JSON: lambda: lint_report.as_json(shown, problems),
            Format.SARIF: lambda: sarif.sarif(shown, problems, version=version("hvd-elastic")),
        }
    )
    if beside_manifests:
        click.echo(render(report, output), nl=False, err=True)
    else:
        show(report, output)
    if output is Format.TEXT and found.jobs:
        click.echo(lint_report.summary(found), err=True)


def _show_fixed(fixed: list[lint.Finding]) -> None:
    for finding in fixed:
        if finding.violation.assumes:
            assumes = f"assumes {finding.violation.assumes}; name it with --horovod VERSION"
            say(f"{finding.rule.id} of {finding.job.name}: the fix {assumes}")
    if fixed:
        say(f"{len(fixed)} fixed")
