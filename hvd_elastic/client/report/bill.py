"""What a job has held, lent and lost in GPU-seconds, and what that cost.

The GPU-seconds are those of the ledger: each worker pod from its binding to its end. Money is what the machines' GPUs
cost by the price list, whatever else ran on them.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.job_lookup import cluster_time, find_job, list_jobs
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.client.report.job_facts import JobFactReader, JobFacts
from hvd_elastic.client.report.job_status import account_of, lacks_ledger
from hvd_elastic.client.report.prices import MachinePrice, PriceList
from hvd_elastic.discovery.ledger.account import JobAccount
from hvd_elastic.discovery.rules.cluster_views import gpu_resource_of

_AT_ONCE: Final = 8
"""Jobs that are read at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineBill:
    """What was held on machines of one type."""

    machine: str
    """The instance type; empty: not known, because the job may not read nodes."""
    kind: str
    """`spot`, `on-demand` or `unknown`."""
    gpu_seconds: float
    cost: float | None
    """None: the price list does not say, or the machine or its kind is not known."""
    on_demand_cost: float | None
    """What the same had cost on demand."""
    uncounted: str = ""
    """The resource of which the price list does not say how many this machine offers; empty: it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one job has held, lent and lost. Costs are of the machines whose price is known."""

    namespace: str
    name: str
    machines: tuple[MachineBill, ...]
    gpu_seconds: float
    lent_gpu_seconds: float
    stalled_gpu_seconds: float
    idle_gpu_seconds: float
    """Of workers that did not train while others did. Pauses of resizes count here and as stalled."""
    repeated_gpu_seconds: float
    """Of the steps that were done again: their share of all steps, times what was held and did not stall."""
    preemptions: int
    training_seconds: float
    currency: str
    cost: float
    on_demand_cost: float
    unpriced_gpu_seconds: float
    """Of machines whose price is not known: not in the costs."""
    counts_since: float | None = None
    """Unix seconds since which all this counts, because its record was lost; None: since the job began."""
    told: float | None = None
    """Unix seconds when the job's sidecar told it, where the ledger is gone; None: it is the ledger's."""

    @property
    def saved(self) -> float:
        """Against on demand."""
        return self.on_demand_cost - self.cost


def bill(cluster: ClusterClient, name: str, prices: PriceList, namespace: str | None = None) -> Bill | None:
    """The bill of a job; None if it has no ledger, and no sidecar has told its sums.

    Raises UnknownJobError, ForeignJobError or another ClusterError.
    """
    found = find_job(cluster, name, namespace or cluster.namespace)
    return bill_of(JobFactReader(cluster).read_record(found.job, found.now), prices)


def bills(
    cluster: ClusterClient, prices: PriceList, namespace: str | None = None, reading: ObjectReading | None = None
) -> Iterator[Bill]:
    """The bills of all jobs of a namespace, or of the cluster, that have a ledger. Raises ClusterError.

    One that is deleted meanwhile has the bill that its sidecar last told. `reading`: names the MPIJobs that cannot be
    read, which are left out; by default as a warning of the log.
    """
    now, jobs = cluster_time(cluster), list(list_jobs(cluster, namespace))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = [
            pool.submit(lambda job: bill_of(JobFactReader(cluster).read_record(job, now), prices), job) for job in jobs
        ]
        made = iter(asked)
        yield from (reading or ObjectReading("MPIJob")).each(jobs, lambda _job: next(made).result())


def bill_of(facts: JobFacts, prices: PriceList) -> Bill | None:
    """What these facts cost; None if nothing tells it."""
    if facts.ledger is None and facts.live is None:
        return None
    account = account_of(facts)
    resource = gpu_resource_of(facts.job)
    machines = tuple(
        _machine_bill(key, seconds, prices, resource) for key, seconds in sorted(account.gpu_seconds.items())
    )
    return Bill(
        namespace=facts.namespace,
        name=facts.name,
        machines=machines,
        gpu_seconds=account.held_gpu_seconds,
        lent_gpu_seconds=account.lent_gpu_seconds,
        stalled_gpu_seconds=account.stalled_gpu_seconds,
        idle_gpu_seconds=account.idle_gpu_seconds,
        repeated_gpu_seconds=repeated_gpu_seconds(account),
        preemptions=account.preemptions,
        training_seconds=account.training_seconds,
        currency=prices.currency,
        cost=_sum(one.cost for one in machines),
        on_demand_cost=_sum(one.on_demand_cost for one in machines if one.cost is not None),
        unpriced_gpu_seconds=sum(one.gpu_seconds for one in machines if one.cost is None),
        counts_since=account.counts_since,
        told=facts.live.unix if facts.live and lacks_ledger(facts) else None,
    )


def repeated_gpu_seconds(account: JobAccount) -> float:
    """The share of repeated steps in all that were done, of the GPU-seconds that did not stall; 0 if not known."""
    done = account.step + account.repeated_steps
    if account.step < 0 or done <= 0:
        return 0.0
    return account.repeated_steps / done * (account.held_gpu_seconds - account.stalled_gpu_seconds)


def _machine_bill(key: str, gpu_seconds: float, prices: PriceList, resource: str) -> MachineBill:
    machine, _, kind = key.rpartition("|")
    price = prices.machines.get(machine)
    return MachineBill(
        machine=machine,
        kind=kind,
        gpu_seconds=gpu_seconds,
        cost=_times(gpu_seconds, _per_gpu_second(price, kind, resource)),
        on_demand_cost=_times(gpu_seconds, _per_gpu_second(price, "on-demand", resource)),
        uncounted=resource if price and price.offers(resource) is None else "",
    )


def _per_gpu_second(price: MachinePrice | None, kind: str, resource: str) -> float | None:
    return None if price is None or kind == "unknown" else price.per_gpu_second(spot=kind == "spot", resource=resource)


def _times(seconds: float, price: float | None) -> float | None:
    return None if price is None else seconds * price


def _sum(costs: Iterable[float | None]) -> float:
    return sum(cost for cost in costs if cost is not None)
