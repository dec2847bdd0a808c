"""Edits that add or remove flags of the launcher's command line. Text inside a shell script is left to a person."""

from hvd_elastic.mpijob.lint.document.manifest_edit import InsertItems, ManifestEdit, RemoveValue
from hvd_elastic.mpijob.lint.job.launcher_command_line import LauncherFlag
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob


def add_flag(job: LintedJob, *words: str) -> tuple[ManifestEdit, ...]:
    """Inserts a flag and its values right after the launcher's name. Empty if the name is not an item of a list."""
    command_line = job.command_line
    if command_line.shell_script is not None or not command_line.program_words:
        return ()
    *parent, index = command_line.program_words[-1].path
    return (InsertItems(tuple(parent), index + 1, words),) if isinstance(index, int) else ()


def remove_flag(job: LintedJob, flag: LauncherFlag) -> tuple[ManifestEdit, ...]:
    """Removes a flag and its values, from the last word to the first so that the remaining indexes stay valid."""
    if job.command_line.shell_script is not None:
        return ()
    paths = {flag.word.path, *(value.path for value in flag.values)}
    return tuple(RemoveValue(path) for path in sorted(paths, key=_index, reverse=True))


def _index(path: tuple[str | int, ...]) -> tuple[str, int]:
    """Sort key: `args` come after `command`, and later items after earlier ones."""
    *parent, index = path
    return str(parent), index if isinstance(index, int) else 0
