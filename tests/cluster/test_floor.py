"""A floor that holds: the first workers and the launcher are not preempted by inference that asks for everything."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hvd_elastic.discovery.ledger.entries import Departure, WorkerLeaving, WorldChanged, from_lines
from hvd_elastic.mpijob.contract import GPU_RESOURCE, LEDGER_KEY, LEDGER_SUFFIX, Role
from testbed.cluster import inference, jobs
from testbed.cluster.pods import SAFE
from testbed.cluster.site import Site
from testbed.cluster.standing import LAUNCHERS, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_kueue import said

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]
FLOOR: Final = 2
CLAIMS: Final = 20
WORKERS: Final = jobs.workers((1, SIZE, SIZE), floor=FLOOR)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The platform kit with the floor."""
    folder = tmp_path_factory.mktemp("kit") / "kit"
    command = [sys.executable, "-m", "hvd_elastic.cli", "platform-kit", str(folder), "--with", "floor"]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def floor(cluster: Site, kit: Path) -> Iterator[None]:
    """The policy that gives the floor."""
    jobs.priority_classes(cluster)
    policy = kit / "components" / "floor" / "floor.yaml"
    cluster.kubectl.apply(policy.read_text())
    yield
    cluster.kubectl("delete", "-f", str(policy))


@pytest.mark.timeout(1200, func_only=True)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_inference_that_asks_for_everything_leaves_the_floor(
    cluster: Site, namespace: Kubectl, timeline: Timeline, floor: None, launcher: str
) -> None:
    """Nor does the floor ever stop training but for a resize: it has its processes and their memory to the end."""
    job = start(cluster, namespace, launcher, workers=WORKERS)
    job.wait_size(SIZE)
    kept = [pod["metadata"]["uid"] for pod in (*job.pods(Role.WORKER)[:FLOOR], *job.pods(Role.LAUNCHER))]
    load = inference.deploy(cluster, namespace)
    for claim in range(1, CLAIMS + 1):
        timeline.mark(f"inference asks for all, {claim}")
        load.scale(SIZE)
        job.wait_size(FLOOR)
        back = timeline.mark(f"and gives them back, {claim}")
        load.scale(0)
        job.wait_size(SIZE, since=back)
    now = [pod["metadata"]["uid"] for pod in (*job.pods(Role.WORKER)[:FLOOR], *job.pods(Role.LAUNCHER))]
    assert now == kept
    assert f"floor: {FLOOR} of {FLOOR} workers are kept from inference" in said(f"status {job.name}", job)
    told = job.kubectl.get("configmap", f"{job.name}{LEDGER_SUFFIX}")["data"][LEDGER_KEY]
    entries = list(from_lines(told.splitlines()))
    gone = [entry for entry in entries if isinstance(entry, WorkerLeaving)]
    assert {entry.pod.rpartition("-")[2] for entry in gone if entry.why is Departure.PREEMPTED} == {"2", "3"}
    floor_pods = {f"{job.name}-worker-{index}" for index in range(FLOOR)}
    worlds = [set(entry.workers) for entry in entries if isinstance(entry, WorldChanged)]
    begun = next(number for number, workers in enumerate(worlds) if floor_pods <= workers)
    assert all(floor_pods <= workers for workers in worlds[begun:]), "the floor trains in every world"
    job.finish()
    nothing_lost(job.account, ended=True)


def test_without_the_policy_submit_says_so_before_anything_is_made(
    cluster: Site, namespace: Kubectl, tmp_path: Path
) -> None:
    jobs.priority_classes(cluster)
    refused = submit(cluster, namespace, tmp_path)
    assert "nothing gives its pods the PriorityClass floor-pc" in refused
    assert "hvd-elastic platform-kit kit --with floor" in refused
    assert namespace.find("mpijob", "floored") is None
    assert namespace.find("configmap", f"floored{LEDGER_SUFFIX}") is None


def test_where_the_api_server_serves_no_such_policies_submit_says_so(
    cluster: Site, namespace: Kubectl, tmp_path: Path
) -> None:
    jobs.priority_classes(cluster)
    machine, kinds = cluster.local(), ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    without = ",".join(f"admissionregistration.k8s.io/v1/{kind}=false" for kind in kinds)
    server, off = machine.daemon("kube-apiserver"), "--disable-admission-plugins=MutatingAdmissionPolicy"
    machine.stop_api_server()  # at once: its own end waits for all who watch
    with server.with_arguments(f"--runtime-config={without}", off):
        machine.start_api_server()
        refused = submit(cluster, namespace, tmp_path)
        found = namespace.find("mpijob", "floored")
        machine.stop_api_server()
    machine.start_api_server()
    machine.restart_mpi_operator()
    assert "serves no MutatingAdmissionPolicies of v1" in refused
    assert found is None


def test_a_floor_above_its_quota_is_refused_before_the_operator_gives_up(
    cluster: Site, namespace: Kubectl, floor: None, tmp_path: Path
) -> None:
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["floor-pc"]}
    spec = {"hard": {f"requests.{GPU_RESOURCE}": "1"}, "scopeSelector": {"matchExpressions": [scope]}}
    namespace.apply([{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "floor-pc"}, "spec": spec}])
    waiting.until(
        "the quota counts",
        lambda: "exceeded quota: floor-pc" in submit(cluster, namespace, tmp_path),
        within_seconds=30,
    )
    assert namespace.find("mpijob", "floored") is None

    job = start(cluster, namespace, "launch", workers=WORKERS)  # as `generate | kubectl apply` would
    waiting.until(
        "status says what the operator was refused",
        lambda: "exceeded quota: floor-pc" in said(f"status {job.name}", job),
        within_seconds=90,
        every_seconds=2,
        seen=lambda: said(f"status {job.name}", job),
    )
    assert not job.pods(Role.LAUNCHER)
    assert len(job.pods(Role.WORKER)) == 1
    namespace("delete", "resourcequota", "floor-pc")
    job.wait_size(SIZE, within_seconds=240)
    job.finish()


def test_only_who_may_have_a_floor_gets_one(cluster: Site, namespace: Kubectl, floor: None) -> None:
    command = [sys.executable, "-m", "hvd_elastic.cli", "priorityclasses", "--guard", "--allow", "serving"]
    command += ["--allow-floor", "research"]
    guard = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    cluster.kubectl.apply(guard)
    labels = {"hvd-elastic.dev/floor": "1", "training.kubeflow.org/replica-index": "0"}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "clever", "labels": labels},
        "spec": {
            "priorityClassName": "preemptible-pc",
            "containers": [{"name": "a", "image": "none", "securityContext": SAFE}],
        },
    }
    try:

        def refused() -> str:
            try:
                namespace.apply([pod])
            except ClusterError as error:
                return str(error)
            namespace("delete", "pod", "clever", "--now")
            return ""

        waiting.until(
            "the label alone gives nobody the class",
            lambda: "may not use the PriorityClass floor-pc, which inference cannot preempt" in refused(),
            within_seconds=30,
            seen=refused,
        )
    finally:
        names = "validatingadmissionpolicies,validatingadmissionpolicybindings"
        cluster.kubectl("delete", names, "--selector=app.kubernetes.io/managed-by=hvd-elastic")


def submit(cluster: Site, kubectl: Kubectl, folder: Path) -> str:
    """What `submit` says of a job with a floor that it refuses; empty: it accepts it."""
    description = jobs.describe(cluster, kubectl, "floored", [*jobs.PACED], workers=WORKERS)
    file = folder / "job.json"
    file.write_text(json.dumps(description))
    command = [sys.executable, "-m", "hvd_elastic.cli", "submit", str(file)]
    done = subprocess.run(
        command,
        env={**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)},
        text=True,
        capture_output=True,
        check=False,
    )
    return done.stderr if done.returncode else ""
