"""When the fixes of a version of Kubernetes end: the project's own, and each cloud's standard support.

Support beyond that, which all three clouds sell apart, is not counted.

Sources, as of AS_OF: https://kubernetes.io/releases/,
https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html,
https://cloud.google.com/kubernetes-engine/docs/release-schedule and
https://learn.microsoft.com/azure/aks/supported-kubernetes-versions. GKE calls its dates estimates. AKS names months:
their last days stand here.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Final

from hvd_elastic.mpijob.clouds.cloud import Cloud

AS_OF: Final = date(2026, 8, 22)
"""Of the clouds' pages. That of Kubernetes 1.37 is of 15 September 2026."""
ENDS: Final[Mapping[Cloud, Mapping[int, date]]] = {
    Cloud.ANY: {
        33: date(2026, 6, 28),
        34: date(2026, 10, 27),
        35: date(2027, 2, 28),
        36: date(2027, 6, 28),
        37: date(2027, 10, 28),
    },
    Cloud.EKS: {33: date(2026, 7, 29), 34: date(2026, 12, 2), 35: date(2027, 3, 27), 36: date(2027, 8, 2)},
    Cloud.GKE: {33: date(2026, 8, 3), 34: date(2026, 10, 1), 35: date(2027, 4, 11), 36: date(2027, 8, 9)},
    Cloud.AKS: {33: date(2026, 7, 31), 34: date(2026, 11, 30), 35: date(2027, 3, 31), 36: date(2027, 6, 30)},
}
"""Last days, by minor. What is newer was not offered by a cloud then."""

DEFAULT: Final = "1.36"
"""The newest that all clouds offer; the tests run it and the next one."""


def ended(version: str, cloud: Cloud, today: date) -> date | None:
    """The last day of a version, if it is over; of an older one than is known, that of the oldest known one.

    `version`: `1.36`, or what an API server says of itself. None too for what is newer than all that is known.
    """
    found = re.match(r"v?1\.(\d+)", version)
    if found is None:
        return None
    known = ENDS[cloud]
    last = known.get(max(int(found[1]), min(known)))
    return last if last is not None and last < today else None


def current(cloud: Cloud, today: date) -> tuple[str, ...]:
    """The versions that are not over, the newest first."""
    return tuple(f"1.{minor}" for minor, last in sorted(ENDS[cloud].items(), reverse=True) if last >= today)
