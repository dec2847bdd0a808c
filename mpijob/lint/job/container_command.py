"""The program a container really runs: command and args joined, variables expanded, shells and wrappers removed."""

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_view import Path

SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh"))
MAX_SHELLS: Final = 5
"""Most shells within shells that are unwrapped."""

_KUBERNETES_VARIABLE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_SHELL_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_OPERATOR: Final = re.compile(r"[;&|\n]+")
_REDIRECTION: Final = re.compile(r"[;&|\n]*[<>][;&|\n<>]*")
_COMMENT: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_DESCRIPTOR: Final = re.compile(r"(?<=\s)[0-9](?=[<>])")
"""The `2` of `2>&1`."""
_OPTION_WORDS: Final = re.compile(r"[-\w \t]+")
"""As of `set -o pipefail`."""
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
"""Programs that run the rest of their arguments as a command, each with its options that take a value."""
_OPERANDS: Final = {"timeout": 1}
"""How many arguments of a wrapper precede the command, apart from options."""


@dataclass(frozen=True, slots=True)
class ShellWord:
    """One argument, and the path of the item of `command` or `args` that it comes from."""

    text: str
    path: Path

    @property
    def program(self) -> str:
        """The argument's file name, without folders."""
        return posixpath.basename(self.text)


@dataclass(frozen=True, slots=True)
class ShellStep:
    """A simple command of a shell script, and the operator after it (empty at the end of the script)."""

    words: tuple[ShellWord, ...]
    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """The script of `sh -c SCRIPT`."""

    text: str
    path: Path
    options: tuple[str, ...]
    """Options of the shell itself, such as `-c`, `-euo` or `pipefail`."""
    steps: tuple[ShellStep, ...]

    @property
    def pipefail(self) -> bool:
        """Whether a pipe fails if any of its commands fails."""
        return "pipefail" in self.options or any(map(_sets_pipefail, _OPTION_WORDS.findall(self.text)))

    @property
    def stops_on_error(self) -> bool:
        """Whether `-e` is in force, by an option or by `set`."""
        flags = [option for option in self.options if re.fullmatch(r"-[a-df-z]*e[a-z]*", option)]
        return bool(flags) or bool(re.search(r"\bset\s+-[a-z]*e", self.text))


def _sets_pipefail(options: str) -> bool:
    words = options.split()
    return "set" in words and "pipefail" in words[words.index("set") :]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCommand:
    """A program and its arguments, with shells and wrappers removed."""

    words: tuple[ShellWord, ...] = ()
    script: ShellScript | None = None
    """The innermost shell script that contains the words; None outside a shell."""
    step: int = 0
    """Index of the words' step in that script."""
    assignments: Mapping[str, str]
    """Variables set before the program, as in `A=1 env B=2 program`."""
    replaces_shell: bool = False
    """Whether `exec` precedes it."""

    @property
    def program(self) -> str:
        """File name of the program; empty if there is none."""
        return self.words[0].program if self.words else ""


def expand(words: Sequence[ShellWord], environment: Mapping[str, str]) -> tuple[ShellWord, ...]:
    """Expands `$(VAR)` as the kubelet does: an unknown variable stays as it is, and `$$` is a dollar sign."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else environment.get(name, match.group(0))

    return tuple(replace(word, text=_KUBERNETES_VARIABLE.sub(value, word.text)) for word in words)


def unwrap(words: Sequence[ShellWord], environment: Mapping[str, str], known: frozenset[str]) -> ContainerCommand:
    """Finds the command inside shells and wrappers. In a script it is the step that runs a program in `known`.

    If no step does, it is the script's last step.
    """
    command = _strip_wrappers(words)
    for _ in range(MAX_SHELLS):
        script = _script(command.words, {**environment, **command.assignments})
        if script is None or not script.steps:
            break
        inner = [_strip_wrappers(step.words) for step in script.steps]
        index = next((i for i, step in enumerate(inner) if _runs(step.words, known)), len(inner) - 1)
        step = inner[index]
        merged = {**command.assignments, **step.assignments}
        command = replace(step, script=script, step=index, assignments=merged)
    return command


def _runs(words: Sequence[ShellWord], known: frozenset[str]) -> bool:
    if not words:
        return False
    return words[0].program in known or (
        words[0].program in SHELLS and any(name in w.text for w in words for name in known)
    )


def _strip_wrappers(words: Sequence[ShellWord]) -> ContainerCommand:
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
    return ContainerCommand(words=tuple(rest), assignments=assignments, replaces_shell=replaces_shell)


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
        if re.fullmatch(r"-[abd-zA-Z]*c[a-zA-Z]*", word.text):
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
    except ValueError:  # an unclosed quote, which the shell would refuse too; the words may still show hazards
        return joined.split()


def _fill(token: str, environment: Mapping[str, str]) -> str:
    """Expands the shell variables whose value is known."""

    def value(match: re.Match[str]) -> str:
        return environment.get(match.group(1) or match.group(2), match.group(0))

    return _SHELL_VARIABLE.sub(value, token)
