"""One call of a cloud's tool, and a script of many."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

_WIDTH = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A program to run. It is never passed to a shell, except as a line of a script, where each word is quoted."""

    purpose: str
    """Why, in a few words."""
    argv: tuple[str, ...]
    stdin: str | None = None
    """What the program reads, if it reads something."""

    def line(self) -> str:
        """The step as a line of a POSIX shell, folded where it is long; with a here-document for what it reads."""
        words = [shlex.quote(word) for word in self.argv]
        text = _folded(words)
        if self.stdin is None:
            return text
        return f"{text} <<'END_OF_INPUT'\n{self.stdin.rstrip()}\nEND_OF_INPUT"


def script(steps: Iterable[Step], *, title: str, confirm: str | None = None, first: Iterable[Step] = ()) -> str:
    """A POSIX script that ends at the first failure.

    `first` is run, then the script asks for the word `confirm` and ends unless it is typed. None: it does not ask.
    """
    parts = ["#!/bin/sh", f"# {title}", "set -eu", ""]
    for step in first:
        parts += [f"# {step.purpose}", step.line(), ""]
    if confirm is not None:
        parts += [
            f"printf '%s' {shlex.quote(f'Type {confirm} to delete this cluster: ')}",
            "read -r answer",
            f'[ "$answer" = {shlex.quote(confirm)} ] || exit 1',
            "",
        ]
    for step in steps:
        parts += [f"# {step.purpose}", step.line(), ""]
    return "\n".join(parts)


def _folded(words: list[str]) -> str:
    lines, current = [], ""
    for word in words:
        if current and len(current) + len(word) + 1 > _WIDTH:
            lines.append(current)
            current = f"    {word}"
        else:
            current = f"{current} {word}" if current else word
    return " \\\n".join([*lines, current])
