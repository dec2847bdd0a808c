"""Captures a snapshot: copies containers, keeps tensors by reference. Only this step of a save blocks training."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from hvd_elastic.trainer.checkpoint.errors import CaptureError


@dataclass(slots=True)
class Capture:
    """The values in the form of the archive's tree, and the tensors that they refer to by index."""

    values: object = None
    tensors: list[torch.Tensor] = field(default_factory=list)
    _versions: list[int | None] = field(default_factory=list)
    _seen: dict[tuple[object, ...], int] = field(default_factory=dict)
    _problems: list[str] = field(default_factory=list)

    @classmethod
    def take(cls, snapshot: Mapping[str, object]) -> "Capture":
        """Walk the snapshot. Only tensors that are not plain host memory are read, to be copied.

        Raises:
            CaptureError: values could only be stored as a pickle; the message names each by its path.
        """
        capture = cls()
        capture.values = capture._value(snapshot, "")
        if capture._problems:
            raise CaptureError("the snapshot cannot be stored without pickle:\n" + "\n".join(capture._problems))
        return capture

    def changed(self) -> bool:
        """Whether a tensor was written to since the capture."""
        return any(_version(t) != v for t, v in zip(self.tensors, self._versions, strict=True))

    def _value(self, value: object, path: str) -> object:
        match value:
            case None | bool():
                return value
            case str() | int() | float():
                return _scalar(value)
            case torch.Tensor():
                return {"tensor": self._tensor(value, path)}
            case np.ndarray() | np.generic():
                return self._array(np.array(value), path)
        return self._container(value, path)

    def _container(self, value: object, path: str) -> object:
        match value:
            case Mapping():
                return {"dict": [[self._value(k, path), self._value(v, f"{path}.{k}")] for k, v in value.items()]}
            case list():
                return [self._value(v, f"{path}[{i}]") for i, v in enumerate(value)]
            case tuple():
                return {"tuple": [self._value(v, f"{path}[{i}]") for i, v in enumerate(value)]}
            case set() | frozenset():
                return {"set": [self._value(v, path) for v in sorted(value, key=repr)]}
            case bytes():
                return {"bytes": b64encode(value).decode()}
        return self._add_problem(path, type(value).__qualname__)

    def _add_problem(self, path: str, kind: str) -> int:
        self._problems.append(f"{path.lstrip('.')}: {kind}: use plain values, dense tensors or numpy arrays of numbers")
        return -1

    def _array(self, value: npt.NDArray[np.generic], path: str) -> object:
        if value.dtype.kind not in "biufc" or not value.dtype.isnative:
            return self._add_problem(path, f"array of {value.dtype}")
        return {"array": self._tensor(torch.from_numpy(value), path)}

    def _tensor(self, value: torch.Tensor, path: str) -> int:
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            return self._add_problem(path, f"tensor of {value.layout} on {value.device}")
        identity = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())
        if value.numel() and identity in self._seen:
            return self._seen[identity]
        self._seen[identity] = len(self.tensors)
        self.tensors.append(_in_host_memory(value))
        self._versions.append(_version(self.tensors[-1]))
        return len(self.tensors) - 1


def _scalar(value: str | int | float) -> str | int | float:
    """Convert a subclass, such as IntEnum or numpy.float64, to the plain type."""
    kind = next(kind for kind in (str, int, float) if isinstance(value, kind))
    return kind(value)


def _in_host_memory(value: torch.Tensor) -> torch.Tensor:
    return value.detach().resolve_conj().resolve_neg().to("cpu").contiguous()


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version
