"""`hvd-elastic launch`: Horovod's elastic launcher, driven by events.

It speaks the protocol of Horovod 0.28.1's elastic driver with the workers (`rank_and_size`, `worker_addresses`, the
notification service, Gloo's key-value store) and starts them with the same environment. Its decisions are its own:
`core.world` describes them.

Where to change what:

- add a cause of a resize: `CauseKind` in `core/resize_causes.py`.
- when a world is formed or left: `core/world_formation.py`.
- which requests at the rendezvous server are believed: `protocol/admission.py`.
- after which requests the world decides: `core/processes/awaited_members.py`.
- when a process that does not answer is written off: `core/signs_of_life.py`.
- when a pod that is gone counts as taken away: `core/hosts/lost_pods.py`, for both launchers.
- what becomes of the workers' lines: as lines and bars: `remote/output_lines.py`; where they go, or are lost:
  `output_sinks.py`.
- when `horovodrun` is begun again: `core/supervision.py`.
- what `hvd-elastic horovodrun` changes in horovodrun: `horovodrun/stock_horovodrun.py`.
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
