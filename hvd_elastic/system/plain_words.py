"""Plain words of every room: numbers of things, long sentences made short, and strangers' words made harmless."""

import json
import re
from typing import Any, Final

_STEERING: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""What a terminal obeys instead of showing it: C0 without tab and newline, DEL, C1, all controls of the direction of
writing, the two separators of Unicode that some take for a newline; and halves of characters, which none can write."""
_OF_LINES: Final = re.compile(f"[{_STEERING}]")
_OF_ONE_LINE: Final = re.compile(f"[\t\n{_STEERING}]")


def count_words(count: int, thing: str) -> str:
    """`1 resize`, `2 resizes`, `2 batches`, `2 entries`. What is told ends with the thing's noun."""
    if count == 1:
        return f"{count} {thing}"
    if thing.endswith("y"):
        return f"{count} {thing[:-1]}ies"
    return f"{count} {thing}{'es' if thing.endswith(('s', 'tch')) else 's'}"


def cut_middle(text: str, longest: int) -> str:
    """At most so many characters. The middle is left out: reasons begin with a subject and end with the cause."""
    if len(text) <= longest:
        return text
    kept = max(0, longest - 5)
    return f"{text[: kept - kept // 2].rstrip()} ... {text[len(text) - kept // 2 :].lstrip()}"


def printable(text: str, *, lines: bool = False) -> str:
    """The text with `?` in place of what would steer a terminal.

    It is one line, as a name or a reason has to be, or else it could forge the next row. With `lines` tabs and
    newlines stay: this is for text that has been put together.
    """
    return (_OF_LINES if lines else _OF_ONE_LINE).sub("?", text)


def printable_json(value: object, **options: Any) -> str:
    r"""JSON as people read it, which gives back the same value: `\uXXXX` in place of what would steer a terminal.

    `options` are those of `json.dumps`, which see for the errors.
    """
    return _OF_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False, **options))
