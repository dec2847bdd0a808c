"""The environment of a worker's command, as Horovod's own launcher makes it."""

import os
from collections.abc import Mapping
from typing import Final

from hvd_elastic.launcher.core.slot_placement import Slot
from hvd_elastic.launcher.launch_settings import LaunchSettings
from hvd_elastic.launcher.remote.host_addresses import HostAddresses
from hvd_elastic.launcher.remote.network_interfaces import interface_address, interface_towards
from hvd_elastic.mpijob.contract import ENV_RENDEZVOUS_ADDRESS, ENV_RENDEZVOUS_PORT, ENV_RENDEZVOUS_TOKEN, ENV_RUN_DIR

GLOO_TIMEOUT_SECONDS: Final = 10

_NOT_EXPORTED: Final = frozenset({"OLDPWD", "_HOROVOD_SECRET_KEY", ENV_RUN_DIR})
"""As Horovod's `env.IGNORE_REGEXES`, and the launcher's own folder."""


def bind_address(settings: LaunchSettings) -> str:
    """The address on which the rendezvous server listens; empty: all.

    Raises OSError for a `--network-interface` without one.
    """
    if settings.local_hosts is not None:
        return "127.0.0.1"
    if settings.network_interfaces:
        return interface_address(settings.network_interfaces[0])
    return ""  # which interface leads to the hosts is known only once there is one


def worker_environment(
    settings: LaunchSettings, slot: Slot, port: int, addresses: HostAddresses, *, token: str
) -> Mapping[str, str]:
    """The variables of the command in `slot`. Raises OSError without a network.

    As Horovod makes them in `gloo_run.create_run_env_vars` and `_slot_info_to_command_fn`. `port` is the rendezvous
    server's, and `token` tells it that a request comes from a process of this job.
    """
    address, gloo_interface, nccl_interfaces = _network(settings, slot, addresses)
    inherited = _inherited(keep_visible_devices=settings.local_hosts is not None)
    timeout = settings.gloo_timeout_seconds
    if timeout is not None or "HOROVOD_GLOO_TIMEOUT_SECONDS" not in inherited:
        inherited["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(timeout or GLOO_TIMEOUT_SECONDS)
    return {
        **inherited,
        **slot.environment(),
        "PYTHONUNBUFFERED": "1",
        ENV_RENDEZVOUS_ADDRESS: f"[{address}]" if ":" in address else address,
        ENV_RENDEZVOUS_PORT: str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": gloo_interface,
        "NCCL_SOCKET_IFNAME": nccl_interfaces,
        "HOROVOD_ELASTIC": "1",
        ENV_RENDEZVOUS_TOKEN: token,
    }


def _inherited(*, keep_visible_devices: bool) -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_EXPORTED and not name.startswith("BASH_FUNC_")
        if keep_visible_devices or not name.endswith("CUDA_VISIBLE_DEVICES")
    }


def _network(settings: LaunchSettings, slot: Slot, addresses: HostAddresses) -> tuple[str, str, str]:
    """The rendezvous server's address as the worker reaches it, Gloo's interface, and NCCL's."""
    named = settings.network_interfaces
    if named:
        return interface_address(named[0]), named[0], ",".join(named)
    if settings.local_hosts is not None:
        return "127.0.0.1", "lo", "lo"
    name, address = interface_towards(addresses.number(slot.host.address))
    return address, name, name
