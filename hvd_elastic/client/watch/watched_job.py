"""One job at one moment, as the live view shows it."""

from dataclasses import dataclass

from hvd_elastic.client.connection.cluster_client import ClusterClient, ForbiddenError
from hvd_elastic.client.report.job_facts import JobFactReader, JobFacts
from hvd_elastic.client.report.job_status import JobStatus, job_status
from hvd_elastic.client.report.story import Happening, tell
from hvd_elastic.client.watch.inference_demand import AcceleratorClaim, DemandReader, InferenceDemand, claim_of
from hvd_elastic.discovery.ledger.entries import Entry
from hvd_elastic.mpijob.contract import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedJob:
    """All that is shown of a job."""

    status: JobStatus
    entries: tuple[Entry, ...] = ()
    story: tuple[Happening, ...] = ()
    """Oldest first."""
    demand: InferenceDemand | None = None
    """None: no worker's pod says what the job asks for, the caller may see no pods, or this is the first answer."""


class WatchedJobReader:
    """Reads one job again and again."""

    def __init__(self, cluster: ClusterClient, name: str, namespace: str) -> None:
        self._cluster, self._name, self._namespace = cluster, name, namespace
        self._demand = DemandReader(cluster, namespace)
        self._claim: AcceleratorClaim | None = None
        self._has_read = False

    def read(self) -> WatchedJob:
        """The job now. Raises UnknownJobError, ForeignJobError or another ClusterError.

        The first answer comes without the demand, for which all pods of the cluster are read.
        """
        facts = JobFactReader(self._cluster).read(self._name, self._namespace)
        demand = self._read_demand(facts) if self._has_read else None
        self._has_read = True
        return WatchedJob(status=job_status(facts), entries=facts.ledger or (), story=tell(facts), demand=demand)

    def _read_demand(self, facts: JobFacts) -> InferenceDemand | None:
        workers = facts.pods_of(Role.WORKER)
        if workers:
            self._claim = claim_of(workers[0])
        if self._claim is None:
            return None
        try:
            return self._demand.read(self._claim)
        except ForbiddenError:
            return None
