"""What this room needs of a training state."""

from typing import Any, Protocol


class ElasticState(Protocol):
    """The part of `horovod.common.elastic.State` that `elastic.run` uses: ours and Horovod's own states have it."""

    def commit(self) -> None: ...  # noqa: D102
    def restore(self) -> None: ...  # noqa: D102
    def sync(self) -> None: ...  # noqa: D102
    def on_reset(self) -> None: ...  # noqa: D102
    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None: ...  # noqa: D102
