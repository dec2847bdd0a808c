import itertools
import logging
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from hvd_elastic.discovery import Host, Snapshot, read_snapshot, uptime_seconds, write_snapshot
from hvd_elastic.discovery.expected_workers import read_expected
from hvd_elastic.discovery.job_beginning import has_begun
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.rules import unused_hosts
from hvd_elastic.discovery.sidecar import resource_watcher
from hvd_elastic.discovery.sidecar import sidecar as sidecar_module
from hvd_elastic.discovery.sidecar.cluster_actions import ActionExecutor, ActionResult, RecordBeginning
from hvd_elastic.discovery.sidecar.launcher.launcher_drain import DRAIN_SECONDS, LauncherDrain
from hvd_elastic.discovery.sidecar.launcher.launcher_job import LauncherJob
from hvd_elastic.discovery.sidecar.publisher import Publisher
from hvd_elastic.discovery.sidecar.record.job_recorder import JobRecorder
from hvd_elastic.discovery.sidecar.sidecar import Sidecar, boot_clock
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics, health_server
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.workers.prober import Prober
from hvd_elastic.discovery.sidecar.workers.worker_contact import WorkerContact
from hvd_elastic.mpijob.contract import (
    ANNOTATION_BEGUN,
    ANNOTATION_WANTED_WORKERS,
    DRAIN_FILE,
    DRAINED_FILE,
    LABEL_JOB_NAME,
    LABEL_JOB_ROLE,
    SNAPSHOT_FILE,
    SNAPSHOT_MAX_AGE_SECONDS,
    Role,
    SnapshotState,
    WorkerState,
)
from hvd_elastic.system.backoff import Backoff
from hvd_elastic.system.job_key import request_key, sign
from testbed.kube_api import EVENTS, JOBS, NODES, OWNER, PODS, KubeApi, Request, Status, mpijob, node, pod
from tests.discovery.conftest import Running, Start, until
from tests.discovery.workers import NONCE, Workers
from tests.failing_threads import FailsOnce, fails_once, goes_on


def put(api: KubeApi, *indexes: int) -> None:
    for index in indexes:
        api.put(PODS, pod(index))


def test_a_job_from_its_first_worker_to_its_last(api: KubeApi, start: Start) -> None:
    running = start()
    until(lambda: running.hosts() == [])
    put(api, 0, 1, 2)
    running.shows(0, 1, 2)
    api.put(PODS, pod(1, disrupted="PreemptionByScheduler"))
    running.shows(0, 2)
    api.remove(PODS, "job-worker-1")
    api.put(PODS, pod(1, uid="next", ip="127.0.1.9", since="2026-02-01T00:00:00Z"))
    running.shows(0, 2, 1)
    for index in range(3):
        api.remove(PODS, f"job-worker-{index}")
    running.shows()


def test_the_first_list_waits_for_those_about_to_be_ready(api: KubeApi, start: Start) -> None:
    put(api, 0)
    api.put(PODS, pod(1, ready=False))
    running = start(settle_seconds=30.0, max_workers=2)
    until(lambda: bool(running.sidecar.eligible.hosts))
    assert running.hosts() is None
    put(api, 1)
    running.shows(0, 1)


def test_a_worker_is_offered_when_it_answers_though_its_kubelet_has_not_called_it_ready(
    api: KubeApi, start: Start, workers: Workers
) -> None:
    workers.closed.add("127.0.1.2")
    put(api, 0)
    api.put(PODS, pod(1, ready=False, started="2026-01-01T00:00:01Z"))
    running = start()
    running.shows(0)
    workers.closed.clear()
    running.shows(0, 1)
    put(api, 1)
    workers.closed.add("127.0.1.1")
    running.shows(1)


def test_the_launcher_hears_of_a_worker_before_the_worker_is_warm(api: KubeApi, start: Start) -> None:
    put(api, 0)
    api.put(PODS, pod(1, ready=False))
    running = start(settle_seconds=3600.0, max_workers=2)
    until(lambda: [worker.address for worker in read_expected(running.folder)] == ["127.0.1.1", "127.0.1.2"])
    assert running.hosts() is None, "the first list waits for it"
    put(api, 1)
    running.shows(0, 1)
    api.put(PODS, pod(1, disrupted="PreemptionByScheduler"))
    running.shows(0)
    until(lambda: [worker.address for worker in read_expected(running.folder)] == ["127.0.1.1"])


def test_the_first_list_does_not_wait_for_one_that_has_no_place(api: KubeApi, start: Start) -> None:
    put(api, 0)
    api.put(PODS, pod(1, phase="Pending", ready=False, node="", ip=""))
    start(settle_seconds=3600.0).shows(0)


def test_a_worker_that_horovodrun_does_not_use_is_offered_again(
    api: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unused_hosts, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(unused_hosts, "WITHDRAWN_SECONDS", 1.0)
    put(api, 0, 1)
    running, steps = start(offer_again=True), itertools.count()

    def train() -> bool:
        workers.say("127.0.1.1", state=WorkerState.TRAINING, step=next(steps))
        return True

    train()
    running.shows(0, 1)
    until(lambda: train() and running.hosts() == ["0"])
    until(lambda: train() and running.hosts() == ["0", "1"])


def test_under_horovodrun_an_allowed_number_of_workers_is_offered_and_the_others_are_not_withdrawn(
    api: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unused_hosts, "PATIENCE_SECONDS", 0.5)
    put(api, 0, 1)
    running, steps = start(offer_again=True, sizes=(1, 2, 4)), itertools.count()

    def train() -> bool:
        for index in (0, 1):
            workers.say(f"127.0.1.{index + 1}", state=WorkerState.TRAINING, step=next(steps))
        return True

    train()
    running.shows(0, 1)
    put(api, 2)
    until(lambda: [out.reason for out in running.sidecar.eligible.left_out] == ["surplus"])
    began = next(steps)
    until(lambda: train() and next(steps) > began + 100 and running.hosts() == ["0", "1"])
    assert [out.reason for out in running.sidecar.eligible.left_out] == ["surplus"], "it was never offered"
    put(api, 3)
    until(lambda: train() and running.hosts() == ["0", "1", "2", "3"])
    api.put(PODS, pod(1, disrupted="PreemptionByScheduler"))
    until(lambda: train() and running.hosts() == ["0", "2"])


def test_survives_the_loss_of_the_api_server(api: KubeApi, start: Start) -> None:
    put(api, 0, 1)
    running = start()
    running.shows(0, 1)
    api.stop()
    put(api, 2)
    before = read_snapshot(running.folder)
    restarts = ("hvd_elastic_discovery_watch_restarts_total", {"resource": "pods"})
    until(lambda: (running.metrics.registry.get_sample_value(*restarts) or 0) > 0)
    assert read_snapshot(running.folder).hosts == before.hosts
    api.start()
    running.shows(0, 1, 2)


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503])
def test_a_refusal_ends_and_the_list_is_right(api: KubeApi, start: Start, code: int) -> None:
    put(api, 0)
    running = start()
    running.shows(0)
    refused: list[Request] = []

    def refuse(request: Request) -> None:
        if len(refused) < 4 and request.path == PODS:
            refused.append(request)
            raise Status(code, {"Retry-After": "0"} if code == 429 else {})

    api.fault = refuse
    put(api, 1)
    api.cut()
    running.shows(0, 1)
    assert len(refused) == 4


def test_a_new_sidecar_beside_a_running_job_drops_no_worker(api: KubeApi, start: Start, workers: Workers) -> None:
    put(api, 0, 1)
    first = start()
    first.shows(0, 1)
    first.stop()
    before = read_snapshot(first.folder)
    workers.silent.update({"127.0.1.1", "127.0.1.2"})
    second = start()
    until(lambda: second.sidecar.is_ready)
    after = read_snapshot(second.folder)
    assert (after.hosts, after.generation) == (before.hosts, before.generation)


def test_a_silent_worker_is_out_until_it_answers(api: KubeApi, start: Start, workers: Workers) -> None:
    put(api, 0, 1, 2)
    running = start()
    running.shows(0, 1, 2)
    workers.silent.add("127.0.1.2")
    running.shows(0, 2)
    workers.silent.clear()
    running.shows(0, 1, 2)


def test_a_kubelet_that_starts_anew_takes_only_the_worker_that_does_not_answer(
    api: KubeApi, start: Start, workers: Workers
) -> None:
    put(api, 0, 1)
    running = start()
    running.shows(0, 1)
    offered = read_snapshot(running.folder).generation
    workers.silent.add("127.0.1.2")
    for index in (1, 0):
        since = "2026-01-01T01:00:00Z"
        api.put(PODS, pod(index, ready=False, started="2026-01-01T00:00:00Z", since=since))
        running.shows(0)
    put(api, 2)
    running.shows(2, 0)
    assert read_snapshot(running.folder).generation == offered + 2, "the one that answers has never left"


def test_a_replaced_standby_is_a_new_host(api: KubeApi, start: Start, workers: Workers) -> None:
    put(api, 0)
    running = start()
    running.shows(0)
    workers.say("127.0.1.1", generation=1)
    until(lambda: [host.alias for host in read_snapshot(running.folder).hosts] == ["uid-job-0-1"])


def test_a_stranger_where_a_worker_was_is_no_worker(api: KubeApi, start: Start, workers: Workers) -> None:
    put(api, 0, 1)
    running = start()
    running.shows(0, 1)
    workers.lines["127.0.1.1"] = b"hvd-elastic 1 -5 waiting -1 -1\n"
    running.shows(1)
    workers.lines.clear()
    running.shows(0, 1)


def test_says_so_before_the_job_falls_below_its_min(api: KubeApi, start: Start, workers: Workers) -> None:
    put(api, 0, 1)
    running = start(min_workers=2)
    running.shows(0, 1)
    assert read_snapshot(running.folder).state is SnapshotState.OK
    api.put(PODS, pod(1, disrupted="EvictionByEvictionAPI"))
    running.shows(0)
    assert read_snapshot(running.folder).state is SnapshotState.SHORT
    until(lambda: len(workers.received) == 2)
    assert {line.split()[0] for _, line in workers.received} == {"checkpoint"}


def test_leaves_a_draining_node_and_warns_on_a_cordoned_one(api: KubeApi, start: Start, workers: Workers) -> None:
    api.put(NODES, node("a"))
    api.put(NODES, node("b"))
    api.put(PODS, pod(0, node="a"))
    api.put(PODS, pod(1, node="b"))
    running = start(min_workers=2)
    running.shows(0, 1)
    api.put(NODES, node("b", cordoned=True))
    until(lambda: bool(workers.received))
    assert [address for address, _ in workers.received] == ["127.0.1.2"]
    assert running.hosts() == ["0", "1"]
    api.put(NODES, node("b", taints=("aws-node-termination-handler/spot-itn",)))
    running.shows(0)


def test_works_where_nodes_may_not_be_read(api: KubeApi, start: Start) -> None:
    def refuse(request: Request) -> None:
        if request.path == NODES:
            raise Status(403)

    api.fault = refuse
    put(api, 0)
    running = start()
    running.shows(0)
    assert api.asked(watch=False, path=NODES) == 1, "not again at once"


@pytest.mark.parametrize("code", [401, 403])
def test_nodes_that_are_refused_for_a_moment_are_watched_again(
    code: int, api: KubeApi, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An API server that has started answers so until it has loaded its Roles."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(resource_watcher, "REFUSED", Backoff(first_seconds=0.01, most_seconds=0.05))

    def refuse(request: Request) -> None:
        if request.path == NODES:
            raise Status(code)

    api.put(NODES, node("a"))
    api.put(NODES, node("b"))
    api.put(PODS, pod(0, node="a"))
    api.put(PODS, pod(1, node="b"))
    running = start()
    running.shows(0, 1)
    until(lambda: api.watching[NODES] == 1)
    api.fault = refuse
    api.cut()
    until(lambda: sum("nodes may not be read" in record.message for record in caplog.records) == 1)
    asked = len(api.requests)
    until(lambda: sum(request.path == NODES for request in api.requests[asked:]) > 3)
    api.fault = lambda request: None
    api.put(NODES, node("b", taints=("aws-node-termination-handler/spot-itn",)))
    running.shows(0)
    until(lambda: any(record.message == "nodes: the API server answers again" for record in caplog.records))
    assert sum("nodes may not be read" in record.message for record in caplog.records) == 1


def test_reaps_workers_that_have_ended_with_their_record_and_no_other(api: KubeApi, start: Start) -> None:
    api.put(PODS, pod(0))
    api.put(PODS, pod(1, phase="Failed", ready=False, reason="Evicted"))
    api.put(PODS, pod(2, phase="Failed", ready=False, owner="another"))
    api.put(PODS, pod(3, phase="Succeeded", ready=False))
    running = start()
    until(lambda: sorted(api.objects[PODS]) == ["job-worker-0", "job-worker-2"])
    events = {event["involvedObject"]["uid"]: event for event in api.objects[EVENTS].values()}
    assert events.keys() == {"uid-job-1", "uid-job-3"}
    assert "Evicted" in events["uid-job-1"]["message"]
    running.shows(0)
    deleted = [request for request in api.requests if request.method == "DELETE"]
    assert sorted((request.body or {})["preconditions"]["uid"] for request in deleted) == ["uid-job-1", "uid-job-3"]
    assert all("gracePeriodSeconds" not in (request.body or {}) for request in deleted)


@pytest.mark.parametrize("nodes", [True, False])
def test_replaces_the_worker_of_a_lost_node_before_anyone_deletes_it(
    api: KubeApi, start: Start, workers: Workers, nodes: bool
) -> None:
    put(api, 0, 1, 2)
    running = start(nodes=nodes)
    running.shows(0, 1, 2)
    # A node controller that comes back after an outage does this to workers that are well.
    api.put(PODS, pod(1, withdrawn=True))
    workers.silent.add("127.0.1.3")
    api.put(PODS, pod(2, withdrawn=True))
    until(lambda: "job-worker-2" not in api.objects[PODS])
    running.shows(0, 1)
    deleted = [request for request in api.requests if request.method == "DELETE"]
    assert [(request.body or {})["gracePeriodSeconds"] for request in deleted] == [0]
    assert "job-worker-1" in api.objects[PODS]


def test_frees_the_name_of_a_worker_that_stays_terminating(api: KubeApi, start: Start, workers: Workers) -> None:
    """A node that is not Ready, and one that is, where an unmount or a process in the kernel hangs."""
    workers.silent.update({"127.0.1.1", "127.0.1.2", "127.0.1.3"})
    api.put(NODES, node("lost", ready=False))
    api.put(NODES, node("fine"))
    past = "2026-01-01T00:00:00Z"
    api.put(PODS, pod(0, node="lost", deleting=past, ready=False))
    api.put(PODS, pod(1, node="fine", deleting=past, ready=False))
    api.put(PODS, pod(2, node="fine", deleting=past, ready=False, phase="Failed"))
    start()
    until(lambda: list(api.objects[PODS]) == ["job-worker-1"])
    deleted = [request for request in api.requests if request.method == "DELETE"]
    assert [(request.body or {})["gracePeriodSeconds"] for request in deleted] == [0, 0]
    messages = {event["involvedObject"]["name"]: event["message"] for event in api.objects[EVENTS].values()}
    assert "not Ready" in messages["job-worker-0"]
    assert "not Ready" not in messages["job-worker-2"]


def test_the_job_remembers_that_it_has_begun(
    api: KubeApi,
    start: Start,
    workers: Workers,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api.put(JOBS, mpijob(replicas=1))  # the operator has nothing to do
    put(api, 0)
    first = start()
    first.shows(0)
    assert not has_begun(first.folder)
    workers.say("127.0.1.1", state=WorkerState.TRAINING)
    until(lambda: ANNOTATION_BEGUN in api.objects[JOBS]["job"]["metadata"]["annotations"])
    assert has_begun(first.folder)
    first.stop()
    # Another launcher's pod has another folder, and finds no worker that trains.
    workers.lines.clear()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    options = SidecarOptions(job="job", namespace="default", run_dir=elsewhere, ready_port=workers.port)
    sidecar = Sidecar(options, api.access(), Metrics())
    known: list[bool] = []
    write = Publisher.publish
    monkeypatch.setattr(Publisher, "publish", lambda *given: known.append(has_begun(elsewhere)) or write(*given))  # type: ignore[func-returns-value]
    thread = threading.Thread(target=sidecar.run, daemon=True)
    thread.start()
    until(lambda: bool(known))
    sidecar.stop()
    thread.join(10)
    assert all(known)


def test_a_stranger_that_trains_is_no_beginning(api: KubeApi, start: Start, workers: Workers) -> None:
    workers.say("127.0.1.2", state=WorkerState.TRAINING)
    put(api, 0)
    api.put(PODS, pod(1, owner="earlier"))
    running = start()
    running.shows(0)
    assert not has_begun(running.folder)


def test_training_leaves_before_the_launcher_does(api: KubeApi, start: Start, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the job's own")
    for address in ("127.0.1.1", "127.0.1.2"):
        workers.say(address, state=WorkerState.TRAINING)
    put(api, 0, 1)
    running = start(ssh_key=tmp_path / "key")
    running.shows(0, 1)
    (tmp_path / DRAIN_FILE).touch()
    running.shows()
    told = {line for _, line in workers.received}
    assert f"leave {sign(request_key(tmp_path / 'key'), NONCE, 'leave ')}" in told
    until(lambda: len([line for _, line in workers.received if line.startswith("leave")]) == 2)
    workers.say("127.0.1.1", generation=1)
    until(lambda: running.sidecar._workers.prober.results.views["uid-job-0"].state is WorkerState.WAITING)
    assert not (tmp_path / DRAINED_FILE).exists()
    workers.closed.add("127.0.1.2")  # its next standby is not warm yet
    until((tmp_path / DRAINED_FILE).exists)
    assert running.hosts() == []


def test_workers_that_nobody_can_relieve_are_told_so_as_long_as_it_is_true(
    api: KubeApi, start: Start, workers: Workers, tmp_path: Path
) -> None:
    """The whole job is preempted: two workers leave, the third never had a node. Then a fourth gets one."""
    (tmp_path / "key").write_text("the job's own")
    for address in ("127.0.1.1", "127.0.1.2"):
        workers.say(address, state=WorkerState.TRAINING)
    put(api, 0, 1)
    without_node: dict[str, Any] = {"phase": "Pending", "ready": False, "node": "", "ip": "", "scheduled": "False"}
    api.put(PODS, pod(2, **without_node))
    running = start(ssh_key=tmp_path / "key")
    running.shows(0, 1)
    leaving: dict[str, Any] = {"disrupted": "PreemptionByScheduler", "deleting": "2030-01-01T00:00:00Z"}
    api.put(PODS, pod(0, **leaving))
    running.shows(1)
    _looks_again(running, times=3)
    assert _said_that_nobody_follows(workers) == [], "the other one holds the state, too"

    api.put(PODS, pod(1, **leaving))
    word = f"no-successor {sign(request_key(tmp_path / 'key'), NONCE, 'no-successor ')}"
    until(lambda: _said_that_nobody_follows(workers).count(("127.0.1.2", word)) >= 2)
    assert set(_said_that_nobody_follows(workers)) == {("127.0.1.1", word), ("127.0.1.2", word)}

    api.put(PODS, pod(2, **{**without_node, "node": "node-b", "scheduled": "True"}))
    until(lambda: running.sidecar._reconciler.state.inventory.pods["uid-job-2"].node == "node-b")
    _looks_again(running, times=1)  # what was decided before has been said by then
    workers.received.clear()
    _looks_again(running, times=3)
    assert _said_that_nobody_follows(workers) == []


def test_a_sidecar_without_the_jobs_key_tells_nobody(api: KubeApi, start: Start, workers: Workers) -> None:
    """None would believe it."""
    api.put(PODS, pod(0, deleting="2030-01-01T00:00:00Z"))
    running = start()
    running.shows()
    running.sidecar._look_for_successors()  # it looks for none, and returns
    assert _said_that_nobody_follows(workers) == []


def _looks_again(running: Running, *, times: int) -> None:
    """Wait until the sidecar has looked this often, and has sent what followed from it."""
    reconciler = running.sidecar._reconciler
    look, looks = reconciler.without_successor, threading.Semaphore(0)

    def counted() -> dict[str, str]:
        looks.release()
        return look()

    reconciler.without_successor = counted  # type: ignore[method-assign]
    for _ in range(times + 1):
        assert looks.acquire(timeout=20)
    reconciler.without_successor = look  # type: ignore[method-assign]


def _said_that_nobody_follows(workers: Workers) -> list[tuple[str, str]]:
    return [(address, line) for address, line in list(workers.received) if line.startswith("no-successor")]


def test_a_launcher_stays_for_workers_that_leave_with_it(
    api: KubeApi, start: Start, workers: Workers, tmp_path: Path
) -> None:
    """The whole job is suspended: its pods are told together, and a last checkpoint is under way."""
    for address in ("127.0.1.1", "127.0.1.2"):
        workers.say(address, state=WorkerState.TRAINING)
    put(api, 0, 1)
    running = start()
    running.shows(0, 1)
    for index, address in enumerate(("127.0.1.1", "127.0.1.2")):
        workers.say(address, state=WorkerState.LEAVING)
        api.put(PODS, pod(index, deleting="2030-01-01T00:00:00Z"))
    until(
        lambda: {view.state for view in running.sidecar._workers.prober.results.views.values()} == {WorkerState.LEAVING}
    )
    (tmp_path / DRAIN_FILE).touch()
    until(lambda: running.sidecar._reconciler._drain.is_under_way)
    assert not (tmp_path / DRAINED_FILE).exists()
    workers.closed |= {"127.0.1.1", "127.0.1.2"}  # their processes have ended
    until((tmp_path / DRAINED_FILE).exists)


def test_a_launcher_without_training_may_end_at_once(api: KubeApi, start: Start, tmp_path: Path) -> None:
    put(api, 0)
    running = start()
    running.shows(0)
    (tmp_path / DRAIN_FILE).touch()
    until((tmp_path / DRAINED_FILE).exists)


def test_a_launcher_does_not_wait_for_ever_for_its_training(tmp_path: Path) -> None:
    drain = LauncherDrain(tmp_path)
    assert not drain.begins(0.0)
    drain.end_if_due(lambda: False, 0.0)
    (tmp_path / DRAIN_FILE).touch()
    assert (drain.begins(1.0), drain.begins(2.0)) == (True, False)
    seen = []
    for now in (1.0 + DRAIN_SECONDS - 0.1, 1.0 + DRAIN_SECONDS):
        drain.end_if_due(lambda: True, now)
        seen.append((drain.is_under_way, (tmp_path / DRAINED_FILE).exists()))
    assert seen == [(True, False), (False, True)]


def test_a_smaller_job_loses_its_victims_first(api: KubeApi, start: Start, workers: Workers) -> None:
    for address in ("127.0.1.1", "127.0.1.2", "127.0.1.3"):
        workers.say(address, state=WorkerState.TRAINING)
    put(api, 0, 1, 2)
    running = start()
    running.shows(0, 1, 2)
    api.put(JOBS, mpijob(annotations={ANNOTATION_WANTED_WORKERS: "1"}))
    running.shows(0)
    workers.say("127.0.1.2", generation=1)
    assert api.objects[JOBS]["job"]["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 3
    workers.say("127.0.1.3", generation=1)
    until(lambda: api.objects[JOBS]["job"]["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 1)


def test_a_larger_job_is_asked_for_at_once(api: KubeApi, start: Start) -> None:
    start(max_workers=5)
    api.put(JOBS, mpijob(annotations={ANNOTATION_WANTED_WORKERS: "5"}))
    until(lambda: api.objects[JOBS]["job"]["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 5)


def test_an_address_never_passes_from_pod_to_pod_in_one_step(api: KubeApi, start: Start) -> None:
    put(api, 0, 1)
    running = start()
    running.shows(0, 1)
    seen: list[list[str]] = []
    api.remove(PODS, "job-worker-1")
    api.put(PODS, pod(2, ip="127.0.1.2"))
    until(lambda: seen.append(running.hosts() or []) or running.hosts() == ["0", "2"])  # type: ignore[func-returns-value]
    assert ["0"] in seen


def test_twenty_jobs_side_by_side_never_see_each_other(api: KubeApi, start: Start) -> None:
    for number in range(20):
        api.put(JOBS, mpijob(f"job-{number}", uid=f"owner-{number}"))
        for index in range(3):
            api.put(
                PODS, pod(index, job=f"job-{number}", owner=f"owner-{number}", ip=f"127.0.{number + 2}.{index + 1}")
            )
    running = start(job="job-7")
    running.shows(0, 1, 2)
    assert {host.pod.rpartition("-worker")[0] for host in read_snapshot(running.folder).hosts} == {"job-7"}
    assert len(api.objects[PODS]) == 60
    selectors = {request.query["labelSelector"] for request in api.requests if request.path == PODS}
    assert selectors == {f"{LABEL_JOB_NAME}=job-7,{LABEL_JOB_ROLE}={Role.WORKER}"}


def test_pods_of_an_earlier_job_of_the_same_name_are_not_offered(api: KubeApi, start: Start) -> None:
    api.put(PODS, pod(0, owner="earlier"))
    api.put(PODS, pod(1, owner=OWNER))
    start().shows(1)


def test_one_list_and_one_watch_while_all_is_well(api: KubeApi, start: Start) -> None:
    put(api, 0)
    running = start()
    running.shows(0)
    for index in (1, 2):
        put(api, index)
    running.shows(0, 1, 2)
    until(lambda: api.watching[JOBS] == api.watching[NODES] == 1)
    assert (api.lists(), api.asked(watch=True)) == (1, 1)
    assert max(api.most_watching.values()) == 1


def test_a_quiet_list_stays_fresh(api: KubeApi, start: Start) -> None:
    put(api, 0)
    running = start()
    running.shows(0)
    before = read_snapshot(running.folder)
    until(lambda: api.bookmark() or read_snapshot(running.folder).uptime_seconds > before.uptime_seconds)  # type: ignore[func-returns-value]
    assert read_snapshot(running.folder).generation == before.generation


def test_a_list_from_before_the_boot_is_not_kept_alive(api: KubeApi, start: Start, tmp_path: Path) -> None:
    left = Snapshot(
        hosts=(Host(address="127.0.9.9", slots=1, alias="old-0", pod="job-worker-9"),),
        generation=41,
        uptime_seconds=uptime_seconds() + 10_000,
        unix_seconds=int(time.time()) - 10_000,
    )
    write_snapshot(tmp_path, left)
    put(api, 0)
    running = start()
    running.shows(0)
    assert read_snapshot(tmp_path).generation == 42


def test_a_wall_clock_that_jumps_makes_no_list_old_or_young(api: KubeApi, workers: Workers, tmp_path: Path) -> None:
    jumped = iter([86_400.0, -86_400.0] * 10_000)
    options = SidecarOptions(
        job="job", namespace="default", run_dir=tmp_path, settle_seconds=0.0, ready_port=workers.port
    )
    sidecar = Sidecar(options, api.access(), Metrics(), wall=lambda: time.time() + next(jumped))
    thread = threading.Thread(target=sidecar.run, daemon=True)
    thread.start()
    try:
        for index in range(3):
            put(api, index)
            until(lambda count=index + 1: len(sidecar.eligible.hosts) == count)  # type: ignore[misc]
            until(lambda: (tmp_path / "hosts").exists() and read_snapshot(tmp_path).hosts == sidecar.eligible.hosts)
            assert sidecar.is_ready
    finally:
        sidecar.stop()
        thread.join(10)


def test_is_ready_while_the_snapshot_is_fresh_and_no_longer(api: KubeApi, workers: Workers, tmp_path: Path) -> None:
    late = [0.0]
    options = SidecarOptions(
        job="job", namespace="default", run_dir=tmp_path, settle_seconds=0.0, ready_port=workers.port
    )
    sidecar = Sidecar(options, api.access(), Metrics(), clock=lambda: boot_clock() + late[0])
    thread = threading.Thread(target=sidecar.run, daemon=True)
    assert not sidecar.is_ready
    thread.start()
    try:
        until(lambda: sidecar.is_ready)
        api.stop()
        late[0] = SNAPSHOT_MAX_AGE_SECONDS + 1.0
        assert not sidecar.is_ready
        api.start()
        until(lambda: sidecar.is_ready)
    finally:
        sidecar.stop()
        thread.join(10)


def test_metrics_and_health_tell_the_truth(api: KubeApi, start: Start) -> None:
    put(api, 0)
    api.put(PODS, pod(1, ready=False))
    running = start()
    running.shows(0)
    text = generate_latest(running.metrics.registry).decode()
    assert "hvd_elastic_discovery_hosts 1.0" in text
    assert 'hvd_elastic_discovery_left_out{reason="not-ready"} 1.0' in text
    assert "hvd_elastic_discovery_min_workers 1.0" in text
    assert "hvd_elastic_discovery_max_workers 3.0" in text
    assert (
        f"hvd_elastic_discovery_wanted_workers {float(mpijob()['spec']['mpiReplicaSpecs']['Worker']['replicas'])}"
        in text
    )
    assert "launcher_failures" not in text, "there is no Job to look after"
    assert "hvd_elastic_discovery_event_to_snapshot_seconds_count" in text
    health = health_server(
        running.metrics, alive=lambda: running.sidecar.is_alive, ready=lambda: False, port=0, address="127.0.0.1"
    )
    health.start()
    try:
        base = f"http://127.0.0.1:{health.port}"
        assert urllib.request.urlopen(f"{base}/healthz").status == 200
        assert b"hvd_elastic" in urllib.request.urlopen(f"{base}/metrics").read()
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{base}/readyz")
    finally:
        health.stop()


def test_is_not_ready_before_it_has_written(tmp_path: Path, start: Start, api: KubeApi) -> None:
    api.remove(JOBS, "job")
    put(api, 0)
    running = start()
    until(lambda: any(request.path.startswith(JOBS) for request in api.requests) and api.watching[PODS] == 1)
    assert running.sidecar.is_alive
    assert not running.sidecar.is_ready
    assert not (tmp_path / SNAPSHOT_FILE).exists()
    api.put(JOBS, mpijob())
    until(lambda: running.sidecar.is_ready)
    until(lambda: running.hosts() == ["0"])


def one_thread_fails(monkeypatch: pytest.MonkeyPatch, name: str, owner: Any, method: str) -> FailsOnce:
    """Once. The watches share a function, so it fails for the resource of this name alone."""
    real = getattr(owner, method)
    failing = fails_once(monkeypatch, owner, method)
    if method == "watch_resource":

        def watch_resource(resource: str, *others: Any, **named: Any) -> None:
            (failing if resource == name else real)(resource, *others, **named)

        monkeypatch.setattr(owner, method, watch_resource)
    return failing


@pytest.mark.parametrize(
    ("name", "owner", "method"),
    [
        ("job", sidecar_module, "watch_resource"),
        ("nodes", sidecar_module, "watch_resource"),
        ("actions", ActionExecutor, "run"),
        ("presence", WorkerContact, "keep_announcing"),
        ("succession", Sidecar, "_look_for_successors"),
        ("launcher-job", LauncherJob, "run"),
        ("recorder", JobRecorder, "run"),
        ("conclude", LauncherJob, "conclude"),
    ],
)
def test_an_unforeseen_error_ends_no_thread(
    name: str,
    owner: Any,
    method: str,
    api: KubeApi,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = one_thread_fails(monkeypatch, name, owner, method)
    put(api, 0)
    running = start(pod_uid="l1")
    running.shows(0)
    if name == "conclude":
        running.stop()
    goes_on(name, failing, caplog)
    if name != "conclude":
        put(api, 1)
        running.shows(0, 1)


@pytest.mark.parametrize(
    ("name", "owner", "method"), [("prober", Prober, "turn"), ("pods", sidecar_module, "watch_resource")]
)
def test_without_a_vital_thread_the_sidecar_ends(
    name: str, owner: Any, method: str, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Better to be started again by the kubelet than to serve half of the truth."""
    one_thread_fails(monkeypatch, name, owner, method)
    running = start(nodes=False)
    until(lambda: running.error is not None)
    assert str(running.error) == "broken"
    assert f"the sidecar ends: thread {name} failed: RuntimeError: broken" in caplog.text
    running.error = None


def test_an_action_that_fails_unforeseen_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for its result may decide anew."""
    fails_once(monkeypatch, ActionExecutor, "_execute")
    results: list[ActionResult] = []
    server: Any = None
    executor = ActionExecutor(server, MPIJobPlace(job="job", namespace="default", version="v2beta1"), results.append)
    executor.submit(RecordBeginning())
    with pytest.raises(RuntimeError, match="broken"):
        executor.run()
    assert [bool(result.error) for result in results] == [True]
