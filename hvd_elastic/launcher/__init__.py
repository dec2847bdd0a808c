"""`hvd-elastic launch`: Horovod's elastic launcher, driven by events.

It speaks the protocol of Horovod 0.28.1's elastic driver with the workers (`rank_and_size`, `worker_addresses`, the
notification service, Gloo's key-value store) and starts them with the same environment. Its decisions are its own:
`core.world` describes them.
"""

from typing import TYPE_CHECKING, Any

from hvd_elastic.launcher.launch_settings import LaunchSettings, OnError

if TYPE_CHECKING:
    from hvd_elastic.launcher.driver import LaunchOutcome
    from hvd_elastic.launcher.launch_job import launch

__all__ = ["LaunchOutcome", "LaunchSettings", "OnError", "launch"]


def __getattr__(name: str) -> Any:
    """Import `launch` and `LaunchOutcome` on first use, because they import Horovod."""
    if name == "launch":
        from hvd_elastic.launcher.launch_job import launch

        return launch
    if name == "LaunchOutcome":
        from hvd_elastic.launcher.driver import LaunchOutcome

        return LaunchOutcome
    raise AttributeError(name)
