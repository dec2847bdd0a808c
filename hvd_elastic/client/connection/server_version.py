"""Which version of Kubernetes a cluster has, and the oldest on which a job runs."""

import re
from typing import Final

OLDEST_MINOR: Final = 29
"""Native sidecars are on by default from 1.29 on (KEP-753, feature gate SidecarContainers)."""
RESUMING_MINOR: Final = 36
"""From 1.36 on the Job controller clears `status.startTime` of a Job that is suspended (`pkg/controller/job/
job_controller.go`, feature gate MutableSchedulingDirectivesForSuspendedJobs), so that the MPI Operator need not."""


def minor(version: str) -> int:
    """29 of `v1.29.3-eks-1234`. 0 if it is not of that form."""
    found = re.match(r"v1\.(\d+)", version)
    return int(found[1]) if found else 0
