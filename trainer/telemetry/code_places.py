"""At which line of the script a thread is."""

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

_INSTALLED: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS: Final = __name__.partition(".")[0] + "."


def place_of(thread: int, *, library: bool = False) -> str:
    """`train.py:123 in evaluate`: the innermost line of the thread that is no library's; empty if the thread is gone.

    Args:
        thread: its `threading.get_ident()`.
        library: where it is inside a library, add the innermost function: `train.py:123 in train (queue.get)`.
    """
    innermost = sys._current_frames().get(thread)
    if innermost is None:
        return ""
    own: FrameType | None = innermost
    while own is not None and _is_library(own):
        own = own.f_back
    shown = own or innermost
    place = f"{Path(shown.f_code.co_filename).name}:{shown.f_lineno} in {shown.f_code.co_name}"
    if own is innermost or own is None or not library:
        return place
    return f"{place} ({innermost.f_globals.get('__name__', '?')}.{innermost.f_code.co_name})"


def place_of_error(error: BaseException) -> str:
    """The same of an error: where the script was, or has called what has raised it."""
    trace = list(traceback.walk_tb(error.__traceback__))
    own = [each for each in trace if not _is_library(each[0])] or trace
    if not own:
        return ""
    frame, line = own[-1]
    return f"{Path(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"


def script_lines(thread: int) -> Iterator[tuple[str, int]]:
    """File and line of each frame of the thread that is no library's, the innermost first."""
    frame: FrameType | None = sys._current_frames().get(thread)
    while frame is not None:
        if not _is_library(frame):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _is_library(frame: FrameType) -> bool:
    """Whether its code is Python's, installed, this package's, or in no file (`<frozen importlib>`)."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_OURS) or frame.f_code.co_filename.startswith((*_INSTALLED, "<"))
