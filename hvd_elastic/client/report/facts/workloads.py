"""Kueue's Workloads: one for each job that it admits whole, and for each pod that it admits by itself."""

from collections.abc import Iterable
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json
from hvd_elastic.client.connection.known_api import KUEUE

_JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
"""On the Workload that Kueue makes for a job, or for a pod (https://kueue.sigs.k8s.io/docs/reference/
labels-and-annotations/)."""


def workloads_of(cluster: ClusterClient, here: str, uids: Iterable[str]) -> dict[str, Json]:
    """Those of these jobs and pods, by their UIDs. Raises NotServedError or another ClusterError.

    Args:
        cluster: where to ask.
        here: `/namespaces/NAMESPACE`; empty: all of them.
        uids: a handful. With none nobody is asked.

    """
    if not (wanted := ",".join(uids)):
        return {}
    path = f"{KUEUE.served_path(cluster)}{here}/workloads"
    found = cluster.list(path, labelSelector=f"{_JOB_UID_LABEL} in ({wanted})")
    return {one["metadata"]["labels"][_JOB_UID_LABEL]: one for one in found}
