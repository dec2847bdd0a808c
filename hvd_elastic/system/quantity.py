"""Kubernetes quantities: `500m` CPUs, `32Gi` of memory."""

import re
from decimal import Decimal
from typing import Final

_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?[0-9]+))?"
)
"""As the API server reads it (apimachinery, `pkg/api/resource/quantity.go`, the grammar above `Quantity`)."""
_FACTORS: Final[dict[str | None, Decimal]] = {
    None: Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_MEBIBYTE: Final = 1024**2
_LONGEST: Final = 32
"""Characters. Longer text is not a quantity, but an attempt to keep us busy with arithmetic."""
_MOST: Final = Decimal("1e21")
"""1,000 E, which nothing has. A Decimal is exact up to 28 digits."""


def parse(text: str) -> Decimal:
    """The value of a quantity in its base unit (CPUs or bytes). Raises ValueError for any other text."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError("is not a Kubernetes quantity")
    exponent = int(match[3] or 0)
    if abs(exponent) > _LONGEST or abs(amount := Decimal(match[1]) * _FACTORS[match[2]].scaleb(exponent)) >= _MOST:
        raise ValueError("is beyond every quantity that Kubernetes counts with")
    return amount


def count(value: object) -> int:
    """A number of whole things, such as GPUs, as the API server writes it (`1k`). Raises ValueError."""
    amount = parse(str(value))
    if amount < 0 or amount % 1:
        raise ValueError("is a quantity, but not a number of whole things")
    return int(amount)


def cpu(value: object) -> str:
    """A number of CPUs as Kubernetes writes it. Raises ValueError, also for 0 and below 1m."""
    text = _text_of(value)
    amount = parse(text)
    if amount <= 0:
        raise ValueError("must be more than 0 CPUs")
    if (amount * 1000) % 1:
        raise ValueError("is finer than a thousandth of a CPU")
    return text


def memory(value: object) -> str:
    """An amount of memory or storage as Kubernetes writes it. Raises ValueError below 1Mi: then a unit is missing."""
    text = _text_of(value)
    amount = parse(text)
    if amount < _MEBIBYTE:
        number = text.rstrip("m")
        raise ValueError(f"is {amount:f} bytes; write a unit, such as {number if number.isdecimal() else 4}Gi")
    if amount % 1:
        raise ValueError("is not a whole number of bytes")
    return text


def positive(value: object) -> str:
    """A quantity of any resource as Kubernetes writes it. Raises ValueError, also for 0."""
    text = _text_of(value)
    if parse(text) <= 0:
        raise ValueError("must be more than 0")
    return text


def mebibytes(amount: Decimal) -> str:
    """An amount of bytes in whole mebibytes, rounded down, at least one."""
    return f"{max(1, int(amount // _MEBIBYTE))}Mi"


def _text_of(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("is not a Kubernetes quantity")  # noqa: TRY004 - pydantic collects ValueErrors
    return value if isinstance(value, str) else f"{Decimal(str(value)):f}"
