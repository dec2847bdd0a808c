"""What stands in the place of Horovod's classes where Horovod is not the engine, and may not be installed."""

import queue
from collections.abc import Callable, Iterable
from typing import Any


class TorchState:
    """What `elastic.State` has of Horovod's `State`: host updates, and callbacks after a reset."""

    _host_messages: "queue.Queue[tuple[int, Any]]"
    _reset_callbacks: list[Callable[[], object]]

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Have these called in each new world but the first, before the state is synced."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Forget host updates of the world before. Called by `elastic.run` in each new world."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def reset(self) -> None:
        """Do what a class of the script's own has to do in a new world. Called before the callbacks."""


def init_torch_state(state: TorchState) -> None:
    """Give a state what Horovod's own `State` begins with."""
    state._host_messages = queue.Queue()
    state._reset_callbacks = []


class ElasticSampler:
    """Horovod's sampler, of which there is none here."""

    def reset(self) -> None:
        """Do nothing."""
