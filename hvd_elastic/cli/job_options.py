"""The flags of every verb that takes a job: each key of a job description is a flag, `workers.min` is `--workers-min`.

    @click.command(cls=JobCommand)
    @job_options
    def command(file: str | None, flags: Mapping[str, object]) -> None:
        job = job_from(file, flags)

The command line is `VERB [FILE] [FLAGS] [-- COMMAND...]`. Flags win over the file.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from hvd_elastic.mpijob.contract import ENV_NAMESPACE
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.keys import KEYS, Key, Shape, flag_of
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_Command = TypeVar("_Command", bound=Callable[..., Any])

_PREFIX: Final = "job_key__"
_COMMAND: Final = "hvd_elastic.command"
_FROM_STDIN: Final = "-"

_METAVARS: Final = {
    Shape.VALUE: "VALUE",
    Shape.SECTION: "SHORT",
    Shape.LIST: "VALUE",
    Shape.MAPPING: "KEY=VALUE",
    Shape.PAIR: "LOW HIGH",
}


class JobCommand(click.Command):
    """Keeps the words after `--` apart, so that `VERB -- python train.py` does not take `python` for FILE."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let click parse everything before `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line, with the command at its end."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


class _KeyOption(click.Option):
    """A flag whose help is the docstring under its field, which is read only for `--help`."""

    def __init__(self, key: Key) -> None:
        self.key = key
        switch, flag = key.shape is Shape.SWITCH, flag_of(key.path)
        super().__init__(
            [f"{flag}/--no-{flag[2:]}" if switch else flag, _PREFIX + key.path.replace(".", "__")],
            default=None,
            multiple=key.shape in {Shape.LIST, Shape.MAPPING},
            nargs=2 if key.shape is Shape.PAIR else 1,
            metavar=_METAVARS.get(key.shape),
            type=None if switch else click.UNPROCESSED,
        )

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Flag and help, as click lists them."""
        self.help = self.key.help
        if self.key.section is not None:
            self.help += f" {self.key.section.short_form}."
        return super().get_help_record(ctx)


def _has_flag(key: Key) -> bool:
    """All keys have a flag but the command, which comes after `--`, trees, and sections without a short form."""
    is_written_in_a_file = key.shape is Shape.TREE or (key.section is not None and key.section.short_form is None)
    return key.path != "command" and not is_written_in_a_file


def job_options(function: _Command) -> _Command:
    """Give a verb `[FILE]` and a flag for every key. Its function gets `file` and `flags`, for `job_from`."""

    @functools.wraps(function)
    def with_flags(**parameters: Any) -> Any:
        given = {name: parameters.pop(name) for name in list(parameters) if name.startswith(_PREFIX)}
        flags: dict[str, object] = {
            key.path: value
            for key in KEYS.values()
            if (value := given.get(_PREFIX + key.path.replace(".", "__"))) is not None and value != ()
        }
        if command := click.get_current_context().meta.get(_COMMAND):
            flags["command"] = command
        return function(flags=flags, **parameters)

    # As click.option() and click.argument() do, last first. wraps() has copied what decorators below have declared.
    declared = with_flags.__dict__.setdefault("__click_params__", [])
    declared += [_KeyOption(key) for key in reversed(KEYS.values()) if _has_flag(key)]
    declared.append(click.Argument(["file"], required=False, type=click.UNPROCESSED))
    return cast("_Command", with_flags)


def job_from(
    file: str | None,
    flags: Mapping[str, object],
    *,
    defaults: Mapping[str, object] | None = None,
    also: Callable[[JobSpec], Iterable[Problem]] | None = None,
) -> JobSpec:
    """The job of FILE (`-`: standard input). Flags win over the file, and the file wins over `defaults` (dotted paths).

    `also` finds further problems: those of the place where the job is to run.

    Raises InvalidInputError with every problem of file, flags and `also`.
    """
    source, values, problems = job_input(file, flags)
    try:
        job = read_job(source, values, defaults=defaults, also=also)
    except InvalidInputError as error:
        raise InvalidInputError([*problems, *error.problems]) from None
    if problems:
        raise InvalidInputError(problems)
    return job


def job_input(
    file: str | None, flags: Mapping[str, object]
) -> tuple[str | Path | None, dict[str, object], list[Problem]]:
    """FILE and flags as `read_job` takes them, and what is wrong with the flags. Reads standard input for `-`."""
    values, problems = _values(flags)
    if file == _FROM_STDIN:
        return sys.stdin.read(), values, problems
    return Path(file) if file else None, values, problems


def only_in(namespace: str | None) -> Callable[[JobSpec], Iterator[Problem]]:
    """A check for `job_from`: the job's own namespace must be that of `-n`, if it is given."""

    def check(spec: JobSpec) -> Iterator[Problem]:
        if namespace and spec.namespace != namespace:
            yield Problem(
                path="namespace",
                value=spec.namespace,
                what=f"is not {namespace!r}, which -n or {ENV_NAMESPACE} names",
                way_out="leave one of them out",
            )

    return check


def _values(flags: Mapping[str, object]) -> tuple[dict[str, object], list[Problem]]:
    """The flags' values as the reader takes them: repeated flags as lists, `KEY=VALUE` as mappings."""
    values: dict[str, object] = {}
    problems: list[Problem] = []
    for path, value in flags.items():
        if KEYS[path].shape is Shape.MAPPING and isinstance(value, tuple):
            values[path], wrong = _mapping(path, value)
            problems += wrong
        else:
            values[path] = list(value) if isinstance(value, tuple) else value
    return values, problems


def _mapping(path: str, words: tuple[str, ...]) -> tuple[dict[str, str], list[Problem]]:
    pairs = [word.partition("=") for word in words]
    problems = [
        Problem(path=flag_of(path), value=key, what="has no '='", way_out=f"write {flag_of(path)} KEY=VALUE")
        for key, equals, _ in pairs
        if not equals
    ]
    return {key: value for key, equals, value in pairs if equals}, problems
