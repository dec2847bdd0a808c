"""torch.distributed.checkpoint: a folder with tensors and values by name, and an index, `.metadata`.

A name is the path with dots, as torch's own planner makes it (torch/distributed/checkpoint/_nested_dict.py):
`dcp.load({"model": model.state_dict()}, checkpoint_id=folder)` finds what it looks for. That planner makes texts of
keys that are numbers, and forgets what is empty; so the whole tree is in the folder, too, under a name of its own.

The index and all values that are no tensors are pickles. They are read with lists of what may be made, so no code of a
folder is run.
"""

import enum
import io
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from hvd_elastic.trainer.checkpoint.errors import CorruptError, ExchangeError
from hvd_elastic.trainer.checkpoint.exchange import INDEX
from hvd_elastic.trainer.checkpoint.exchange.named_tensors import TREE, put_together, take_apart
from hvd_elastic.trainer.checkpoint.exchange.plain_content import Content
from hvd_elastic.trainer.checkpoint.exchange.torch_file import load_plain


def write(path: Path, content: Content) -> None:
    """Write a content to a folder that does not exist."""
    apart = take_apart(content)
    names: dict[str, Any] = {TREE: apart.tree, **apart.tensors}
    names.update((other, apart.tensors[name]) for other, name in apart.tied.items())
    for name, value in _values(content):
        names.setdefault(name, value)
    with _alone():
        save(names, storage_writer=FileSystemWriter(path))


def _values(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield everything but tensors by name. Lists without tensors and dictionaries are values, as torch has it."""
    if isinstance(node, Mapping):
        pairs = [(str(key), value) for key, value in node.items()]
    elif isinstance(node, list | tuple) and any(isinstance(each, torch.Tensor | Mapping | list) for each in node):
        pairs = [(str(index), value) for index, value in enumerate(node)]
    else:
        if not isinstance(node, torch.Tensor):
            yield path, node
        return
    for key, value in pairs:
        yield from _values(value, f"{path}.{key}" if path else key)


def read(path: Path) -> Content:
    """Read a folder of ours, or of anybody: then its dictionaries and lists, with texts as keys.

    Raises:
        ExchangeError: it holds objects that only code from the folder can make.
        CorruptError: it is not whole.
    """
    reader = _Reader(path)
    try:
        index = reader.read_metadata()
        found: dict[str, Any] = {name: _empty(entry) for name, entry in index.state_dict_metadata.items()}
        with _alone():
            load(
                found, storage_reader=reader, planner=_Planner(flatten_state_dict=False, flatten_sharded_tensors=False)
            )
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        _refuse_code(path, next((each for each in causes if isinstance(each, pickle.UnpicklingError)), None))
        raise CorruptError(f"{path} is not a whole folder of torch.distributed.checkpoint: {causes}") from error
    except pickle.UnpicklingError as error:
        _refuse_code(path, error)
        raise
    except (OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise CorruptError(f"{path} is not a whole folder of torch.distributed.checkpoint: {error}") from error
    tree = found.get(TREE)
    if isinstance(tree, str):
        return put_together(tree, {name: value for name, value in found.items() if isinstance(value, torch.Tensor)})
    return _nested(found, index.planner_data or {})


def _refuse_code(path: Path, error: BaseException | None) -> None:
    if error is not None:
        why = str(error).partition("\n")[0]
        raise ExchangeError(f"{path}: {why}\nNo code of a checkpoint is run: save tensors and plain values alone")


def _empty(entry: object) -> Any:
    if isinstance(entry, metadata.TensorStorageMetadata):
        return torch.empty(entry.size, dtype=entry.properties.dtype)
    return None  # any value: what is read takes its place


def _nested(found: Mapping[str, Any], paths: Mapping[str, tuple[str | int, ...]]) -> Content:
    """Return dictionaries by the path of each name. Lists come as dictionaries of numbers first."""
    root: dict[Any, Any] = {}
    for name, value in found.items():
        *above, last = paths.get(name, (name,))
        node = root
        for part in above:
            node = node.setdefault(part, {})
        node[last] = value
    return {str(key): _with_lists(value) for key, value in root.items()}


def _with_lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(isinstance(key, int) for key in node):
        return [_with_lists(node[key]) for key in sorted(node)]
    return {key: _with_lists(value) for key, value in node.items()}


class _Reader(FileSystemReader):
    """Reads the index with a list of what may be made. torch's own (2.15) uses `pickle.load`."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> metadata.Metadata:
        index = _IndexUnpickler(io.BytesIO((Path(self.path) / INDEX).read_bytes())).load()
        if not isinstance(index, metadata.Metadata):
            raise pickle.UnpicklingError(f"its index is a {type(index).__name__}")
        self._require_own_files(index.storage_data)
        index.storage_meta = getattr(index, "storage_meta", None) or metadata.StorageMeta()
        index.storage_meta.load_id = self.load_id
        return index

    def _require_own_files(self, storage_data: Mapping[object, filesystem._StorageInfo]) -> None:
        """Refuse what the folder's author may not read, and a FIFO, whose writer would be awaited for ever.

        Raises:
            ExchangeError: the index names a file elsewhere.
            CorruptError: what it names is not a file.
        """
        for name in {place.relative_path for place in storage_data.values()}:
            named = PurePosixPath(name)
            if named.is_absolute() or ".." in named.parts:
                raise ExchangeError(f"{self.path}: its index names {name!r}, which is not in this folder")
            if not (Path(self.path) / named).is_file():
                raise CorruptError(f"{self.path}: its index names {name!r}, which is not a file")


_CLASSES: Final = {
    (kind.__module__, kind.__name__): kind
    for kind in (
        metadata.Metadata,
        metadata.StorageMeta,
        metadata.MetadataIndex,
        metadata.TensorStorageMetadata,
        metadata.TensorProperties,
        metadata.BytesStorageMetadata,
        metadata.ChunkStorageMetadata,
        metadata._MEM_FORMAT_ENCODING,
        filesystem._StorageInfo,
    )
}
"""What torch's own planner and writer put into an index."""

_MODULES_OF_PATHS: Final = {"pathlib", "pathlib._local"}
"""Where Python's paths say that they are from: 3.13 alone has the second, and all read what it wrote."""


class _IndexUnpickler(pickle.Unpickler):
    """Makes what an index consists of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of torch's description of checkpoints, or a constant of torch."""
        if (module, name) in _CLASSES:
            return _CLASSES[module, name]
        if module == "torch":
            found = vars(torch).get(name)
            if found is torch.Size or isinstance(found, torch.dtype | torch.layout | torch.memory_format):
                return found
        if (module, name) == ("torch.serialization", "_get_layout"):
            return torch.serialization._get_layout
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("builtins", "getattr"):
            return _member
        if module in _MODULES_OF_PATHS and name in {"PosixPath", "PurePosixPath"}:
            return PurePosixPath if name == "PurePosixPath" else Path
        raise pickle.UnpicklingError(f"its index names {module}.{name}")


def _member(kind: object, name: str) -> enum.Enum:
    """Return a member of one of torch's enumerations, which Python 3.11.0 to 3.11.3 pickle as `getattr(kind, name)`."""
    if isinstance(kind, enum.EnumType) and name in kind.__members__:
        return kind.__members__[name]
    raise pickle.UnpicklingError("its index names builtins.getattr")


class _Planner(DefaultLoadPlanner):
    """Reads values with `weights_only`. torch's own (2.15) does not."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        self.state_dict[read_item.dest_index.fqn] = load_plain(value)


@contextmanager
def _alone() -> Iterator[None]:
    """Let torch.distributed.checkpoint not warn that a single process writes or reads: that is what is wanted."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.distributed is")
        yield
