"""The environment of a process that a launcher has adopted: the launcher's, but for what describes this pod."""

import logging
from collections.abc import Mapping
from typing import Final

from hvd_elastic.mpijob.contract import ENV_GRACE_SECONDS, ENV_HOST_ADDRESS, ENV_READY_ADDRESS, ENV_RUN_DIR

log = logging.getLogger(__name__)

KEPT: Final = ("HOSTNAME", ENV_RUN_DIR, ENV_READY_ADDRESS, ENV_GRACE_SECONDS)
"""Variables that describe this pod. The launcher's values of them would be wrong here."""
_INTERFACES: Final = ("HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME")
"""Those that name network interfaces, which a launcher's pod and a node call by different names."""


def adopted_environment(pod: Mapping[str, str], launcher: Mapping[str, str]) -> dict[str, str]:
    """Return the pod's environment, updated with the launcher's, except for what describes this pod."""
    merged = {**pod, **launcher}
    for name in (*KEPT, ENV_HOST_ADDRESS, *(_INTERFACES if pod.get(ENV_HOST_ADDRESS) else ())):
        if name in pod:
            merged[name] = pod[name]
        else:
            merged.pop(name, None)
    return merged


def with_interfaces(pod: Mapping[str, str]) -> dict[str, str]:
    """The pod's environment, and on a node's own network the interface that has the node's address.

    What the pod's own environment names stays: data may go another way than all else.
    """
    address = pod.get(ENV_HOST_ADDRESS)
    if not address:
        return dict(pod)
    import psutil

    interfaces = psutil.net_if_addrs().items()
    found = next((name for name, group in interfaces if any(each.address == address for each in group)), None)
    if found is None:
        log.warning("no network interface has this node's address, %s: Horovod chooses one by the host's name", address)
        return dict(pod)
    return {**dict.fromkeys(_INTERFACES, found), **pod}
