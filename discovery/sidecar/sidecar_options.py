"""Which job a sidecar serves, and its settings."""

from dataclasses import dataclass
from pathlib import Path

from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.rules import first_list, reaper
from hvd_elastic.discovery.rules.pod_verdict import AtRisk
from hvd_elastic.mpijob.contract import READY_PORT, RUN_DIR
from hvd_elastic.system.job_key import NO_KEY, request_key


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions:
    """One sidecar's job and settings."""

    job: str
    namespace: str
    version: str = "v2beta1"
    """The MPIJob's API version in kubeflow.org: `v1` is the legacy training operator's."""
    run_dir: Path = Path(RUN_DIR)
    min_workers: int = 1
    max_workers: int = 1
    sizes: tuple[int, ...] = ()
    """The only numbers of workers to offer; empty: any."""
    slots: int = 1
    settle_seconds: float = first_list.SETTLE_SECONDS
    at_risk: AtRisk = AtRisk.SPARE
    offer_again: bool = False
    """Whether workers that the launcher does not use are offered again, for stock `horovodrun`."""
    reap: bool = True
    replace_slow: bool = False
    """Whether a worker whose rank is slow is replaced."""
    stuck_seconds: float = reaper.STUCK_SECONDS
    nodes: bool = True
    """Read nodes, if that is allowed."""
    pod_uid: str = ""
    """UID of the launcher's pod. Without it the sidecar does not look after the launcher's Job, and keeps no ledger."""
    owned: tuple[str, ...] = ()
    """API paths of the objects that shall go when the job goes."""
    ready_port: int = READY_PORT
    ssh_key: Path | None = None
    """The job's own, with which the workers know this job's requests."""

    @property
    def request_key(self) -> str:
        """The word with which requests to workers begin."""
        return NO_KEY if self.ssh_key is None else request_key(self.ssh_key)

    @property
    def place(self) -> MPIJobPlace:
        return MPIJobPlace(job=self.job, namespace=self.namespace, version=self.version)

    @property
    def looks_after_launcher(self) -> bool:
        """Whether there is a Job to look after: the legacy operator makes none, its launcher is a bare pod."""
        return bool(self.pod_uid) and self.version == "v2beta1"
