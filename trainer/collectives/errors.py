"""Horovod's own exceptions, which scripts catch too; over torch.distributed ours, which mean the same.

Importing this module imports Horovod where that is the engine.
"""

from typing import TYPE_CHECKING

from hvd_elastic.trainer.collectives.engine import IS_TORCH

if TYPE_CHECKING or not IS_TORCH:
    from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
else:

    class HorovodInternalError(RuntimeError):
        """A rank was lost, or calls another operation than this one. `elastic.run` goes back to the last commit."""

    class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818 - the name by which scripts know it
        """Hosts were added or removed. `elastic.run` forms the next world."""

        def __init__(self, skip_sync: bool) -> None:
            super().__init__("hosts were added or removed")
            self.skip_sync = skip_sync


__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]
