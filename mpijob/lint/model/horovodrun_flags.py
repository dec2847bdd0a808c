"""A launcher's command line, its flags read as horovodrun 0.28.1 reads them (`horovod/runner/launch.py`)."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hvd_elastic.mpijob.lint.model.container_command import Command, ShellScript, ShellWord


class Launcher(StrEnum):
    """Which program starts the processes."""

    HOROVODRUN = "horovodrun"
    HVD_ELASTIC = "hvd-elastic launch"
    MPIRUN = "mpirun"
    OTHER = "other"


_MPIRUNS: Final = frozenset(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"))
PROGRAMS: Final = _MPIRUNS | {"horovodrun", "hvd-elastic"}
_MODULES: Final = frozenset(("horovod.runner", "horovod.runner.launch", "horovod.run"))


@dataclass(frozen=True, slots=True)
class Option:
    """One option of horovodrun: its name here, how many values it takes, and whether they are integers."""

    name: str
    values: int = 1
    integer: bool = False


def _options() -> dict[str, Option]:
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
    table = {"--blacklist-cooldown-range": Option("--blacklist-cooldown-range", 2, True)}
    for text, values, integer in ((integers, 1, True), (texts, 1, False), (switches, 0, False)):
        for group in text.split("|"):
            names = group.split()
            shown = names[0] if names[0] in ("-np", "--min-np", "--max-np", "--network-interface") else names[-1]
            table.update({name: Option(shown, values, integer) for name in names})
    return table


OPTIONS: Final[Mapping[str, Option]] = _options()


@dataclass(frozen=True, slots=True)
class Flag:
    """An option as it was written: its word, and the words of its values."""

    word: ShellWord
    values: tuple[ShellWord, ...]
    option: Option

    @property
    def text(self) -> str | None:
        """Its first value."""
        return self.values[0].text if self.values else None

    @property
    def number(self) -> int | None:
        """Its first value as a number."""
        return integer(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The launcher's command line. `flags` has each option once, the last one counts."""

    launcher: Launcher
    head: tuple[ShellWord, ...] = ()
    """The words that name the launcher: `horovodrun`, or `hvd-elastic launch`, or `python -m horovod.runner`."""
    flags: Mapping[str, Flag] = field(default_factory=dict)
    unknown: tuple[ShellWord, ...] = ()
    short: tuple[Flag, ...] = ()
    """Options that lack values."""
    command: tuple[ShellWord, ...] = ()
    """What it starts on every worker."""
    script: ShellScript | None = None
    source: Command

    def number(self, name: str) -> int | None:
        """A flag's value as a number; None where it is not set or no number."""
        flag = self.flags.get(name)
        return flag.number if flag else None

    @property
    def elastic(self) -> bool:
        """Horovod's own rule: a discovery script or `--min-np` makes a job elastic."""
        if self.launcher is Launcher.HVD_ELASTIC:
            return True
        return self.launcher is Launcher.HOROVODRUN and bool(
            {"--host-discovery-script", "--min-np"} & self.flags.keys()
        )


def integer(text: str | None) -> int | None:
    """What argparse's `type=int` makes of it, within reason."""
    try:
        return int(text) if text is not None and len(text) < 20 else None
    except ValueError:
        return None


def nearest_option(text: str) -> str:
    """The option of horovodrun that was probably meant, or nothing."""
    close = difflib.get_close_matches(text.split("=", maxsplit=1)[0], OPTIONS, n=1, cutoff=0.6)
    return close[0] if close else ""


def parse(command: Command) -> Call:
    """Reads the command that a launcher container runs."""
    words = command.words
    launcher, length = _launcher(words)
    head = words[:length]
    if launcher is Launcher.MPIRUN:
        return Call(launcher=launcher, head=head, command=words[length:], script=command.script, source=command)
    if launcher is Launcher.OTHER:
        return Call(launcher=launcher, command=words, script=command.script, source=command)
    return _parse_flags(command, launcher, length)


def _launcher(words: Sequence[ShellWord]) -> tuple[Launcher, int]:
    if not words:
        return Launcher.OTHER, 0
    program, texts = words[0].program, [word.text for word in words[:3]]
    if program == "horovodrun":
        return Launcher.HOROVODRUN, 1
    if program == "hvd-elastic" and texts[1:2] == ["launch"]:
        return Launcher.HVD_ELASTIC, 2
    if program.startswith("python") and texts[1:2] == ["-m"] and texts[2:] and texts[2] in _MODULES:
        return Launcher.HOROVODRUN, 3
    return (Launcher.MPIRUN, 1) if program in _MPIRUNS else (Launcher.OTHER, 0)


def _parse_flags(command: Command, launcher: Launcher, index: int) -> Call:
    words, head = command.words, command.words[:index]
    flags: dict[str, Flag] = {}
    unknown: list[ShellWord] = []
    short: list[Flag] = []
    while index < len(words) and words[index].text.startswith("-") and words[index].text != "--":
        word = words[index]
        index += 1
        option = _option(word.text)
        if option is None:
            unknown.append(word)
            index += _value_of_unknown(launcher, words, index)
            continue
        flag, index = _flag(word, option, words, index)
        (flags.__setitem__(option.name, flag) if len(flag.values) == option.values else short.append(flag))
    if index < len(words) and words[index].text == "--":
        index += 1
    return Call(
        launcher=launcher,
        head=head,
        flags=flags,
        unknown=tuple(unknown),
        short=tuple(short),
        command=words[index:],
        script=command.script,
        source=command,
    )


def _value_of_unknown(launcher: Launcher, words: Sequence[ShellWord], index: int) -> int:
    """How many words after an unknown option belong to it: of ours that horovodrun lacks, each takes one value."""
    if launcher is not Launcher.HVD_ELASTIC or "=" in words[index - 1].text:
        return 0
    return int(index < len(words) and not words[index].text.startswith("-"))


def _option(text: str) -> Option | None:
    """An option by its name, or by the unique start of a long one, as argparse takes it."""
    name = text.partition("=")[0]
    if name in OPTIONS or not name.startswith("--"):
        return OPTIONS.get(name)
    started = {OPTIONS[full] for full in OPTIONS if full.startswith(name)}
    return started.pop() if len(started) == 1 else None


def _flag(word: ShellWord, option: Option, words: Sequence[ShellWord], index: int) -> tuple[Flag, int]:
    _, equals, value = word.text.partition("=")
    if equals:
        return Flag(word, (ShellWord(value, word.path),), option), index
    taken: list[ShellWord] = []
    while len(taken) < option.values and index < len(words) and _is_value(words[index].text):
        taken.append(words[index])
        index += 1
    return Flag(word, tuple(taken), option), index


def _is_value(text: str) -> bool:
    return not text.startswith("-") or text == "-" or integer(text) is not None
