"""Errors of durable checkpoints: one class for each case that a caller can act on."""

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.stores.errors import CheckpointError, CheckpointUrlError, CorruptError, StoreError, StoreFullError

__all__ = [
    "CaptureError",
    "CheckpointError",
    "CheckpointNotFoundError",
    "CheckpointUrlError",
    "CorruptError",
    "ExchangeError",
    "FencedError",
    "IncompatibleError",
    "PrefixOwnedError",
    "StoreError",
    "StoreFullError",
]


class PrefixOwnedError(CheckpointError):
    """The prefix belongs to another job. Nothing was written."""

    exit_code = Exit.BAD_INPUT


class CheckpointNotFoundError(CheckpointError):
    """There is no such checkpoint below the prefix. The message names those that are nearest."""

    exit_code = Exit.BAD_INPUT


class FencedError(CheckpointError):
    """A newer writer has claimed the prefix; this one no longer writes or deletes anything."""


class IncompatibleError(CheckpointError):
    """The checkpoint is whole, but this script cannot take it. The message names what differs, and the way out."""

    exit_code = Exit.SCRIPT_MISTAKE


class ExchangeError(CheckpointError):
    """A file of another format cannot be written or read as asked. The message says why, and the way out."""

    exit_code = Exit.BAD_INPUT


class CaptureError(CheckpointError):
    """The snapshot cannot be stored: a value needs pickle, or a buffer changed while it was held."""
