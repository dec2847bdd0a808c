"""What runs inside a worker process: the elastic state, the way from world to world, the data, and telemetry.

A name is imported when it is first used: PID 1 of a worker pod reads `telemetry` before torch may be imported, and
`hvd-elastic --help` never imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvd_elastic.trainer.collectives.any_rank import any_rank
    from hvd_elastic.trainer.elastic.horovod_patches import init
    from hvd_elastic.trainer.elastic.run import run
    from hvd_elastic.trainer.fit.best_model import KeepBest
    from hvd_elastic.trainer.fit.early_stop import EarlyStop
    from hvd_elastic.trainer.fit.moments import Moment, Stop
    from hvd_elastic.trainer.fit.trainer import Trainer
    from hvd_elastic.trainer.fit.trainer_options import Checkpointing, Computation, Evaluation, Reporting
    from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer
    from hvd_elastic.trainer.state.agreement import agree
    from hvd_elastic.trainer.state.elastic_state import State
    from hvd_elastic.trainer.state.saved_state import load
    from hvd_elastic.trainer.telemetry.events import subscribe

__all__ = [
    "Checkpointing",
    "Computation",
    "EarlyStop",
    "Evaluation",
    "KeepBest",
    "Moment",
    "Reporting",
    "ShardedOptimizer",
    "State",
    "Stop",
    "Trainer",
    "agree",
    "any_rank",
    "init",
    "load",
    "run",
    "subscribe",
]

_HOMES = {
    "Checkpointing": "hvd_elastic.trainer.fit.trainer_options",
    "Computation": "hvd_elastic.trainer.fit.trainer_options",
    "EarlyStop": "hvd_elastic.trainer.fit.early_stop",
    "Evaluation": "hvd_elastic.trainer.fit.trainer_options",
    "KeepBest": "hvd_elastic.trainer.fit.best_model",
    "Moment": "hvd_elastic.trainer.fit.moments",
    "Reporting": "hvd_elastic.trainer.fit.trainer_options",
    "ShardedOptimizer": "hvd_elastic.trainer.sharding.sharded_optimizer",
    "State": "hvd_elastic.trainer.state.elastic_state",
    "Stop": "hvd_elastic.trainer.fit.moments",
    "Trainer": "hvd_elastic.trainer.fit.trainer",
    "agree": "hvd_elastic.trainer.state.agreement",
    "any_rank": "hvd_elastic.trainer.collectives.any_rank",
    "init": "hvd_elastic.trainer.elastic.horovod_patches",
    "load": "hvd_elastic.trainer.state.saved_state",
    "run": "hvd_elastic.trainer.elastic.run",
    "subscribe": "hvd_elastic.trainer.telemetry.events",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
