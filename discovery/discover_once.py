"""Discovery at one moment, for a person: one list, no watch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hvd_elastic.discovery.kube import watch
from hvd_elastic.discovery.kube.api_server import Access, ApiServer, ApiStatusError
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.rules.cluster_views import JobView, NodeView, PodView, WorkerView
from hvd_elastic.discovery.rules.eligibility import EligibleHosts, eligible_hosts
from hvd_elastic.discovery.rules.pod_verdict import EligibilityRules
from hvd_elastic.discovery.sidecar.workers.prober import Prober
from hvd_elastic.mpijob.contract import READY_PORT

PROBE_TIMEOUT_SECONDS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryResult:
    """One job and its hosts."""

    job: str
    namespace: str
    uid: str
    eligible: EligibleHosts
    is_short: bool
    """Whether fewer workers are usable than the min workers."""
    nodes_read: bool
    """Whether nodes may be read."""
    ended: str = ""
    """`Succeeded` or `Failed` once the job has ended; empty before that."""


def discover_once(
    access: Access,
    *,
    job: str,
    namespace: str,
    version: str = "v2beta1",
    slots: int | None = None,
    min_workers: int = 1,
    reach: bool = False,
    ready_port: int = READY_PORT,
) -> DiscoveryResult:
    """List the job, its pods and, if that is allowed, the nodes; decide. Raises ApiError.

    Without `reach` every worker counts as answering, because a terminal is seldom inside the pods' network.
    """
    server = ApiServer(access)
    place = MPIJobPlace(job=job, namespace=namespace, version=version)
    (view,) = watch.Watch(server=server, selection=watch.one_job(place, JobView.from_json)).list_all()
    pods = watch.Watch(server=server, selection=watch.workers_of(place, PodView.from_json)).list_all()
    nodes = _nodes(server)
    rules = EligibilityRules(owner_uid=view.uid, slots=slots or view.slots, min_workers=min_workers)
    workers = _probe(pods, ready_port) if reach else None
    eligible = eligible_hosts(pods, rules, nodes=nodes, workers=workers)
    return DiscoveryResult(
        job=job,
        namespace=namespace,
        uid=view.uid,
        eligible=eligible,
        is_short=eligible.is_short(rules),
        nodes_read=nodes is not None,
        ended=view.ended,
    )


def _nodes(server: ApiServer) -> dict[str, NodeView] | None:
    try:
        found = watch.Watch(server=server, selection=watch.nodes(NodeView.from_json)).list_all()
    except ApiStatusError as error:
        if error.status not in {401, 403}:
            raise
        return None
    return {node.name: node for node in found}


def _probe(pods: Iterable[PodView], port: int) -> Mapping[str, WorkerView]:
    """Probe each worker once."""
    addresses = {pod.uid: pod.ip for pod in pods if pod.ip and pod.phase == "Running"}
    prober = Prober(lambda _: None, port=port, timeout_seconds=PROBE_TIMEOUT_SECONDS)
    prober.set_targets(addresses)
    try:
        while prober.results.probed < len(addresses):
            prober.turn()
    finally:
        prober.close()
    return prober.results.views
