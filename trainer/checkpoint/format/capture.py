"""Captures a snapshot: copies containers, keeps tensors by reference. Only this step of a save blocks training."""

import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from hvd_elastic.trainer.checkpoint.errors import CaptureError
from hvd_elastic.trainer.checkpoint.format.plain_values import (
    GREATEST_INT,
    LEAST_INT,
    NUMBER_KINDS,
    UnstorableValueError,
    encode,
    storable_dtype,
    way_out,
)
from hvd_elastic.trainer.checkpoint.format.script_types import name_of

MOST_LEVELS: Final = 100
"""Containers within each other. JSON and this walk recurse; what is deeper could be written and not be read."""

FACTORIES: Final[Mapping[str, Callable[[], object]]] = {
    kind.__name__: kind for kind in (int, float, complex, bool, str, bytes, list, dict, set, tuple, Counter, deque)
}
"""Factories that a defaultdict may have."""

_SELF_EVIDENT: Final = frozenset({float, bool, type(None)})


@dataclass(slots=True)
class Capture:
    """The values in the form of the archive's tree, and the tensors that they refer to by index."""

    values: object = None
    tensors: list[torch.Tensor] = field(default_factory=list)
    places: list[list[tuple[object, ...]]] = field(default_factory=list)
    """For each tensor, the paths at which it stands: more than one if it is tied. As `_path` has them."""
    _versions: list[int | None] = field(default_factory=list)
    _seen: dict[tuple[object, ...], int] = field(default_factory=dict)
    _problems: list[str] = field(default_factory=list)
    _path: list[object] = field(default_factory=list)
    """Keys and indices from the root to the present value. An index is an int in a tuple of one."""
    _in_key: int = 0
    """Keys and members of sets that the present value is a part of."""

    @classmethod
    def take(cls, snapshot: Mapping[str, object]) -> "Capture":
        """Walk the snapshot. Only tensors that are not plain host memory are read, to be copied.

        Raises:
            CaptureError: values cannot be stored; the message names each by its path, with the way out.
        """
        capture = cls()
        capture.values = capture._value(dict(snapshot))
        if capture._problems:
            raise CaptureError("the snapshot cannot be stored without pickle:\n" + "\n".join(capture._problems))
        return capture

    def changed(self) -> bool:
        """Whether a tensor was written to since the capture."""
        return any(_version(t) != v for t, v in zip(self.tensors, self._versions, strict=True))

    def _value(self, value: object) -> object:
        kind = type(value)
        container = _CONTAINERS.get(kind)
        if container is not None:
            return self._container(container, value)
        try:
            if isinstance(value, torch.Tensor):
                return self._tensor(value)
            if kind is np.ndarray:
                return self._array(value)
            if isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple):
                return self._container(Capture._named_tuple, value)
            return encode(value)
        except UnstorableValueError as error:
            return self._add_problem(str(error))

    def _container(self, container: "Callable[[Capture, Any], object]", value: object) -> object:
        if len(self._path) >= MOST_LEVELS:
            return self._add_problem(
                f"{type(value).__qualname__}: nested deeper than {MOST_LEVELS}, or contains itself"
            )
        encoded = container(self, value)
        # A `state_dict()` has the versions of its modules there.
        attributes = getattr(value, "__dict__", None)
        return {"with_attributes": [encoded, self._pairs(attributes)]} if attributes else encoded

    def _add_problem(self, what: str) -> object:
        self._problems.append(f"{_text_of(self._path)}: {what}")
        return None

    @contextmanager
    def _key(self) -> Iterator[None]:
        self._in_key += 1
        self._path.append("(a key)")
        yield
        self._path.pop()
        self._in_key -= 1

    def _items(self, value: Collection[object]) -> list[object]:
        if _stands_for_itself(value):
            return list(value)
        items = []
        for index, item in enumerate(value):
            self._path.append((index,))
            items.append(self._value(item))
            self._path.pop()
        return items

    def _pairs(self, value: Mapping[object, object]) -> list[list[object]]:
        pairs = []
        for key, item in value.items():
            encoded = key if type(key) is str and key.isascii() else self._hashable(key)
            self._path.append(key)
            pairs.append([encoded, self._value(item)])
            self._path.pop()
        return pairs

    def _hashable(self, key: object) -> object:
        with self._key():
            return self._value(key)

    def _members(self, value: Iterable[object]) -> list[object]:
        # In an order of its own, so that the same set makes the same bytes.
        return sorted((self._hashable(member) for member in value), key=json.dumps)

    def _default_dict(self, value: "defaultdict[object, object]") -> object:
        factory = value.default_factory
        name = getattr(factory, "__name__", type(factory).__name__)
        if factory is not None and FACTORIES.get(name) is not factory:
            return self._add_problem(f"defaultdict of {name}: use one of {', '.join(FACTORIES)}")
        return {"defaultdict": [None if factory is None else name, self._pairs(value)]}

    def _named_tuple(self, value: Any) -> object:
        name = name_of(type(value))
        if name is None:
            what = f"{type(value).__qualname__}: define it at the top of a module, so that it can be found"
            return self._add_problem(what)
        if getattr(value, "__dict__", None):
            return self._add_problem(f"{type(value).__qualname__}: a named tuple with attributes: use a dict")
        return {"namedtuple": [*name, list(value._fields), self._items(tuple(value))]}

    def _array(self, value: Any) -> object:
        dtype = value.dtype
        if dtype.kind not in NUMBER_KINDS + "SU" or not dtype.itemsize:
            raise UnstorableValueError(f"array of {dtype}: use an array of numbers")
        raw: npt.NDArray[np.uint8] = np.array(value, order="C").reshape(-1).view(np.uint8)
        return {"ndarray": [self._add(torch.from_numpy(raw)), dtype.str, list(value.shape)]}

    def _tensor(self, value: torch.Tensor) -> object:
        kind = type(value)
        if self._in_key:
            raise UnstorableValueError(f"{kind.__qualname__}: use plain values in keys and sets")
        if kind is not torch.Tensor and kind is not torch.nn.Parameter:
            raise UnstorableValueError(f"{kind.__qualname__}: {way_out(value)}")
        index = self._index(value)
        if kind is torch.nn.Parameter:
            return {"parameter": [index, value.requires_grad]}
        return {"tensor_with_grad": index} if value.requires_grad else {"tensor": index}

    def _index(self, value: torch.Tensor) -> int:
        if value.is_nested or value.layout != torch.strided or value.is_quantized or value.is_meta:
            what = "nested tensor" if value.is_nested else f"tensor of {value.layout} on {value.device}"
            raise UnstorableValueError(f"{what}: use a dense tensor")
        if not storable_dtype(value.dtype):
            raise UnstorableValueError(f"tensor of {value.dtype}: convert it to a dtype of whole bytes")
        conjugate, negative = value.is_conj(), value.is_neg()
        identity = (value.data_ptr(), value.device, value.dtype, value.shape, value.stride(), conjugate, negative)
        if value.numel() and identity in self._seen:
            self.places[self._seen[identity]].append(tuple(self._path))
            return self._seen[identity]
        self._seen[identity] = len(self.tensors)
        value = value.detach()
        if conjugate or negative or not value.is_cpu or not value.is_contiguous():
            value = value.resolve_conj().resolve_neg().to("cpu").contiguous()
        return self._add(value)

    def _add(self, value: torch.Tensor) -> int:
        self.tensors.append(value)
        self.places.append([tuple(self._path)])
        self._versions.append(_version(value))
        return len(self.tensors) - 1


_CONTAINERS: Final[dict[type, Callable[[Capture, Any], object]]] = {
    dict: lambda capture, value: {"dict": capture._pairs(value)},
    OrderedDict: lambda capture, value: {"ordered": capture._pairs(value)},
    Counter: lambda capture, value: {"counter": capture._pairs(value)},
    defaultdict: Capture._default_dict,
    list: Capture._items,
    tuple: lambda capture, value: {"tuple": capture._items(value)},
    deque: lambda capture, value: {"deque": [capture._items(value), value.maxlen]},
    set: lambda capture, value: {"set": capture._members(value)},
    frozenset: lambda capture, value: {"frozenset": capture._members(value)},
}


def _stands_for_itself(items: Collection[Any]) -> bool:
    """Whether all items are numbers as JSON has them. Losses of many steps are, and are looked at in one go."""
    kinds = set(map(type, items))
    return kinds <= _SELF_EVIDENT or (kinds == {int} and min(items) >= LEAST_INT and max(items) <= GREATEST_INT)


def _text_of(path: list[object]) -> str:
    """Return the path as a script would write it: `model.weight[0]`. The middle of a very long one is left out."""
    shown = path if len(path) <= 12 else [*path[:6], "...", *path[-5:]]
    return "".join(
        f"[{part[0]}]" if isinstance(part, tuple) and len(part) == 1 else f".{_name(part)}" for part in shown
    )[1:]


def _name(key: object) -> str:
    try:
        return str(key)
    except ValueError:  # an integer of very many digits
        return type(key).__name__


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version
