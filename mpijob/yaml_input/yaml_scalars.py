"""How unquoted YAML scalars are read: as kubectl reads them, or as YAML 1.2 does.

PyYAML reads YAML 1.1, in which `workers: 1:4` is the number 64, `standby: off` is false and `2026-01-01` is a date.
kubectl's YAML library disagrees with it on `y`, `1:30`, `1e+3` and dates.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Scalar = str | int | float | bool | None

_TRUE: Final = frozenset(("true", "True", "TRUE"))
_FALSE: Final = frozenset(("false", "False", "FALSE"))
_YES: Final = _TRUE | {"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}
_NO: Final = _FALSE | {"n", "N", "no", "No", "NO", "off", "Off", "OFF"}
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_SPECIAL: Final = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_NUMBER_BEGINS: Final = "+-.0123456789"
_INTEGER: Final = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:(?:[0-9]++(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+][0-9]+)?|[0-9]+\.)")
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+", re.ASCII)
_DECIMAL_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]++\.[0-9]*)(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER: Final = 400
_LONGEST_DECIMAL: Final = 18


def kubectl_scalar(plain: str) -> Scalar:
    """The value of an unquoted scalar by the rules of `go.yaml.in/yaml/v2` (`resolve.go`), which kubectl uses."""
    if plain in _NULL:
        return None
    if plain in _YES or plain in _NO:
        return plain in _YES
    if plain in _SPECIAL:
        return _SPECIAL[plain]
    if plain[0] not in _NUMBER_BEGINS or len(plain) > _LONGEST_NUMBER:
        return plain
    number = _number(plain.replace("_", ""))
    return plain if number is None else number


def yaml_1_2_scalar(plain: str) -> Scalar:
    """The value by YAML 1.2, a number in decimal as it looks: `010` is ten. One of 19 characters or more stays text."""
    if plain in _NULL:
        return None
    if plain in _TRUE or plain in _FALSE:
        return plain in _TRUE
    if plain[0] not in _NUMBER_BEGINS or len(plain) > _LONGEST_NUMBER:
        return plain
    if _DECIMAL.fullmatch(plain):
        return int(plain) if len(plain) <= _LONGEST_DECIMAL else plain
    number = _finite(plain) if _DECIMAL_FLOAT.fullmatch(plain) else None
    return plain if number is None else number


def _number(text: str) -> int | float | None:
    if match := _INTEGER.fullmatch(text):
        return -_digits(match.group(1)) if text[0] == "-" else _digits(match.group(1))
    return _finite(text) if _FLOAT.fullmatch(text) else None


def _digits(text: str) -> int:
    base = {"x": 16, "o": 8, "b": 2}.get(text[1:2].lower())
    if base:
        return int(text[2:], base)
    return int(text, 8) if text.startswith("0") else int(text)


def _finite(text: str) -> float | None:
    """None for `1e+400`, which Go's ParseFloat refuses, so that it stays text."""
    number = float(text)
    return number if math.isfinite(number) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a document is read."""

    resolve: Callable[[str], Scalar]
    """The value of an unquoted scalar."""
    max_depth: int
    """Most collections within each other, counted with aliases expanded."""
    keys_are_text: bool
    """Whether a key is what is written, as people mean it, or its value as JSON writes it, as in Kubernetes."""


KUBECTL: Final = Dialect(resolve=kubectl_scalar, max_depth=100, keys_are_text=False)
"""What goes to Kubernetes."""
DESCRIPTION: Final = Dialect(resolve=yaml_1_2_scalar, max_depth=32, keys_are_text=True)
"""What people write for this project's own verbs."""
