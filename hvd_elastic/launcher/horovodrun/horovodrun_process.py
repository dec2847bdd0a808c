"""One process of `horovodrun`. It imports Horovod at once, and begins when it is told its arguments."""

import contextlib
import os

from hvd_elastic.launcher.horovodrun.horovodrun_command import HorovodrunCommand
from hvd_elastic.launcher.horovodrun.stock_horovodrun import ARGUMENTS_FROM, encode
from hvd_elastic.launcher.horovodrun.stock_output import StockOutput
from hvd_elastic.system import child_processes


class HorovodrunProcess:
    """Started when it is made, where the command's program can wait for its arguments; else by `begin`."""

    def __init__(self, command: HorovodrunCommand) -> None:
        self.output = StockOutput()
        self._command = command
        self._pid: int | None = None
        if command.may_wait:
            reading, self._sending = os.pipe()
            try:
                self._pid = self._spawn(
                    (*command.program, ARGUMENTS_FROM, str(reading), str(command.run_dir)), keep=(reading,)
                )
            finally:
                os.close(reading)

    def begin(self, arguments: tuple[str, ...]) -> int:
        """Run horovodrun with these; return the process's id. Does not say whether it has ended meanwhile."""
        if self._pid is None:
            return self._spawn((*self._command.program, *arguments))
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._sending, "wb") as pipe:
            pipe.write(encode(arguments))
        return self._pid

    def _spawn(self, argv: tuple[str, ...], *, keep: tuple[int, ...] = ()) -> int:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stdio = (nothing, self.output.writer, self.output.writer)
            return child_processes.spawn(argv, environment=os.environ, stdio=stdio, keep=keep)
        finally:
            os.close(nothing)
            self.output.close_writer()
