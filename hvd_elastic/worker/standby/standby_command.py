"""Command lines of the processes of a slot."""

import sys
from collections.abc import Mapping, Sequence

from hvd_elastic.mpijob.contract import Standby
from hvd_elastic.worker.standby.program import NoProgram, Program, read_program


def standby_command(program: Program, mode: Standby, channel: int, *, slot: int = 0, slots: int = 1) -> list[str]:
    """Return the command line of a standby that talks to the entry point over descriptor `channel`.

    With mode OFF it does not wait: a launcher is already running the command. `slot` is its number among the `slots` of
    this pod.
    """
    # -P: *our* packages must not be imported from the working directory; the script gets its own sys.path[0] later.
    # -u: after the adoption the output is a launcher's pipe, where horovodrun asks for unbuffered output too.
    interpreter = [sys.executable, *program.options, "-u", "-P", "-m", "hvd_elastic.worker.standby.standby"]
    flags = [f"--mode={mode}", f"--channel={channel}", f"--slot={slot}", f"--slots={slots}"]
    flags += ["--module"] if program.is_module else []
    flags += ["--neighbours"] if program.finds_neighbours else []
    return [*interpreter, *flags, "--", program.target, *program.arguments]


def plain_command(argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command line that runs `argv` now: a Python program by way of `standby`, anything else as it is."""
    program = read_program(argv, environment)
    return list(argv) if isinstance(program, NoProgram) else standby_command(program, Standby.OFF, -1)
