"""What this room needs of a training state."""

from typing import Any, Protocol, TypeGuard


class ElasticState(Protocol):
    """The part of `horovod.common.elastic.State` that `elastic.run` uses: ours and Horovod's own states have it."""

    def commit(self) -> None: ...
    def restore(self) -> None: ...
    def sync(self) -> None: ...
    def on_reset(self) -> None: ...
    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None: ...


class DurableState(ElasticState, Protocol):
    """The State of this project. Horovod's own live in the workers' memory alone."""

    step_count: int

    def end_training(self) -> None: ...


def is_durable(state: ElasticState) -> TypeGuard[DurableState]:
    """Whether it is this project's State."""
    return hasattr(state, "end_training")
