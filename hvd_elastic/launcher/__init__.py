"""`hvd-elastic launch`: Horovod's elastic launcher, driven by events.

It speaks the protocol of Horovod 0.28.1's elastic driver with the workers (`rank_and_size`, `worker_addresses`, the
notification service, Gloo's key-value store) and starts them with the same environment. Its decisions are its own:
`world` says what they are.
"""

from typing import TYPE_CHECKING, Any

from hvd_elastic.launcher.settings import LaunchSettings, OnError

if TYPE_CHECKING:
    from hvd_elastic.launcher.driver import Outcome
    from hvd_elastic.launcher.job import launch

__all__ = ["LaunchSettings", "OnError", "Outcome", "launch"]


def __getattr__(name: str) -> Any:
    """`launch` and `Outcome` import Horovod, so they come when they are asked for."""
    if name == "launch":
        from hvd_elastic.launcher.job import launch

        return launch
    if name == "Outcome":
        from hvd_elastic.launcher.driver import Outcome

        return Outcome
    raise AttributeError(name)
