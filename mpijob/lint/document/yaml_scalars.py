"""Resolves unquoted YAML scalars as kubectl does.

kubectl's YAML library and PyYAML disagree on `y`, `1:30`, `1e+3` and dates.
"""

import math
import re
from typing import Final

_TRUE: Final = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE: Final = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_SPECIAL: Final = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_INTEGER: Final = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?[0-9]*\.?[0-9]+([eE][-+][0-9]+)?|[-+]?[0-9]+\.[0-9]*")
_LONGEST_NUMBER: Final = 400

Scalar = str | int | float | bool | None


def resolve(plain: str) -> Scalar:
    """The value of an unquoted scalar by the rules of `go.yaml.in/yaml/v2` (`resolve.go`), which kubectl uses."""
    if plain in _NULL:
        return None
    if plain in _TRUE or plain in _FALSE:
        return plain in _TRUE
    if plain in _SPECIAL:
        return _SPECIAL[plain]
    if plain[0] not in "+-.0123456789" or len(plain) > _LONGEST_NUMBER:
        return plain
    number = _number(plain.replace("_", ""))
    return plain if number is None else number


def _number(text: str) -> int | float | None:
    if match := _INTEGER.fullmatch(text):
        return -_digits(match.group(1)) if text[0] == "-" else _digits(match.group(1))
    return float(text) if _FLOAT.fullmatch(text) else None


def _digits(text: str) -> int:
    base = {"x": 16, "o": 8, "b": 2}.get(text[1:2].lower())
    if base:
        return int(text[2:], base)
    return int(text, 8) if text.startswith("0") else int(text)
