"""Edits of the launcher's argument list. Words inside a shell script are left to a person."""

from hvd_elastic.mpijob.lint.document.edit import Edit, Insert, Remove, Set
from hvd_elastic.mpijob.lint.model.horovodrun_flags import Flag
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob


def add_flag(job: LintedJob, *words: str) -> tuple[Edit, ...]:
    """Puts an option right after the launcher's name; nothing where that is not an element of a list of its own."""
    call = job.call
    if call.script is not None or not call.head:
        return ()
    *parent, index = call.head[-1].path
    return (Insert(tuple(parent), index + 1, words),) if isinstance(index, int) else ()


def drop_flag(job: LintedJob, flag: Flag) -> tuple[Edit, ...]:
    """Takes an option and its values out, the last word first so that the indexes before it stay right."""
    if job.call.script is not None:
        return ()
    paths = {flag.word.path, *(value.path for value in flag.values)}
    return tuple(Remove(path) for path in sorted(paths, key=_index, reverse=True))


def set_value(job: LintedJob, flag: Flag, value: str) -> tuple[Edit, ...]:
    """Gives an option another value."""
    if job.call.script is not None or not flag.values:
        return ()
    _, equals, _ = flag.word.text.partition("=")
    text = f"{flag.word.text.partition('=')[0]}={value}" if equals else value
    return (Set(flag.values[0].path, text),)


def _index(path: tuple[str | int, ...]) -> tuple[str, int]:
    """Order within the pod: `args` come after `command`, and both are removed from the back."""
    *parent, index = path
    return str(parent), index if isinstance(index, int) else 0
