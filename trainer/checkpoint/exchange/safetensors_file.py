"""safetensors: tensors by name, and metadata of texts (huggingface/safetensors, README.md, "Format").

Values that are no tensors go into the metadata, as JSON. A tensor that has several names is written once, as
`safetensors.torch.save_model` does it: the other names are in the metadata, each with the name that is kept
(docs/source/torch_shared_tensors.mdx there). `load_model` takes such a file.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

from hvd_elastic.trainer.checkpoint.errors import CorruptError, ExchangeError
from hvd_elastic.trainer.checkpoint.exchange.named_tensors import TREE, put_together, take_apart
from hvd_elastic.trainer.checkpoint.exchange.plain_content import Content


def write(path: Path, content: Content, facts: Mapping[str, str]) -> None:
    """Write a content. Raises ExchangeError: safetensors lacks the dtype of a tensor; the message names each."""
    _check_installed()
    from safetensors.torch import save_file

    apart = take_apart(content)
    strange = [f"{name}: {tensor.dtype}" for name, tensor in apart.tensors.items() if not _has(tensor.dtype)]
    if strange:
        raise ExchangeError(
            "safetensors lacks these dtypes; export to torch or dcp, or without these names:\n" + "\n".join(strange)
        )
    metadata = {**apart.tied, **facts, "format": "pt", TREE: apart.tree}
    save_file(dict(apart.tensors), path, metadata=metadata)


def read(path: Path) -> Content:
    """Read a file of ours, or of anybody: then its tensors by name. Raises CorruptError."""
    _check_installed()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except SafetensorError as error:
        raise CorruptError(f"{path} is not a whole safetensors file: {error}") from error
    if TREE in metadata:
        return put_together(metadata[TREE], tensors)
    tied = {name: tensors[kept] for name, kept in metadata.items() if kept in tensors and name not in tensors}
    return {**tensors, **tied}


@cache
def _has(dtype: torch.dtype) -> bool:
    """Whether safetensors has a dtype. It tells by an error of its own or by a KeyError."""
    from safetensors import SafetensorError
    from safetensors.torch import save

    try:
        save({"tensor": torch.zeros(2, dtype=dtype)})
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError):
        return False
    return True


def _check_installed() -> None:
    try:
        import safetensors.torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise ExchangeError("safetensors is not installed: pip install 'hvd-elastic[train]'") from error
