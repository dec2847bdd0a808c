"""What a container really runs: command and args joined, variables filled in, shells and wrappers taken off."""

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.mpijob.lint.document.view import Path

SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh"))
MAX_SHELLS: Final = 5
"""Shells within shells that are followed."""

_KUBERNETES_VARIABLE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_SHELL_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_OPERATOR: Final = re.compile(r"[;&|\n]+")
_REDIRECTION: Final = re.compile(r"[;&|\n<>]*[<>][;&|\n<>]*")
_COMMENT: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_DESCRIPTOR: Final = re.compile(r"(?<=\s)[0-9](?=[<>])")
"""`2` of `2>&1`."""
_CONTINUATION: Final = re.compile(r"\\\r?\n")

_WRAPPERS: Final[Mapping[str, frozenset[str]]] = {
    "exec": frozenset(("-a",)),
    "command": frozenset(),
    "env": frozenset(("-u", "--unset", "-C", "--chdir")),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "time": frozenset(("-f", "-o")),
    "stdbuf": frozenset(("-i", "-o", "-e")),
    "nice": frozenset(("-n", "--adjustment")),
    "ionice": frozenset(("-c", "-n")),
    "timeout": frozenset(("-s", "--signal", "-k", "--kill-after")),
    "tini": frozenset(("-e", "-p")),
    "dumb-init": frozenset(("-r", "--rewrite")),
    "catchsegv": frozenset(),
    "sudo": frozenset(("-u", "-g")),
    "numactl": frozenset(("-N", "-m", "-C")),
    "if": frozenset(),
    "then": frozenset(),
    "!": frozenset(),
}
"""Programs that run the rest of their arguments, with those of their options that take a value."""
_OPERANDS: Final = {"timeout": 1}
"""Arguments of a wrapper that stand before the command."""


@dataclass(frozen=True, slots=True)
class ShellWord:
    """One argument, and the element of `command` or `args` that it was read from."""

    text: str
    path: Path

    @property
    def program(self) -> str:
        """The file name, if this is a program."""
        return posixpath.basename(self.text)


@dataclass(frozen=True, slots=True)
class ShellStep:
    """A simple command of a shell script, and the operator after it (`""` at the script's end)."""

    words: tuple[ShellWord, ...]
    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """What `sh -c` was given."""

    text: str
    path: Path
    options: tuple[str, ...]
    """The shell's own: `-c`, `-euo`, `pipefail`."""
    steps: tuple[ShellStep, ...]

    @property
    def pipefail(self) -> bool:
        """Whether a pipe fails with any of its commands."""
        return "pipefail" in self.options or bool(re.search(r"\bset\s+[-\w ]*\bpipefail\b", self.text))

    @property
    def stops_on_error(self) -> bool:
        """Whether `-e` is set, by an option or by `set`."""
        flags = [option for option in self.options if re.fullmatch(r"-[a-z]*e[a-z]*", option)]
        return bool(flags) or bool(re.search(r"\bset\s+-[a-z]*e", self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program's arguments after all wrapping is taken off."""

    words: tuple[ShellWord, ...] = ()
    script: ShellScript | None = None
    """The innermost shell script that holds the words."""
    step: int = 0
    """Index of the words' step in that script."""
    assignments: Mapping[str, str]
    """Variables set before the command, as in `A=1 env B=2 program`."""
    replaces_shell: bool = False
    """`exec` stands before it."""

    @property
    def program(self) -> str:
        """File name of the program; empty where nothing is run."""
        return self.words[0].program if self.words else ""


def expand(words: Sequence[ShellWord], environment: Mapping[str, str]) -> tuple[ShellWord, ...]:
    """Fills in `$(VAR)` as the kubelet does: an unknown variable stays as it is, `$$` is a dollar sign."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else environment.get(name, match.group(0))

    return tuple(replace(word, text=_KUBERNETES_VARIABLE.sub(value, word.text)) for word in words)


def unwrap(words: Sequence[ShellWord], environment: Mapping[str, str], known: frozenset[str]) -> Command:
    """Finds the command among shells and wrappers; of a script's steps, the one that runs a program in `known`.

    A script with no such step gives its last step.
    """
    command = _peel(words)
    for _ in range(MAX_SHELLS):
        script = _script(command.words, {**environment, **command.assignments})
        if script is None or not script.steps:
            break
        inner = [_peel(step.words) for step in script.steps]
        at = next((i for i, step in enumerate(inner) if _runs(step.words, known)), len(inner) - 1)
        step = inner[at]
        merged = {**command.assignments, **step.assignments}
        command = replace(step, script=script, step=at, assignments=merged)
    return command


def _runs(words: Sequence[ShellWord], known: frozenset[str]) -> bool:
    if not words:
        return False
    return words[0].program in known or (
        words[0].program in SHELLS and any(name in w.text for w in words for name in known)
    )


def _peel(words: Sequence[ShellWord]) -> Command:
    assignments: dict[str, str] = {}
    rest = list(words)
    replaces_shell = False
    while rest:
        head = rest[0]
        if _ASSIGNMENT.fullmatch(head.text):
            name, _, value = head.text.partition("=")
            assignments[name] = value
            rest = rest[1:]
        elif head.program in _WRAPPERS and len(rest) > 1:
            replaces_shell = replaces_shell or head.text == "exec"
            rest = _after_options(rest[1:], _WRAPPERS[head.program])[_OPERANDS.get(head.program, 0) :]
        else:
            break
    return Command(words=tuple(rest), assignments=assignments, replaces_shell=replaces_shell)


def _after_options(words: list[ShellWord], with_value: frozenset[str]) -> list[ShellWord]:
    index = 0
    while index < len(words) and words[index].text.startswith("-"):
        if words[index].text == "--":
            return words[index + 1 :]
        index += 2 if words[index].text in with_value else 1
    return words[index:]


def _script(words: Sequence[ShellWord], environment: Mapping[str, str]) -> ShellScript | None:
    if not words or words[0].program not in SHELLS:
        return None
    for index, word in enumerate(words[1:], start=1):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text):
            return _parse_script(words, index, environment)
        if not word.text.startswith(("-", "+")) and word.text not in ("pipefail", "errexit", "nounset", "xtrace"):
            return None
    return None


def _parse_script(words: Sequence[ShellWord], flag: int, environment: Mapping[str, str]) -> ShellScript | None:
    rest = words[flag + 1 :]
    while len(rest) > 1 and (rest[0].text.startswith("-") or rest[0].text == "pipefail"):
        rest = rest[1:]
    if not rest:
        return None
    word = rest[0]
    options = tuple(w.text for w in words[1:] if w is not word)
    return ShellScript(text=word.text, path=word.path, options=options, steps=_steps(word, environment))


def _steps(script: ShellWord, environment: Mapping[str, str]) -> tuple[ShellStep, ...]:
    steps: list[ShellStep] = []
    words: list[ShellWord] = []
    skip = False
    for token in _tokens(script.text):
        if _REDIRECTION.fullmatch(token):
            skip = True
        elif _OPERATOR.fullmatch(token):
            if words:
                steps.append(ShellStep(tuple(words), token.strip("\n") or "\n"))
            words = []
        elif skip:
            skip = False
        else:
            words.append(ShellWord(_fill(token, environment), script.path))
    return (*steps, ShellStep(tuple(words), "")) if words else tuple(steps)


def _tokens(text: str) -> list[str]:
    joined = _DESCRIPTOR.sub("", _COMMENT.sub("", _CONTINUATION.sub(" ", text)))
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=";&|<>\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # quotes that never close; the shell would refuse it too, the words are still worth a look
        return joined.split()


def _fill(token: str, environment: Mapping[str, str]) -> str:
    """Shell variables whose value the container's environment states."""

    def value(match: re.Match[str]) -> str:
        return environment.get(match.group(1) or match.group(2), match.group(0))

    return _SHELL_VARIABLE.sub(value, token)
