"""Where the workers' lines go: a stream of the launcher's, or a file for each rank. None of them can stop the job."""

import contextlib
import errno
import io
import logging
import os
import select
from pathlib import Path
from typing import Final, Protocol, TextIO

logger = logging.getLogger(__name__)

_NEWLINE: Final = b"\n"


class OutputSink(Protocol):
    """Takes whole lines."""

    def write(self, lines: bytes) -> None:
        """Write lines with their newlines. Raises OSError, or ValueError if it is closed."""

    def close(self) -> None:
        """Close what was opened. Raises nothing."""


class _Descriptor:
    """Writes to a file descriptor without a buffer: what could not be written must not fail once more at the end."""

    def __init__(self) -> None:
        self._is_torn = False
        """Whether the last line was written in part, so that the next one needs a newline in front of it."""

    def write_to(self, descriptor: int, lines: bytes) -> None:
        left = memoryview(_NEWLINE + lines if self._is_torn else lines)
        while left:
            try:
                written = os.write(descriptor, left)
            except BlockingIOError:
                select.select([], [descriptor], [])
                continue
            self._is_torn = bytes(left[written - 1 : written]) != _NEWLINE
            left = left[written:]


class StreamSink:
    """A stream that somebody else opened and closes, such as `sys.stdout`. It is None where that was closed (`>&-`)."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._output = _Descriptor()

    def write(self, lines: bytes) -> None:
        """See OutputSink. The workers' bytes go out as they are, whatever the stream's encoding is."""
        if self._stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            descriptor = self._stream.fileno()
        except io.UnsupportedOperation:  # a stream in memory
            self._stream.write(lines.decode(errors="replace"))
            return
        self._stream.flush()
        self._output.write_to(descriptor, lines)

    def close(self) -> None: ...


class RankFile:
    """`FOLDER/rank.07/stdout`, named as horovodrun names it. Opened at its first line, and again after a failure."""

    def __init__(self, folder: str, rank: int, size: int, name: str) -> None:
        self._path = Path(folder) / f"rank.{rank:0{len(str(max(size - 1, 1)))}d}" / name
        self._descriptor: int | None = None
        self._output = _Descriptor()

    def __str__(self) -> str:
        return os.fspath(self._path)

    def write(self, lines: bytes) -> None:
        """See OutputSink."""
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._output.write_to(self._descriptor, lines)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """See OutputSink."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


class LossySink:
    """Passes lines on, and loses those that cannot be written: a full disk or `| head` must not stop training.

    Says once that lines are lost, and once that they are written again.
    """

    def __init__(self, name: str, sink: OutputSink) -> None:
        self._name, self._sink = name, sink
        self._lost = 0
        """Lines, since the last one that was written."""

    def write(self, lines: bytes) -> None:
        """Write lines with their newlines, if that is possible."""
        try:
            self._sink.write(lines)
        except (OSError, ValueError) as error:
            if not self._lost:
                logger.warning("%s cannot be written, so the workers' lines are lost: %s", self._name, error)
            self._lost += lines.count(_NEWLINE)
            return
        if self._lost:
            logger.warning("%s is written again; %d lines were lost", self._name, self._lost)
            self._lost = 0

    def close(self) -> None:
        self._sink.close()
