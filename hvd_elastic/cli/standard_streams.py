"""Standard streams that are closed, full, or without a reader: one sentence, a code of its own, and no traceback.

All that a verb prints passes here, and is cleaned here of what would steer a terminal. A verb need not think of it.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, TextIO, cast

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.system.plain_words import printable


class OutputError(HvdElasticError, OSError):
    """What a verb prints cannot be written."""

    exit_code = Exit.OUTPUT_FAILED


class _Stream:
    """A text stream that no words of a stranger's can steer; what is not here is that stream's own."""

    buffer: Any = None
    """For click, which would write past this into the buffer of a stream that is ASCII."""

    def __init__(self, stream: TextIO, *, cleans: bool = True) -> None:
        self._stream, self._cleans = stream, cleans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def uncleaned(self) -> Self:
        """The same stream for bytes that were asked for as they are, and for one who styles what he has cleaned."""
        return type(self)(self._stream, cleans=False)

    def _clean(self, text: str) -> str:
        return printable(text, lines=True) if self._cleans else text

    def _replaced(self, text: str) -> str:
        """For people a `?` will do where the terminal lacks a character."""
        return text.encode(self._stream.encoding, "replace").decode(self._stream.encoding)


class _Output(_Stream):
    """Standard output. A reader that goes away stays a BrokenPipeError."""

    def write(self, text: str) -> int:
        """Raises OutputError and BrokenPipeError."""
        text = self._clean(text)
        try:
            with _translated():
                return self._stream.write(text)
        except UnicodeEncodeError as error:
            if self._stream.isatty():
                return self._stream.write(self._replaced(text))
            what = f"{text[error.start]!r} is not in its encoding, {error.encoding}"
            raise OutputError(f"standard output cannot be written: {what}: set PYTHONIOENCODING=utf-8") from error

    def flush(self) -> None:
        """Raises OutputError and BrokenPipeError."""
        with _translated():
            self._stream.flush()


class _LossyOutput(_Stream):
    """Loses what cannot be written."""

    def write(self, text: str) -> int:
        text = self._clean(text)
        with contextlib.suppress(OSError):
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(self._replaced(text))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def lossy(stream: TextIO) -> TextIO:
    """The stream for those who go on where it cannot be written: what is lost is not told."""
    return cast("TextIO", _LossyOutput(stream._stream if isinstance(stream, _Stream) else stream))


def uncleaned(stream: TextIO) -> TextIO:
    """The stream without its cleaning. For what a person asks for as it is, and for what is cleaned before."""
    return cast("TextIO", stream.uncleaned()) if isinstance(stream, _Stream) else stream


@contextlib.contextmanager
def guarded_streams() -> Iterator[None]:
    """Guard standard output and standard error in the block, and have them forget in the end what they could not write.

    What is said on standard error is lost where that cannot be written: a verb does what it was asked for all the same.
    An error that nobody expected ends the block as it ends Python, but is told on the clean stream: it quotes anything.
    """
    _open_closed()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", _Output(sys.stdout)), lossy(sys.stderr)
    try:
        yield
    except Exception:  # noqa: BLE001 - Python tells of it in the same way, but on the stream as it was
        sys.excepthook(*sys.exc_info())
        sys.exit(Exit.ERROR)
    finally:
        sys.stdout, sys.stderr = before
        for stream in before:
            _discard_unwritten(stream)


def _open_closed() -> None:
    """Put something in the place of closed streams: Python has None there, and the next file would get their numbers.

    Input is empty, and output fails as it would on the closed descriptor: that of a file which is open for reading.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free
            os.set_inheritable(descriptor, True)
            stream = open(descriptor, "r" if name == "stdin" else "w", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror}") from error


def _discard_unwritten(stream: TextIO) -> None:
    """Python would try once more as it ends, and would end with 120 in place of the code that it was to end with."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
