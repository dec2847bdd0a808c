"""What runs inside a worker process: the elastic state, the way from world to world, and the samples' account.

Names are imported when they are first used: PID 1 of a worker pod reads `telemetry` before torch may be imported,
and `hvd-elastic --help` never imports it. `elastic.run` is `elastic.run.run` in here: a package cannot export a name
that is one of its modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvd_elastic.trainer.elastic.horovod_patches import init
    from hvd_elastic.trainer.fit.trainer import Trainer
    from hvd_elastic.trainer.state.elastic_state import State
    from hvd_elastic.trainer.telemetry.events import subscribe

__all__ = ["State", "Trainer", "init", "subscribe"]

_HOMES = {
    "State": "hvd_elastic.trainer.state.elastic_state",
    "Trainer": "hvd_elastic.trainer.fit.trainer",
    "init": "hvd_elastic.trainer.elastic.horovod_patches",
    "subscribe": "hvd_elastic.trainer.telemetry.events",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
