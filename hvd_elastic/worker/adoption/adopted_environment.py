"""The environment of a process that a launcher has adopted: the launcher's, but for what describes this pod."""

from collections.abc import Mapping
from typing import Final

from hvd_elastic.mpijob.contract import ENV_GRACE_SECONDS, ENV_READY_ADDRESS, ENV_RUN_DIR

KEPT: Final = ("HOSTNAME", ENV_RUN_DIR, ENV_READY_ADDRESS, ENV_GRACE_SECONDS)
"""Variables that describe this pod. The launcher's values of them would be wrong here."""


def adopted_environment(pod: Mapping[str, str], launcher: Mapping[str, str]) -> dict[str, str]:
    """Return the pod's environment, updated with the launcher's, except for KEPT."""
    merged = {**pod, **launcher}
    for name in KEPT:
        if name in pod:
            merged[name] = pod[name]
        else:
            merged.pop(name, None)
    return merged
