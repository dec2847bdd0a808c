"""The command line of `horovodrun`, as far as starting it once more needs it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.launcher.horovodrun import stock_horovodrun
from hvd_elastic.mpijob.contract import HOSTS_SCRIPT, Exit, HvdElasticError
from hvd_elastic.mpijob.lint.job import launcher_command_line
from hvd_elastic.mpijob.lint.job.container_command import ContainerCommand, ShellWord

PROGRAM: Final = "horovodrun"


class NotElasticError(HvdElasticError):
    """The job cannot be begun again: its number of processes, its list of hosts or its command is missing."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class HorovodrunCommand:
    """An elastic job of horovodrun. Sizes in processes."""

    program: tuple[str, ...]
    """What runs horovodrun."""
    may_wait: bool = False
    """Whether the program can be started before its arguments are known (`stock_horovodrun`)."""
    arguments: tuple[str, ...]
    start: int
    minimum: int
    run_dir: Path
    """Where the sidecar keeps the list of hosts, beside the discovery script."""
    training_words: int
    """How many words at the end of `arguments` are the training command."""

    def beginning_with(self, processes: int, *, discovery_script: Path | None = None) -> tuple[str, ...]:
        """The arguments that wait for `processes` at its start, with another discovery script if one is given.

        Of an option that is given twice the last one counts.
        """
        end = len(self.arguments) - self.training_words
        if self.arguments[end - 1] == "--":
            end -= 1
        script = () if discovery_script is None else ("--host-discovery-script", str(discovery_script))
        return (*self.arguments[:end], "-np", str(processes), *script, *self.arguments[end:])


def parse(arguments: Sequence[str]) -> HorovodrunCommand:
    """Read the arguments of `horovodrun`. Raises NotElasticError."""
    words = tuple(ShellWord(text, ()) for text in (PROGRAM, *arguments))
    line = launcher_command_line.parse(ContainerCommand(words=words, assignments={}))
    start, script = line.number("-np"), line.flags.get("--host-discovery-script")
    path = Path(script.text or "") if script is not None else Path()
    if start is None or path.name != HOSTS_SCRIPT or not path.is_absolute() or not line.training_command:
        needed = f"-np, --host-discovery-script RUN_DIR/{HOSTS_SCRIPT} of the discovery sidecar, and a command"
        raise NotElasticError(f"{PROGRAM}: to begin again it needs {needed}")
    program = _program()
    return HorovodrunCommand(
        program=program,
        may_wait=program != (PROGRAM,),
        arguments=tuple(arguments),
        start=start,
        minimum=line.number("--min-np") or start,
        run_dir=path.parent,
        training_words=len(line.training_command),
    )


def _program() -> tuple[str, ...]:
    """Horovodrun of this environment, or whatever is on PATH where this one has none."""
    if Path(sys.executable).with_name(PROGRAM).exists():
        return (sys.executable, "-P", "-c", stock_horovodrun.CODE)
    return (PROGRAM,)
