"""What can go wrong with durable checkpoints, one class for each thing a caller can act on."""

from hvd_elastic.mpijob.contract import Exit, HvdElasticError


class CheckpointError(HvdElasticError):
    """Root of the errors of durable checkpoints."""


class CheckpointUrlError(CheckpointError):
    """The URL, or an interval, cannot be used. `str()` gives every problem, one a line."""

    exit_code = Exit.BAD_INPUT


class PrefixOwnedError(CheckpointError):
    """The prefix belongs to another job. Nothing was written."""

    exit_code = Exit.BAD_INPUT


class FencedError(CheckpointError):
    """A newer writer has claimed the prefix; this one writes and deletes nothing any more."""


class StoreError(CheckpointError):
    """The store did not do what was asked, after all retries."""


class StoreFullError(StoreError):
    """No space, or no quota, is left in the store."""


class CorruptError(CheckpointError):
    """What was read is not what was written: a digest, a size or the structure differs."""


class CaptureError(CheckpointError):
    """The snapshot cannot be stored: a value that needs pickle, or a buffer that changed while it was held."""
