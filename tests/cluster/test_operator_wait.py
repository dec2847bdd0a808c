"""The MPI Operator looks away: it is told, its patch ends it, the watchdog ends it, and we are not its cause.

Workers are kwok's, the operator and the sidecar are real. A slow operator is a long look at the job, into which a
stranger's writes fall: its own update conflicts each time, while the events of the pods count as failures.
"""

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.mpi_operator.measured_scale import MeasuredScale, Pace
from benchmarks.mpi_operator.scaled_job import NAME, ScaledJob, nodes, operator_pace, repeatedly
from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.doctor.diagnosis import Level
from hvd_elastic.client.report.job_status import status
from hvd_elastic.decide.watchdog import restart_decision
from hvd_elastic.decide.watchdog.watchdog import RESTARTED, Watchdog
from hvd_elastic.discovery.rules.cluster_views import JobView, PodView
from hvd_elastic.discovery.rules.operator_lag import operator_work
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS, LABEL_JOB_ROLE, Role
from hvd_elastic.setup.monitoring.alert_rules import AlertThresholds, alert_rules
from hvd_elastic.setup.platform_kit import operator_watchdog
from testbed.cluster import jobs
from testbed.cluster.site import Site
from testbed.kube import gomodules, kwok, waiting
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_doctor import examined
from tests.hvd_elastic.setup.monitoring.prometheus import serving

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

MANY, FEW = 48, 12
SLOW: Final = Pace(requests=5, events=1000)
"""A look that makes or deletes 36 pods takes seven seconds. All events of them count."""
TOLD_SECONDS: Final = 30.0
MOVES_SECONDS: Final = 6.0
"""After them an operator that does not look away has made some of 36 pods, at five requests a second."""
TRIES: Final = 3
LONGEST_SECONDS: Final = 10.0
"""Between two moves of a patched operator."""
(ALERT,) = (rule for rule in alert_rules(AlertThresholds()) if rule.name == "HvdElasticOperatorWaits")


@pytest.fixture
def started(cluster: Site, namespace: Kubectl) -> Iterator[Callable[..., ScaledJob]]:
    """Starts a job of many workers, under an operator that is slow: the cluster's own program, or another."""
    with ExitStack() as stack:

        def start(program: Path | None = None) -> ScaledJob:
            stack.enter_context(operator_pace(cluster, SLOW, program=program))
            stack.enter_context(nodes(cluster, -(-MANY // kwok.GPUS)))
            jobs.priority_classes(cluster)
            found = MeasuredScale(workers=MANY, pace=SLOW)
            job = ScaledJob(
                site=replace(cluster, image="registry.invalid/none:1"),
                kubectl=namespace,
                workers=MANY,
                found=found,
                stack=stack,
                metrics_port=_free_port(),
            )
            job.start()
            waiting.until("the operator has nothing to do", lambda: not _work(job), within_seconds=60)
            return job

        yield start


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _client(site: Site, namespace: str) -> ClusterClient:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(site.kubectl.kubeconfig))
        return ClusterClient.connect(namespace=namespace)


def _work(job: ScaledJob) -> Any:
    """What the operator has to do, as a fresh look has it."""
    pods = [PodView.from_json(pod) for pod in job.kubectl.list("pods", selector=f"{LABEL_JOB_ROLE}={Role.WORKER}")]
    return operator_work(JobView.from_json(job.kubectl.get("mpijob", NAME)), pods)


@contextmanager
def a_stranger_writes(cluster: ClusterClient) -> Iterator[None]:
    """Onto the MPIJob, ten times a second."""
    path = f"/apis/kubeflow.org/v2beta1/namespaces/{cluster.namespace}/mpijobs/{NAME}"

    def write() -> None:
        cluster.patch(path, {"metadata": {"annotations": {"example.com/seen": str(time.time())}}})

    with repeatedly(write, every_seconds=0.1):
        yield


def provoke(site: Site, job: ScaledJob) -> None:
    """Have the operator delete three quarters of the workers while somebody writes, and then ask for all again."""
    with a_stranger_writes(_client(site, job.kubectl.namespace)):
        job.scale(FEW)
        waiting.until("three quarters are gone", lambda: job.settled(FEW), within_seconds=120)
        # The short waits of the first events run out meanwhile; each look that they lead to conflicts as well.
        waiting.reached(lambda: False, 25)
    job.scale(MANY)


def look_away(site: Site, job: ScaledJob) -> None:
    """Provoke the operator until it leaves the job alone. One that had none of its looks left over needs it again."""
    for _ in range(TRIES):
        provoke(site, job)
        if not waiting.reached(lambda: _work(job).pods < MANY - FEW, MOVES_SECONDS):
            return
        waiting.until("it has made all again", lambda: job.settled(MANY), within_seconds=120)
    raise AssertionError(f"the operator went on at once, {TRIES} times")


def last_status(kubectl: Kubectl) -> str:
    annotations: dict[str, str] = kubectl.get("mpijob", NAME)["metadata"].get("annotations") or {}
    return annotations.get(ANNOTATION_STATUS, "")


def test_an_operator_that_looks_away_is_told_within_half_a_minute(
    cluster: Site, namespace: Kubectl, started: Callable[..., ScaledJob], tmp_path: Path
) -> None:
    job = started()
    client = _client(cluster, namespace.namespace)
    labels = {"namespace": namespace.namespace, "job": NAME}
    target = {"targets": [f"127.0.0.1:{job.metrics_port}"], "labels": labels}
    with serving(tmp_path, [{"job_name": "sidecar", "static_configs": [target]}]) as prometheus:
        assert not prometheus.query(ALERT.expression)
        look_away(cluster, job)
        waiting.until(
            "alert and status tell of it",
            lambda: prometheus.query(ALERT.expression) and any(map(_is_told, status(client, NAME).notes)),
            within_seconds=TOLD_SECONDS - MOVES_SECONDS,
            seen=lambda: f"{_work(job)}; {cluster.local().daemon('mpi-operator').tail()}",
        )
    (told,) = (one for one in examined(namespace) if one.check == "waiting-jobs")
    assert told.verdict.level is Level.WARNING
    assert f"{MANY - FEW} workers have no pod" in told.verdict.evidence
    assert "rollout restart deployment" in told.verdict.fix or "restart the operator" in told.verdict.fix
    cluster.local().restart_mpi_operator()
    waiting.until("what is told helps", lambda: job.settled(MANY), within_seconds=120)


def _is_told(note: str) -> bool:
    return note.startswith("the MPI Operator has made and deleted nothing since")


def test_a_patched_operator_never_waits_long(
    cluster: Site, namespace: Kubectl, started: Callable[..., ScaledJob]
) -> None:
    job = started(gomodules.binaries(gomodules.PATCHED_MPI_OPERATOR) / "mpi-operator")
    provoke(cluster, job)
    wait, moved, before = 0.0, time.monotonic(), _work(job).pods

    def done() -> bool:
        nonlocal wait, moved, before
        left = _work(job).pods
        wait = max(wait, time.monotonic() - moved)
        if left != before:
            moved, before = time.monotonic(), left
        return not left

    waiting.until("it has made all again", done, within_seconds=120, every_seconds=0.5)
    assert wait < LONGEST_SECONDS


@pytest.mark.parametrize("count", [FEW, MANY])
def test_our_own_status_waits_until_the_operator_is_done(
    namespace: Kubectl, started: Callable[..., ScaledJob], count: int
) -> None:
    """Whatever the operator meets meanwhile, it is not our write. A patched one comes to its end in any case."""
    job = started(gomodules.binaries(gomodules.PATCHED_MPI_OPERATOR) / "mpi-operator")
    if count == MANY:
        job.scale(FEW)
    first = FEW if count == MANY else MANY
    waiting.until("the sidecar has told of the job", lambda: _wanted(namespace) == first, within_seconds=120)
    job.scale(count)
    waiting.until("the sidecar sees that the operator has work", lambda: _wait_seconds(job) > 0, within_seconds=60)
    before = last_status(namespace)
    while work := _work(job).pods:
        assert last_status(namespace) == before, work
    waiting.until("it is written then", lambda: _wanted(namespace) == count, within_seconds=90)


def _wait_seconds(job: ScaledJob) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{job.metrics_port}/metrics", timeout=10) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("hvd_elastic_discovery_operator_wait")).split()[1])


def _wanted(kubectl: Kubectl) -> int | None:
    said: dict[str, Any] = json.loads(last_status(kubectl) or "{}")
    return said.get("wanted")


def test_the_watchdog_restarts_it_with_no_other_right(
    cluster: Site, namespace: Kubectl, started: Callable[..., ScaledJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of the test cluster's operator, which is a process, it finds a Deployment of the namespace."""
    monkeypatch.setattr(restart_decision, "PATIENCE_SECONDS", 15.0)
    job = started()
    here = operator_watchdog.manifests(image="registry.invalid/none:1", operator_namespace=namespace.namespace)
    made = [one for one in here if one["kind"] not in {"Deployment", "NetworkPolicy"}]
    operator = _deployment(namespace.namespace)
    cluster.kubectl.apply([*made, operator])
    try:
        namespace.wait("deployment", "mpi-operator", condition="Available", within_seconds=60)
        watchdog = Watchdog(_as_watchdog(cluster, namespace), namespace=namespace.namespace, deployment="mpi-operator")
        assert not watchdog.turn()
        look_away(cluster, job)
        waiting.until("it restarts the operator", watchdog.turn, within_seconds=90, every_seconds=2)
        template = namespace.get("deployment", "mpi-operator")["spec"]["template"]
        assert RESTARTED in template["metadata"]["annotations"]
        assert not watchdog.turn(), "once"
        with pytest.raises(ClusterError, match="may change nothing of a Deployment but"):
            namespace(
                *("patch", "deployment", "mpi-operator", "--type=merge", '--patch={"spec": {"replicas": 0}}'),
                f"--as=system:serviceaccount:{namespace.namespace}:{operator_watchdog.NAME}",
            )
    finally:
        for one in made:
            where = cluster.kubectl.within(one["metadata"].get("namespace") or "default")
            where("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")
    cluster.local().restart_mpi_operator()  # as the Deployment's controller would
    waiting.until("that helps", lambda: job.settled(MANY), within_seconds=120)


def _deployment(namespace: str) -> dict[str, Any]:
    labels = {"app": "mpi-operator"}
    pod = {
        "nodeSelector": kwok.LABELS,
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "operator",
                "image": "registry.invalid/none:1",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mpi-operator", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _as_watchdog(site: Site, namespace: Kubectl) -> ClusterClient:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(site.kubectl.kubeconfig))
        account = f"system:serviceaccount:{namespace.namespace}:{operator_watchdog.NAME}"
        return ClusterClient.connect(namespace=namespace.namespace, impersonate=account)
