"""Text in a room of lines: wrapped, or cut in its middle, and which rows are seen."""

import textwrap
from collections.abc import Sequence

from rich.console import OverflowMethod
from rich.text import Text

from hvd_elastic.system.plain_words import cut_middle, printable


def wrapped(text: str, width: int, *, lines: int = 2, indent: str = "") -> list[str]:
    """At most `lines` lines of at most `width` characters. What is longer lacks its middle, never its end."""
    longest, found = len(text), [text]
    while len(found := textwrap.wrap(cut_middle(text, longest), width, subsequent_indent=indent) or [""]) > lines:
        longest = min(longest - 1, lines * width)
    return found


def visible(heights: Sequence[int], row: int, room: int) -> range:
    """Which rows are seen in `room` lines around the chosen one. `heights`: lines of each row."""
    first = last = min(max(row, 0), len(heights))
    left = room
    while (ends := last < len(heights) and heights[last] <= left) or (first > 0 and heights[first - 1] <= left):
        if ends:
            left -= heights[last]
            last += 1
        if first > 0 and heights[first - 1] <= left:
            first -= 1
            left -= heights[first]
    return range(first, last)


def line(text: str, style: str = "", *, overflow: OverflowMethod = "crop") -> Text:
    """One line of the screen, which is never wrapped again."""
    return Text(printable(text), style=style, no_wrap=True, overflow=overflow)
