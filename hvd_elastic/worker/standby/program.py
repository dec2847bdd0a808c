"""A job's command as Python sees it: a script or module that a standby can run ahead, or something it cannot."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_WITH_VALUE: Final = "WX"
_PLAIN: Final = "bBdEhiIOPqRsSuvVx?"
"""Python's short options, with and without a value (`python --help`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A Python program: the interpreter's options, the script or module, and its arguments."""

    options: tuple[str, ...]
    """The interpreter's options, such as `-O` or `-W error`. The standby's interpreter gets them too."""

    target: str
    """Path of a script, or of a folder or archive with a `__main__`; or the name of a module."""

    is_module: bool
    arguments: tuple[str, ...]

    @property
    def finds_neighbours(self) -> bool:
        """Whether Python would put the script's folder (for a module the working directory) first on sys.path."""
        return not any(set("PI") & set(option) for option in self.options if option[:2] not in ("-W", "-X"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoProgram:
    """A command that no standby can run ahead."""

    reason: str


def read_program(argv: Sequence[str], environment: Mapping[str, str]) -> Program | NoProgram:
    """Return what `argv` runs. Files are looked up as execvp(3) does, with PATH of `environment`."""
    found = shutil.which(argv[0], path=environment.get("PATH"))
    if found is None:
        return NoProgram(reason=f"{argv[0]} is not found")
    if _is_ours(found):
        return read_python_arguments(argv[1:])
    interpreter = _shebang(found, environment)
    if interpreter is None:
        return NoProgram(reason=f"{found} is not a Python program")
    if not _is_ours(interpreter[0]):
        return NoProgram(reason=f"{interpreter[0]} is not the Python that hvd-elastic runs in, {sys.executable}")
    options = tuple(interpreter[1:])
    return Program(options=options, target=found, is_module=False, arguments=tuple(argv[1:]))


def _is_ours(path: str) -> bool:
    """Whether `path` is an interpreter of this Python environment: same folder, same executable."""
    same_folder = os.path.realpath(Path(path).parent) == os.path.realpath(Path(sys.executable).parent)
    return same_folder and os.path.realpath(path) == os.path.realpath(sys.executable)


def read_python_arguments(arguments: Sequence[str]) -> Program | NoProgram:
    """Return what `python ARGUMENTS` runs."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        letter = option[1:].lstrip(_PLAIN)[:1] if not option.startswith("--") else "-"
        attached = option[option.index(letter) + 1 :] if letter else ""
        if letter == "m" and (attached or rest):
            module = attached or rest.pop(0)
            flags = option[1 : option.index("m")]
            options += [f"-{flags}"] if flags else []
            return Program(options=tuple(options), target=module, is_module=True, arguments=tuple(rest))
        if letter and letter not in _WITH_VALUE:
            return NoProgram(reason=f"python {option} cannot be run ahead")
        options += [option] if attached or not letter or not rest else [option, rest.pop(0)]
    if not rest or rest[0] == "-":
        return NoProgram(reason="python is given no script")
    return Program(options=tuple(options), target=rest[0], is_module=False, arguments=tuple(rest[1:]))


def _shebang(path: str, environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the interpreter and its options from the first line of `path`, if that names a Python."""
    try:
        with Path(path).open("rb") as file:
            line = os.fsdecode(file.readline(4096))
    except OSError:
        return None
    words = line[2:].split() if line.startswith("#!") else []
    if len(words) > 1 and Path(words[0]).name == "env":
        words = [shutil.which(words[1], path=environment.get("PATH")) or words[1], *words[2:]]
    return tuple(words) if words and Path(words[0]).name.startswith("python") else None
