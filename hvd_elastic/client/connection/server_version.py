"""Which version of Kubernetes a cluster has, and the oldest on which a job runs."""

import re
from typing import Final

OLDEST_MINOR: Final = 29
"""Native sidecars are on by default from 1.29 on (KEP-753, feature gate SidecarContainers)."""


def minor(version: str) -> int:
    """29 of `v1.29.3-eks-1234`. 0 if it is not of that form."""
    found = re.match(r"v1\.(\d+)", version)
    return int(found[1]) if found else 0
