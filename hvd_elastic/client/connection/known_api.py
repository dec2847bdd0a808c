"""APIs that a cluster may serve in another version than the newest, or not at all: chosen by discovery."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.cluster_errors import NotFoundError


class NotServedError(NotFoundError):
    """The API server serves a group in no version that is known here. It says nothing of the objects."""


class NoSuchGroupError(NotServedError):
    """The API server does not know the group, so there are no objects of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownApi:
    """A group, and what of it this release can read."""

    group: str
    versions: Sequence[str]
    """The newest first."""

    def served_path(self, cluster: ClusterClient) -> str:
        """`/apis/GROUP/VERSION` of the newest version that the API server serves.

        Raises NoSuchGroupError, NotServedError with the versions that are served instead, or another ClusterError.
        """
        try:
            answer = cluster.get(f"/apis/{self.group}")
        except NotFoundError:
            raise NoSuchGroupError(f"the API server does not serve {self.group}") from None
        served = [str(one["groupVersion"]).rpartition("/")[2] for one in answer.get("versions") or ()]
        return f"/apis/{self.group}/{self.choice(served)}"

    def choice(self, served: Sequence[str]) -> str:
        """The newest version among those that are served. Raises NotServedError."""
        for version in self.versions:
            if version in served:
                return version
        raise NotServedError(
            f"the API server serves {self.group} as {', '.join(served) or 'nothing'}, and this release of hvd-elastic "
            f"reads {', '.join(self.versions)}"
        )


KUEUE: Final = KnownApi(group="kueue.x-k8s.io", versions=("v1beta2", "v1beta1"))
"""v1beta2 is served from Kueue 0.15 on; v1beta1 up to 0.19 (`config/components/crd` of its releases)."""
KUEUE_VISIBILITY: Final = KnownApi(group="visibility.kueue.x-k8s.io", versions=("v1beta2", "v1beta1"))
MPIJOBS: Final = KnownApi(group="kubeflow.org", versions=("v2beta1", "v1"))
"""A cluster serves one of them as MPIJobs: both operators' CRDs have the same name."""
POD_GROUPS: Final = KnownApi(group="scheduling.k8s.io", versions=("v1beta1", "v1alpha3"))
"""Of Kubernetes 1.37, behind the gate GenericWorkload, which is off; v1 of this group has PriorityClasses alone."""
CLAIMED_DEVICES: Final = KnownApi(group="resource.k8s.io", versions=("v1",))
"""On by default from Kubernetes 1.34 on."""
SCALERS: Final = KnownApi(group="autoscaling", versions=("v2",))
"""HorizontalPodAutoscalers with metrics beside CPU. Stable from Kubernetes 1.23 on."""
CAPACITY_BUFFERS: Final = KnownApi(group="autoscaling.x-k8s.io", versions=("v1beta1", "v1alpha1"))
"""Of Cluster Autoscaler from 1.34 on, of Karpenter and GKE. v1 was not served by any release in November 2026."""
KEDA: Final = KnownApi(group="keda.sh", versions=("v1alpha1",))
"""ScaledObjects; up to 2.21 KEDA has had no other version."""
