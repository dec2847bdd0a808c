"""Horovod's own exceptions, which scripts catch too. Importing this module imports Horovod."""

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]
