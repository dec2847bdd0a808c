"""Edits that add or remove flags of the launcher's command line. Text inside a shell script is left to a person."""

from dataclasses import dataclass

from hvd_elastic.mpijob.lint.document.manifest_edit import InsertItems, ManifestEdit, RemoveValue
from hvd_elastic.mpijob.lint.job.horovod_version import SINCE
from hvd_elastic.mpijob.lint.job.launcher_command_line import LauncherFlag
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob


@dataclass(frozen=True, slots=True)
class FlagAddition:
    """The edits that add a flag, and what they take for granted."""

    edits: tuple[ManifestEdit, ...] = ()
    assumes: str = ""
    """What must hold of the image, if the manifest does not tell: `Horovod 0.24.0 or later`."""


def lacks_flag(job: LintedJob, name: str) -> bool:
    """Whether the job's Horovod is known, and older than the option."""
    return job.horovod is not None and name in SINCE and job.horovod < SINCE[name]


def add_flag(job: LintedJob, *words: str) -> FlagAddition:
    """Inserts a flag and its values right after the launcher's name.

    There are no edits if the name is not an item of a list, or if the job's Horovod would refuse the flag.
    """
    command_line = job.command_line
    if command_line.shell_script is not None or not command_line.program_words or lacks_flag(job, words[0]):
        return FlagAddition()
    *parent, index = command_line.program_words[-1].path
    if not isinstance(index, int):
        return FlagAddition()
    unsure = job.horovod is None and words[0] in SINCE
    assumes = f"Horovod {SINCE[words[0]]} or later in the image" if unsure else ""
    return FlagAddition((InsertItems(tuple(parent), index + 1, words),), assumes)


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
