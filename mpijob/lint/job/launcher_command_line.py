"""Parses a launcher's command line as horovodrun 0.28.1 does (`horovod/runner/launch.py`)."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hvd_elastic.mpijob.lint.job.container_command import ContainerCommand, ShellScript, ShellWord


class LauncherProgram(StrEnum):
    """The program that starts the training processes."""

    HOROVODRUN = "horovodrun"
    HVD_ELASTIC = "hvd-elastic launch"
    MPIRUN = "mpirun"
    OTHER = "other"


_MPIRUNS: Final = frozenset(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"))
PROGRAMS: Final = _MPIRUNS | {"horovodrun", "hvd-elastic"}
_MODULES: Final = frozenset(("horovod.runner", "horovod.runner.launch", "horovod.run"))


@dataclass(frozen=True, slots=True)
class LauncherOption:
    """One option of horovodrun: its name, the number of its values, and whether they are integers.

    If an option has several spellings, `name` is the one that the rules look up.
    """

    name: str
    values: int = 1
    integer: bool = False


def _options() -> dict[str, LauncherOption]:
    integers = (
        "-np --num-proc|--start-timeout|-p --ssh-port|--fusion-threshold-mb|--cache-capacity|--autotune-warmup-samples"
        "|--autotune-steps-per-sample|--autotune-bayes-opt-max-samples|--min-np --min-num-proc|--max-np --max-num-proc"
        "|--slots-per-host|--elastic-timeout|--reset-limit|--stall-check-warning-time-seconds"
        "|--stall-check-shutdown-time-seconds|--num-nccl-streams|--thread-affinity|--gloo-timeout-seconds"
    )
    texts = (
        "--network-interface --network-interfaces|--output-filename|--config-file|-i --ssh-identity-file"
        "|--cycle-time-ms|--autotune-log-file|--autotune-gaussian-process-noise|--timeline-filename|--mpi-args|--binding-args|--log-level"
        "|-H --hosts|-hostfile --hostfile|--host-discovery-script"
    )
    switches = (
        "-v --version|-cb --check-build|--disable-cache|--verbose|-h --help|--hierarchical-allreduce"
        "|--no-hierarchical-allreduce|--hierarchical-allgather|--no-hierarchical-allgather|--torus-allreduce"
        "|--no-torus-allreduce|--autotune|--no-autotune|--timeline-mark-cycles|--no-timeline-mark-cycles|--no-stall-check"
        "|--stall-check|--mpi-threads-disable|--no-mpi-threads-disable|--tcp|--log-with-timestamp|--log-without-timestamp"
        "|-prefix-timestamp --prefix-output-with-timestamp|--log-hide-timestamp|--no-log-hide-timestamp"
        "|--gloo|--mpi|--jsrun"
    )
    field_table = {"--blacklist-cooldown-range": LauncherOption("--blacklist-cooldown-range", 2, True)}
    for text, values, integer in ((integers, 1, True), (texts, 1, False), (switches, 0, False)):
        for group in text.split("|"):
            names = group.split()
            shown = names[0] if names[0] in ("-np", "--min-np", "--max-np", "--network-interface") else names[-1]
            field_table.update({name: LauncherOption(shown, values, integer) for name in names})
    return field_table


OPTIONS: Final[Mapping[str, LauncherOption]] = _options()


@dataclass(frozen=True, slots=True)
class LauncherFlag:
    """An option as it is written in the manifest: the word that names it, and the words of its values."""

    word: ShellWord
    values: tuple[ShellWord, ...]
    option: LauncherOption

    @property
    def text(self) -> str | None:
        """Its first value."""
        return self.values[0].text if self.values else None

    @property
    def number(self) -> int | None:
        """Its first value as a number."""
        return integer(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherCommandLine:
    """The launcher's command line. `flags` has each option once; the last occurrence counts."""

    program: LauncherProgram
    program_words: tuple[ShellWord, ...] = ()
    """The words that name the launcher: `horovodrun`, `hvd-elastic horovodrun`, `hvd-elastic launch` or `python -m
    horovod.runner`."""
    flags: Mapping[str, LauncherFlag] = field(default_factory=dict)
    unknown: tuple[ShellWord, ...] = ()
    """Options that the launcher does not have."""
    incomplete: tuple[LauncherFlag, ...] = ()
    """Options that lack values."""
    training_command: tuple[ShellWord, ...] = ()
    """The command that the launcher starts on the workers."""
    shell_script: ShellScript | None = None
    """The shell script that starts the launcher; None if no shell does."""
    container_command: ContainerCommand
    """The command that this command line was parsed from."""

    def number(self, name: str) -> int | None:
        """A flag's value as a number; None if it is not set or not a whole number."""
        flag = self.flags.get(name)
        return flag.number if flag else None

    @property
    def elastic(self) -> bool:
        """Whether the job is elastic, by Horovod's own rule: it has a discovery script or `--min-np`."""
        if self.program is LauncherProgram.HVD_ELASTIC:
            return True
        return self.program is LauncherProgram.HOROVODRUN and bool(
            {"--host-discovery-script", "--min-np"} & self.flags.keys()
        )


def integer(text: str | None) -> int | None:
    """The number that argparse's `type=int` reads; None if it is not one, or has 20 characters or more."""
    try:
        return int(text) if text is not None and len(text) < 20 else None
    except ValueError:
        return None


def nearest_option(text: str) -> str:
    """The option of horovodrun that was probably meant; empty if none is similar."""
    close = difflib.get_close_matches(text.split("=", maxsplit=1)[0], OPTIONS, n=1, cutoff=0.6)
    return close[0] if close else ""


def undashed_options(command_line: LauncherCommandLine) -> Iterator[tuple[ShellWord, str]]:
    """The first word of the training command if it is an option without its dashes, and the option.

    A word such as `hosts` or `mpi` can be a program too. So it counts only if the words after it are as many values as
    the option takes, and a number where it takes one.
    """
    words = command_line.training_command
    if command_line.program not in (LauncherProgram.HOROVODRUN, LauncherProgram.HVD_ELASTIC) or not words:
        return
    name, equals, _ = words[0].text.partition("=")
    full = next((f"{dashes}{name}" for dashes in ("--", "-") if f"{dashes}{name}" in OPTIONS), None)
    if full is None or len(name) == 1:
        return
    option = OPTIONS[full]
    values = words[1 : 1 + option.values]
    has_values = bool(equals) or len(values) == option.values
    fits = not option.integer or bool(equals) or all(integer(value.text) is not None for value in values)
    if has_values and fits and (option.values or "-" in name):
        yield words[0], full


def parse(command: ContainerCommand) -> LauncherCommandLine:
    """Parses the command that a launcher container runs."""
    words = command.words
    program, length = _program(words)
    if program in (LauncherProgram.HOROVODRUN, LauncherProgram.HVD_ELASTIC):
        return _parse_flags(command, program, length)
    return LauncherCommandLine(
        program=program,
        program_words=words[:length],
        training_command=words[length:],
        shell_script=command.script,
        container_command=command,
    )


def _program(words: Sequence[ShellWord]) -> tuple[LauncherProgram, int]:
    if not words:
        return LauncherProgram.OTHER, 0
    program, texts = words[0].program, [word.text for word in words[:3]]
    if program == "horovodrun":
        return LauncherProgram.HOROVODRUN, 1
    if program == "hvd-elastic" and texts[1:2] == ["launch"]:
        return LauncherProgram.HVD_ELASTIC, 2
    if program == "hvd-elastic" and texts[1:2] == ["horovodrun"]:
        return LauncherProgram.HOROVODRUN, 2
    if program.startswith("python") and texts[1:2] == ["-m"] and texts[2:] and texts[2] in _MODULES:
        return LauncherProgram.HOROVODRUN, 3
    return (LauncherProgram.MPIRUN, 1) if program in _MPIRUNS else (LauncherProgram.OTHER, 0)


def _parse_flags(command: ContainerCommand, program: LauncherProgram, index: int) -> LauncherCommandLine:
    words, program_words = command.words, command.words[:index]
    flags: dict[str, LauncherFlag] = {}
    unknown: list[ShellWord] = []
    incomplete: list[LauncherFlag] = []
    while index < len(words) and words[index].text.startswith("-") and words[index].text != "--":
        word = words[index]
        index += 1
        option = _option(word.text)
        if option is None:
            unknown.append(word)
            index += _count_values_of_unknown(program, words, index)
            continue
        flag, index = _flag(word, option, words, index)
        if len(flag.values) == option.values:
            flags[option.name] = flag
        else:
            incomplete.append(flag)
    if index < len(words) and words[index].text == "--":
        index += 1
    return LauncherCommandLine(
        program=program,
        program_words=program_words,
        flags=flags,
        unknown=tuple(unknown),
        incomplete=tuple(incomplete),
        training_command=words[index:],
        shell_script=command.script,
        container_command=command,
    )


def _count_values_of_unknown(program: LauncherProgram, words: Sequence[ShellWord], index: int) -> int:
    """Number of words after an unknown option that are its values.

    Options that only `hvd-elastic launch` has take one value each.
    """
    if program is not LauncherProgram.HVD_ELASTIC or "=" in words[index - 1].text:
        return 0
    return int(index < len(words) and not words[index].text.startswith("-"))


def _option(text: str) -> LauncherOption | None:
    """The option of that name. Like argparse, accepts an unambiguous prefix of a long name."""
    name = text.partition("=")[0]
    if name in OPTIONS or not name.startswith("--"):
        return OPTIONS.get(name)
    started = {OPTIONS[full] for full in OPTIONS if full.startswith(name)}
    return started.pop() if len(started) == 1 else None


def _flag(word: ShellWord, option: LauncherOption, words: Sequence[ShellWord], index: int) -> tuple[LauncherFlag, int]:
    _, equals, value = word.text.partition("=")
    if equals:
        return LauncherFlag(word, (ShellWord(value, word.path),), option), index
    taken: list[ShellWord] = []
    while len(taken) < option.values and index < len(words) and _is_value(words[index].text):
        taken.append(words[index])
        index += 1
    return LauncherFlag(word, tuple(taken), option), index


def _is_value(text: str) -> bool:
    return not text.startswith("-") or text == "-" or integer(text) is not None
