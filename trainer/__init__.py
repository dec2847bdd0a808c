"""What runs inside a worker process: the elastic state, the way from world to world, and the samples' account.

Names are imported when they are first used: `trainer.pod` runs before torch may be imported, and `hvd-elastic --help`
never imports it. `elastic.run` is `trainer.run.run`: a package cannot export a name that is one of its modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.events import subscribe
    from trainer.loop import Trainer
    from trainer.rendezvous import init
    from trainer.state import State

__all__ = ["State", "Trainer", "init", "subscribe"]

_HOMES = {
    "State": "trainer.state",
    "Trainer": "trainer.loop",
    "init": "trainer.rendezvous",
    "subscribe": "trainer.events",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
