"""`torch.save`: the nested dictionaries as they are. They are read with `weights_only`, which runs no code."""

import pickle
from pathlib import Path
from typing import Any, BinaryIO

import torch

from hvd_elastic.trainer.checkpoint.errors import CorruptError, ExchangeError
from hvd_elastic.trainer.checkpoint.exchange.plain_content import Content


def write(path: Path, content: Content) -> None:
    """Write a content to a file that does not exist."""
    torch.save(content, path)


def load_plain(file: Path | BinaryIO) -> Any:
    """Return what `torch.save` wrote, without running code of it. Raises what `torch.load` raises."""
    # An empty `bytes` is pickled as a call of its class, which `weights_only` refuses by default.
    torch.serialization.add_safe_globals([bytes])
    return torch.load(file, map_location="cpu", weights_only=True)


def read(path: Path) -> Content:
    """Read a file.

    Raises:
        ExchangeError: it holds objects that only code from the file can make, or no dictionary.
        CorruptError: it is not whole.
    """
    try:
        content = load_plain(path)
    except pickle.UnpicklingError as error:
        why = str(error).partition("\n")[0]
        raise ExchangeError(
            f"{path}: {why}\nNo code of a file is run: load it in the program that wrote it, and save its state_dict()s"
            " alone"
        ) from error
    except (RuntimeError, EOFError, KeyError, ValueError) as error:
        raise CorruptError(f"{path} is not a whole file of torch.save: {error}") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ExchangeError(f"{path} holds a {kind}, not a dictionary: save a state_dict(), or a dictionary of them")
    return content
