"""The answer of one moment, for a person: one list, no watch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hvd_elastic.discovery.kube import watch
from hvd_elastic.discovery.kube.api_server import Access, ApiServer, ApiStatusError
from hvd_elastic.discovery.rules.eligibility import EligibilityRules, EligibleHosts, eligible_hosts
from hvd_elastic.discovery.rules.scale_down import JobView
from hvd_elastic.discovery.rules.views import NodeView, PodView, WorkerView
from hvd_elastic.discovery.sidecar.reach_test import Prober
from hvd_elastic.mpijob.contract import READY_PORT

REACH_SECONDS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupResult:
    """What was found out about one job."""

    job: str
    namespace: str
    uid: str
    answer: EligibleHosts
    is_short: bool
    nodes_read: bool


def look_up(
    access: Access,
    *,
    job: str,
    namespace: str,
    version: str = "v2beta1",
    slots: int | None = None,
    min_workers: int = 1,
    reach: bool = False,
    ready_port: int = READY_PORT,
) -> LookupResult:
    """List the job, its pods and, where that is allowed, the nodes; decide. Raises ApiError.

    Without `reach` every worker counts as answering: a terminal is seldom inside the pods' network.
    """
    server = ApiServer(access)
    (about,) = watch.Watch(
        server=server, selection=watch.one_job(job, namespace, version, JobView.from_json)
    ).list_all()
    pods = watch.Watch(server=server, selection=watch.workers_of(job, namespace, version, PodView.from_json)).list_all()
    nodes = _nodes(server)
    rules = EligibilityRules(owner_uid=about.uid, slots=slots or about.slots, min_workers=min_workers)
    workers = _ask(pods, ready_port) if reach else None
    answer = eligible_hosts(pods, rules, nodes=nodes, workers=workers)
    return LookupResult(
        job=job,
        namespace=namespace,
        uid=about.uid,
        answer=answer,
        is_short=answer.is_short(rules),
        nodes_read=nodes is not None,
    )


def _nodes(server: ApiServer) -> dict[str, NodeView] | None:
    try:
        found = watch.Watch(server=server, selection=watch.nodes(NodeView.from_json)).list_all()
    except ApiStatusError as error:
        if error.status not in {401, 403}:
            raise
        return None
    return {node.name: node for node in found}


def _ask(pods: Iterable[PodView], port: int) -> Mapping[str, WorkerView]:
    """One question to each, in one go."""
    addresses = {pod.uid: pod.ip for pod in pods if pod.ip and ":" not in pod.ip and pod.phase == "Running"}
    prober = Prober(lambda _: None, port=port, timeout_seconds=REACH_SECONDS)
    prober.aim(addresses)
    try:
        while prober.settled < len(addresses):
            prober.turn()
    finally:
        prober.close()
    return prober.views
