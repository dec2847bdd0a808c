"""Errors of stores. Those of checkpoints' stores are CheckpointErrors, which is what scripts catch."""

from hvd_elastic.mpijob.contract import Exit, HvdElasticError


class CheckpointError(HvdElasticError):
    """Base class of the errors of durable checkpoints."""


class CheckpointUrlError(CheckpointError):
    """The URL or an interval cannot be used. `str()` names every problem, one per line."""

    exit_code = Exit.BAD_INPUT


class StoreError(CheckpointError):
    """A request to the store failed, after all retries."""


class MissingError(StoreError):
    """The store has no such object, or not so many bytes of it."""


class StoreFullError(StoreError):
    """No space, or no quota, is left in the store."""


class CorruptError(CheckpointError):
    """What was read differs from what was written, in a digest, a size or the structure."""


class ChangedObjectError(StoreError):
    """An object was replaced or deleted while it was read."""
