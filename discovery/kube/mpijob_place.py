"""Where one MPIJob is in the API server."""

from dataclasses import dataclass

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_REPLICA_TYPE, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class MPIJobPlace:
    """Its name, and where it stands."""

    job: str
    namespace: str
    version: str
    """Its API version in kubeflow.org: `v2beta1`, or `v1` for the legacy training operator."""

    @property
    def path(self) -> str:
        return f"/apis/kubeflow.org/{self.version}/namespaces/{self.namespace}/mpijobs/{self.job}"

    @property
    def may_be_patched(self) -> bool:
        """Whether discovery has the right to. Not under the legacy operator: see `mpijob.manifests.mpijob_v1`."""
        return self.version != "v1"

    @property
    def core(self) -> str:
        """The root of the core API in its namespace."""
        return f"/api/v1/namespaces/{self.namespace}"

    def pods_of(self, role: Role) -> dict[str, str]:
        """The query for its pods of this role. The legacy operator uses another label for roles."""
        label = LABEL_REPLICA_TYPE if self.version == "v1" else LABEL_JOB_ROLE
        return {"labelSelector": f"{LABEL_JOB_NAME}={self.job},{label}={role}"}

    def reference(self, uid: str) -> dict[str, str]:
        """The MPIJob as an owner. `uid`: its UID."""
        return {"apiVersion": f"kubeflow.org/{self.version}", "kind": "MPIJob", "name": self.job, "uid": uid}
