"""Host updates from the launcher, as Horovod's notification service receives them in a thread of its own, or ours."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from hvd_elastic.mpijob.contract import HOSTS_MIXED
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.torch_engine import notification_service
from hvd_elastic.trainer.collectives.torch_engine.notification_service import HostUpdateListener, PutBytes


def start(put_bytes: PutBytes) -> None:
    """Start the service of this process, which registers with the launcher; nothing without one, or a second time.

    Raises:
        RuntimeError: the launcher does not take the registration.
        OSError: the service finds no port.
    """
    if IS_TORCH:
        notification_service.THIS_PROCESS.start(put_bytes)
        return
    from horovod.common.elastic import notification_manager
    from horovod.runner.elastic import worker

    if hasattr(worker, "put_bytes_into_kvstore"):  # Horovod has the patch `worker-addresses`
        worker.put_bytes_into_kvstore = put_bytes
    else:
        worker.put_data_into_kvstore = in_stock_form(put_bytes)
    notification_manager.init()


@contextlib.contextmanager
def listening(listener: HostUpdateListener) -> Iterator[None]:
    """Tell the listener of host updates."""
    if IS_TORCH:
        with notification_service.THIS_PROCESS.listening(listener):
            yield
        return
    from horovod.common.elastic import notification_manager

    notification_manager.register_listener(listener)
    try:
        yield
    finally:
        notification_manager.remove_listener(listener)


def any_update() -> Any:
    """Return the update that may have added hosts and removed others."""
    if IS_TORCH:
        return HOSTS_MIXED
    from horovod.runner.elastic.worker import HostUpdateResult

    return HostUpdateResult.mixed


def in_stock_form(put_bytes: PutBytes) -> Callable[[str, int, str, str, object], None]:
    """Return what takes the place of stock Horovod's `put_data_into_kvstore`, which sends a pickle."""

    def put_data(address: str, port: int, scope: str, key: str, value: object) -> None:
        from horovod.runner.common.util import codec

        put_bytes(address, port, scope, key, codec.dumps_base64(value, to_ascii=False))

    return put_data
