"""What a capture accepts comes back equal and of the same type; all else is refused, with its path and a way out."""

import datetime as dt
import json
import sys
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hvd_elastic.trainer.checkpoint.errors import CaptureError, IncompatibleError
from hvd_elastic.trainer.checkpoint.format.archive import Payload, restore
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from tests.properties import examples
from tests.trainer.checkpoint.snapshots import same


class Best(NamedTuple):
    step: Any
    value: Any


class Phase(Enum):
    WARM_UP = "warm-up"
    TRAIN = 2


class Level(IntEnum):
    LOW = 1


class Shade(StrEnum):
    RED = "red"


class Side(Flag):
    LEFT = 1
    RIGHT = 2


def archive(snapshot: dict[str, object]) -> torch.Tensor:
    payload = Payload(Capture.take(snapshot))
    whole = bytearray(payload.size_bytes)
    payload.copy(0, whole)
    return torch.frombuffer(whole, dtype=torch.uint8)


def there_and_back(snapshot: dict[str, object]) -> dict[str, Any]:
    return restore(archive(snapshot))


NUMPY_KINDS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "M8[D]", "m8[us]"]
offsets = st.integers(-720, 720).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
numpy_scalars = st.builds(
    lambda kind, data: np.frombuffer(data, np.dtype(kind))[0],
    st.sampled_from(NUMPY_KINDS),
    st.binary(min_size=16, max_size=16),
).filter(lambda scalar: scalar.dtype.kind != "b" or scalar.tobytes() in (b"\0", b"\1"))
strings = st.text() | st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010))
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 3).map(lambda exponent: (-7) ** (3000 + exponent))
    | st.floats()
    | st.complex_numbers()
    | strings
    | st.binary(max_size=20)
    | numpy_scalars
    | st.sampled_from([*Phase, *Level, *Shade, *Side])
    | st.sampled_from([torch.float32, torch.bfloat16, torch.device("cpu"), torch.device("cuda", 1), torch.Size([2, 3])])
    | st.builds(Path, st.just("/output") | st.just("x/y"))
    | st.builds(PurePosixPath, st.just("."))
    | st.datetimes()
    | st.datetimes(timezones=offsets)
    | st.datetimes().map(lambda moment: moment.replace(fold=1))
    | st.dates()
    | st.times()
    | st.times(timezones=offsets)
    | st.timedeltas()
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3))
)
hashable = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3) | st.builds(Best, inner, inner)
    ),
    max_leaves=4,
)
dtypes = [each for each in vars(torch).values() if isinstance(each, torch.dtype)]


def can_be_made(dtype: torch.dtype) -> bool:
    try:
        made = torch.zeros(2, dtype=dtype)
        return not made.is_quantized and made.view(torch.uint8).numel() == 2 * dtype.itemsize
    except (RuntimeError, TypeError, NotImplementedError):
        return False


def tensor_of(dtype: torch.dtype, shape: list[int], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = torch.Size(shape).numel() * dtype.itemsize
    raw = torch.randint(0, 2 if dtype is torch.bool else 255, (size,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape) if size else torch.empty(shape, dtype=dtype)


tensors = st.builds(
    tensor_of,
    st.sampled_from([each for each in dict.fromkeys(dtypes) if can_be_made(each)]),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(0, 1 << 20),
)
floating = st.builds(torch.ones, st.lists(st.integers(0, 3), max_size=2))
arrays = st.builds(
    lambda kind, rows, data: np.frombuffer(data * rows, np.dtype(kind)).reshape(rows, -1),
    st.sampled_from([*NUMPY_KINDS[1:], ">f4", ">i8", "S4", "U4", "g"]),
    st.integers(1, 3),
    st.just(b"a\0\0\0b\0\0\0c\0\0\0d\0\0\0"),
) | st.sampled_from([np.float64(2.5).reshape(()), np.zeros((0, 3), np.int8), np.asfortranarray(np.eye(2))])
leaves = (
    hashable
    | tensors
    | arrays
    | floating.map(torch.nn.Parameter)
    | floating.map(lambda tensor: torch.nn.Parameter(tensor, requires_grad=False))
    | floating.map(lambda tensor: tensor.requires_grad_())
    | floating.map(lambda tensor: tensor.expand(2, *tensor.shape))
    | st.builds(bytearray, st.binary(max_size=5))
)


def pairs(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(hashable, values, max_size=3)


values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(hashable, max_size=3)
        | pairs(inner)
        | pairs(inner).map(OrderedDict)
        | pairs(inner).map(Counter)
        | st.builds(
            defaultdict, st.sampled_from([None, int, float, str, list, dict, set, tuple, Counter, deque]), pairs(inner)
        )
        | st.builds(deque, st.lists(inner, max_size=3), st.none() | st.integers(3, 5))
        | st.builds(Best, inner, inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(hashable, values, max_size=4))
@example({"int64 key": {np.int64(1): 2}, "frozenset key": {frozenset({1, 2}): 3}})
@example({"halves": "\ud800\udc00", "digits": 10**5000})
@settings(max_examples=examples(300))
def test_every_value_that_is_accepted_comes_back_equal_and_of_its_type(snapshot: dict[str, object]) -> None:
    assert same(there_and_back(snapshot), snapshot)


def test_tied_tensors_stay_tied_and_are_stored_once() -> None:
    weight = torch.nn.Parameter(torch.randn(1000))
    values = there_and_back({"a": weight, "b": weight, "c": weight.detach(), "d": [weight.detach()]})
    assert values["a"] is values["b"]
    assert values["c"] is values["d"][0]
    assert values["a"].data_ptr() == values["c"].data_ptr()
    assert type(values["c"]) is torch.Tensor
    assert archive({"a": weight, "b": weight.detach()}).numel() < 4000 + 400


def test_the_versions_of_modules_come_back_with_their_state() -> None:
    """They are an attribute of what `state_dict()` returns. Without them `load_state_dict` takes it for an old one."""
    expected = torch.nn.BatchNorm1d(2).state_dict()
    found = there_and_back({"model": expected})["model"]
    assert same(found, expected)
    assert found._metadata == expected._metadata  # type: ignore[attr-defined]
    assert found._metadata[""] == {"version": 2}


class Settings(dict[str, int]):
    pass


class Loss(float):
    pass


def of_a_class_that_is_gone() -> object:
    class Local(NamedTuple):
        a: int

    return Local(1)


class Noted(Best):
    """It has a `__dict__`, unlike a named tuple."""


def noted() -> Noted:
    value = Noted(1, 2)
    vars(value)["note"] = "x"
    return value


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = (value,)
    return value


def itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Settings(a=1), r"Settings: convert it to a plain dict"),
        (noted(), r"Noted: a named tuple with attributes: use a dict"),
        (Loss(1.0), r"Loss: convert it to a plain float"),
        (UserDict(a=1), r"UserDict: use plain values"),
        (np.str_("x"), r"str_: convert it to a plain str"),
        (of_a_class_that_is_gone(), r"Local: define it at the top of a module"),
        (defaultdict(lambda: 1), r"defaultdict of <lambda>: use one of int, float"),
        (torch.eye(2).to_sparse(), r"sparse_coo"),
        (torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)]), r"nested"),
        (torch.empty(2, device="meta"), r"on meta"),
        (torch.nn.parameter.UninitializedParameter(), r"UninitializedParameter: convert it to a plain tensor"),
        (np.ma.masked_array([1]), r"MaskedArray: use plain values"),
        (np.zeros(2, dtype=[("a", "i4")]), r"array of \[\('a', '<i4'\)\]"),
        (np.array([print]), r"array of object"),
        (np.random.default_rng(0), r"Generator: use plain values"),
        (Side.LEFT | Side.RIGHT, r"Side: a combination of flags"),
        (dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")), r"datetime in zone UTC: convert it"),
        ({torch.zeros(1): 1}, r"\(a key\): Tensor: use plain values"),
        ({(1, torch.zeros(1)): 1}, r"\(a key\)\[1\]: Tensor"),
        (nested(1000), r"deeper than 100"),
        (itself(), r"contains itself"),
        (print, r"builtin_function_or_method"),
    ],
)
def test_all_else_is_refused_with_its_path_and_a_way_out(value: object, says: str) -> None:
    with pytest.raises(CaptureError, match=rf"state\.x.*{says}"):
        Capture.take({"state": {"x": value, "y": 1}})


def test_a_class_that_is_not_there_any_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = archive({"best": Best(1, 2), "phase": Phase.TRAIN})
    for name in ("Best", "Phase"):
        with monkeypatch.context() as gone:
            gone.delattr(sys.modules[__name__], name)
            with pytest.raises(IncompatibleError, match=rf"{name} of {__name__}.*import or define it"):
                restore(whole)


def test_a_class_that_has_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = archive({"best": Best(1, 2)})
    monkeypatch.setattr(Best, "_fields", ("step", "loss"))
    with pytest.raises(IncompatibleError, match="fields step, value"):
        restore(whole)


def test_reading_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class is only looked up among what the script itself has imported."""
    whole = archive({"best": Best(1, 2)})
    monkeypatch.delitem(sys.modules, __name__)
    with pytest.raises(IncompatibleError, match="import or define it"):
        restore(whole)
    assert __name__ not in sys.modules


def test_archives_of_earlier_versions_are_read() -> None:
    """They knew fewer kinds: an array also stood for a scalar of numpy, and every mapping was a dictionary."""
    tree = {
        "values": {
            "dict": [
                ["weight", {"tensor": 0}],
                ["array", {"array": 0}],
                [1, {"tuple": [{"set": [1, 2]}, {"bytes": "YQ=="}]}],
                ["great", 10**30],
                [{"tuple": ["a", 1]}, [None, True, 1.5]],
            ]
        },
        "tensors": [{"dtype": "float32", "shape": [2], "offset": 0}],
    }
    text = json.dumps(tree).encode()
    data = b"HVDECKP1" + len(text).to_bytes(8, "little") + text
    data += bytes(-len(data) % 64) + np.array([1, 2], np.float32).tobytes()
    values = restore(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    assert same(values.pop("weight"), torch.tensor([1.0, 2.0]))
    assert same(values.pop("array"), np.array([1, 2], np.float32))
    assert values == {1: ({1, 2}, b"a"), "great": 10**30, ("a", 1): [None, True, 1.5]}
