"""Values without parts, as they stand in an archive's JSON tree: how each type is written, and how it is read.

null, booleans, numbers and strings stand for themselves, where JSON gives back what it was given. Every other value is
an object with one key, its kind. No type is guessed: a value whose exact type has no kind is refused.
"""

import datetime as dt
from base64 import b64decode, b64encode
from collections.abc import Callable
from enum import Enum
from functools import cache
from pathlib import Path, PosixPath, PurePosixPath
from typing import Any, Final

import numpy as np
import torch

from hvd_elastic.trainer.checkpoint.format.script_types import find_enum, name_of

LEAST_INT: Final = -(1 << 63)
GREATEST_INT: Final = (1 << 63) - 1
"""Greater integers are written in hexadecimal: Python refuses to read decimal numbers of more than 4300 digits."""

NUMBER_KINDS: Final = "biufcmM"
"""numpy's dtype kinds of numbers, dates and spans of time."""


class UnstorableValueError(Exception):
    """The value has no kind. The text names its type and the way out."""


def encode(value: object) -> object:
    """Return the JSON form of a value. Raises UnstorableValueError."""
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    if isinstance(value, Enum):
        return {"enum": _enum(value)}
    if isinstance(value, np.generic) and value.dtype.kind in NUMBER_KINDS:
        return {"numpy": [value.dtype.str, _text(value.tobytes())]}
    raise UnstorableValueError(f"{type(value).__qualname__}: {way_out(value)}")


def way_out(value: object) -> str:
    """Return what to do about a value whose type has no kind."""
    for plain in (bool, int, float, complex, str, bytes, dict, list, tuple, set, frozenset):
        if isinstance(value, plain):
            return f"convert it to a plain {plain.__name__}"
    if isinstance(value, torch.Tensor):
        return "convert it to a plain tensor"
    return "use plain values, dense tensors or numpy arrays of numbers"


@cache
def storable_dtype(dtype: torch.dtype) -> bool:
    """Whether tensors of `dtype` are whole bytes that can be viewed as such."""
    try:
        return torch.zeros(2, dtype=dtype).view(torch.uint8).view(dtype).shape == (2,)
    except (RuntimeError, TypeError, NotImplementedError):
        return False


def dtype_named(name: object) -> torch.dtype:
    """Return the dtype of a name such as `float32`. Raises TypeError."""
    dtype = vars(torch).get(str(name))
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"there is no dtype {name}")
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype, such as `float32`."""
    return str(dtype).removeprefix("torch.")


def number_dtype(text: object, *, more: str = "") -> np.dtype[Any]:
    """Return numpy's dtype for a text such as `<f4`. Raises TypeError for one of objects or records."""
    dtype = np.dtype(str(text))
    if dtype.kind not in NUMBER_KINDS + more or not dtype.itemsize:
        raise TypeError(f"{text} is not a dtype of numbers")
    return dtype


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


def _int(value: int) -> object:
    return value if LEAST_INT <= value <= GREATEST_INT else {"int": hex(value)}


def _str(value: str) -> object:
    # JSON joins two halves of a surrogate pair to one character.
    if value.isascii() or value.isprintable() or not any("\ud800" <= character <= "\udfff" for character in value):
        return value
    return {"str": _text(value.encode("utf-8", "surrogatepass"))}


def _enum(value: Enum) -> list[str]:
    kind = type(value)
    if kind.__members__.get(value.name) is not value:
        raise UnstorableValueError(f"{kind.__qualname__}: a combination of flags: convert it to a plain int")
    return [*_named(kind), value.name]


def _named(kind: type) -> tuple[str, str]:
    name = name_of(kind)
    if name is None:
        raise UnstorableValueError(f"{kind.__qualname__}: define it at the top of a module, so that it can be found")
    return name


def _moment(value: dt.datetime | dt.time) -> list[object]:
    if value.tzinfo is not None and type(value.tzinfo) is not dt.timezone:
        raise UnstorableValueError(
            f"{type(value).__name__} in zone {value.tzinfo}: convert it to a fixed offset: .astimezone(timezone.utc)"
        )
    return [value.isoformat(), value.fold]


_ENCODERS: Final[dict[type, Callable[[Any], object]]] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    float: lambda value: value,
    int: _int,
    str: _str,
    bytes: lambda value: {"bytes": _text(value)},
    bytearray: lambda value: {"bytearray": _text(bytes(value))},
    complex: lambda value: {"complex": [value.real, value.imag]},
    range: lambda value: {"range": [_int(each) for each in (value.start, value.stop, value.step)]},
    PosixPath: lambda value: {"path": _str(str(value))},
    PurePosixPath: lambda value: {"pure_path": _str(str(value))},
    dt.datetime: lambda value: {"datetime": _moment(value)},
    dt.time: lambda value: {"time": _moment(value)},
    dt.date: lambda value: {"date": value.isoformat()},
    dt.timedelta: lambda value: {"timedelta": [value.days, value.seconds, value.microseconds]},
    torch.dtype: lambda value: {"dtype": dtype_name(value)},
    torch.device: lambda value: {"device": str(value)},
    torch.Size: lambda value: {"size": list(value)},
}


def _decode_numpy(content: Any) -> object:
    dtype, text = content
    (value,) = np.frombuffer(_bytes(text), number_dtype(dtype))
    return value


def _decode_text(content: Any) -> str:
    return content if isinstance(content, str) else str(DECODERS["str"](content["str"]))


def _decode_number(content: Any) -> int:
    return content if isinstance(content, int) else int(content["int"], 16)


def _decode_datetime(content: Any) -> object:
    text, fold = content
    return dt.datetime.fromisoformat(text).replace(fold=fold)


def _decode_time(content: Any) -> object:
    text, fold = content
    return dt.time.fromisoformat(text).replace(fold=fold)


DECODERS: Final[dict[str, Callable[[Any], object]]] = {
    "int": lambda text: int(text, 16),
    "str": lambda text: _bytes(text).decode("utf-8", "surrogatepass"),
    "bytes": _bytes,
    "bytearray": lambda text: bytearray(_bytes(text)),
    "complex": lambda parts: complex(*parts),
    "range": lambda parts: range(*map(_decode_number, parts)),
    "path": lambda text: Path(_decode_text(text)),
    "pure_path": lambda text: PurePosixPath(_decode_text(text)),
    "datetime": _decode_datetime,
    "time": _decode_time,
    "date": dt.date.fromisoformat,
    "timedelta": lambda parts: dt.timedelta(*parts),
    "dtype": dtype_named,
    "device": torch.device,
    "size": torch.Size,
    "numpy": _decode_numpy,
    "enum": lambda names: find_enum(*names),
}
"""How the content of each kind is read. They raise ValueError, TypeError, KeyError or the like for damaged content."""
