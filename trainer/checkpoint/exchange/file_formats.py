"""Which format a file has, or gets; written whole or not at all."""

import os
import shutil
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from hvd_elastic.trainer.checkpoint.errors import CorruptError, ExchangeError
from hvd_elastic.trainer.checkpoint.exchange import INDEX
from hvd_elastic.trainer.checkpoint.exchange.plain_content import Content


class FileFormat(StrEnum):
    """A format that others read and write."""

    SAFETENSORS = "safetensors"
    TORCH = "torch"
    DCP = "dcp"


SUFFIXES: Final[Mapping[str, FileFormat]] = {
    ".safetensors": FileFormat.SAFETENSORS,
    ".pt": FileFormat.TORCH,
    ".pth": FileFormat.TORCH,
    ".bin": FileFormat.TORCH,
    ".ckpt": FileFormat.TORCH,
}
"""What the end of a name says of the format."""


def format_of_name(path: Path) -> FileFormat:
    """Return the format that a name asks for. Raises ExchangeError."""
    found = SUFFIXES.get(path.suffix)
    if found is None:
        formats = ", ".join(FileFormat)
        raise ExchangeError(f"{path}: the name does not tell the format: add --format, one of {formats}")
    return found


def write_file(path: Path, content: Content, file_format: FileFormat, *, facts: Mapping[str, str], force: bool) -> None:
    """Write a content beside `path`, and move it there when it is whole and on the disk.

    Args:
        path: the file, or with `dcp` the folder.
        content: nested containers of tensors and plain values.
        file_format: how it is written.
        facts: texts for formats that have metadata.
        force: replace what is there.

    Raises:
        ExchangeError: it is there already, its folder is not, or the format lacks a dtype.
    """
    if path.parts[0] in ("s3:", "file:"):
        raise ExchangeError(f"{path} is a URL: write a file of this machine, and copy it from there")
    if path.exists() and not force:
        raise ExchangeError(f"{path} exists: choose another name, or replace it with --force")
    if not path.parent.is_dir():
        raise ExchangeError(f"{path.parent} is not a folder: create it")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        _write(partial, content, file_format, facts)
        _sync(partial)
        _move(partial, path)
    finally:
        _remove(partial)


def _write(path: Path, content: Content, file_format: FileFormat, facts: Mapping[str, str]) -> None:
    match file_format:
        case FileFormat.SAFETENSORS:
            from hvd_elastic.trainer.checkpoint.exchange import safetensors_file

            safetensors_file.write(path, content, facts)
        case FileFormat.TORCH:
            from hvd_elastic.trainer.checkpoint.exchange import torch_file

            torch_file.write(path, content)
        case FileFormat.DCP:
            from hvd_elastic.trainer.checkpoint.exchange import distributed_folder

            distributed_folder.write(path, content)


def _sync(path: Path) -> None:
    for each in [path, *path.iterdir()] if path.is_dir() else [path]:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _move(partial: Path, path: Path) -> None:
    """Put `partial` in the place of what is there. A folder cannot be replaced in one step: the old one goes first."""
    if path.is_dir() or (path.exists() and partial.is_dir()):
        old = path.with_name(f".{path.name}.{os.getpid()}.old")
        path.rename(old)
        partial.rename(path)
        _remove(old)
    else:
        partial.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_file(path: Path) -> Content:
    """Read a file or a folder. Its content tells the format, not its name.

    Raises:
        ExchangeError: it is not there, is in none of the formats, or could only be read by running code from it.
        CorruptError: it is not whole.
    """
    match _format_of_content(path):
        case FileFormat.SAFETENSORS:
            from hvd_elastic.trainer.checkpoint.exchange import safetensors_file

            return safetensors_file.read(path)
        case FileFormat.TORCH:
            from hvd_elastic.trainer.checkpoint.exchange import torch_file

            return torch_file.read(path)
        case FileFormat.DCP:
            from hvd_elastic.trainer.checkpoint.exchange import distributed_folder

            return distributed_folder.read(path)


def is_exchanged(path: Path) -> bool:
    """Whether a file, or a folder of torch.distributed.checkpoint, is there."""
    return path.is_file() or (path / INDEX).is_file()


def _format_of_content(path: Path) -> FileFormat:
    if (path / INDEX).is_file():
        return FileFormat.DCP
    if path.is_dir():
        raise ExchangeError(f"{path} is a folder without {INDEX}, so not of torch.distributed.checkpoint")
    if not path.is_file():
        raise ExchangeError(f"{path} does not exist")
    with path.open("rb") as file:
        head = file.read(9)
    if head[8:9] == b"{":
        return FileFormat.SAFETENSORS
    if head.startswith((b"PK\x03\x04", b"\x80")):  # a zip file; a pickle, as torch wrote it before 1.6
        return FileFormat.TORCH
    raise CorruptError(f"{path} is neither of safetensors nor of torch.save")
