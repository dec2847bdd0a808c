"""The sidecar's record of a job: real HTTP, real ready ports, the ledger as it stands in the ConfigMap."""

import itertools
import json
import logging
import time
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hvd_elastic.discovery.job_beginning import has_begun
from hvd_elastic.discovery.kube.api_server import ApiServer
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.ledger import job_news
from hvd_elastic.discovery.ledger.account import fold
from hvd_elastic.discovery.ledger.bounded_ledger import BoundedLedger
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    RankSlow,
    RanksStalled,
    RecordLost,
    Slowness,
    StallEnded,
    WantedChanged,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
    to_line,
)
from hvd_elastic.discovery.ledger.history import stall_history, world_history
from hvd_elastic.discovery.ledger.history.job_history import JobHistory
from hvd_elastic.discovery.ledger.history.world_history import WorldHistory
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.ledger.preemptor import preemptor
from hvd_elastic.discovery.rules import operator_lag, slow_workers
from hvd_elastic.discovery.sidecar import slow_worker_replacement
from hvd_elastic.discovery.sidecar.launcher import launcher_pods
from hvd_elastic.discovery.sidecar.record import (
    job_recorder,
    ledger_writer,
    preemptor_lookup,
    status_publisher,
    worker_inquiry,
)
from hvd_elastic.discovery.sidecar.record.ledger_store import LedgerRefusedError, LedgerStore, LedgerTakenOverError
from hvd_elastic.discovery.sidecar.record.ledger_writer import LedgerWriter
from hvd_elastic.discovery.sidecar.record.preemptor_lookup import PreemptorLookup
from hvd_elastic.discovery.sidecar.record.status_publisher import StatusPublisher
from hvd_elastic.discovery.sidecar.record.worker_inquiry import WorkerInquiry
from hvd_elastic.discovery.sidecar.resource_watcher import REFUSED
from hvd_elastic.mpijob.contract import (
    ANNOTATION_EXCLUDED_NODES,
    ANNOTATION_STATUS,
    FIGURES_MAX_BYTES,
    LABEL_JOB_NAME,
    LABEL_JOB_ROLE,
    LABEL_REPLICA_TYPE,
    LAST_FIGURES_FILE,
    LEDGER_KEY,
    REGISTERED_FILE,
    WorkerState,
)
from hvd_elastic.system.backoff import Backoff
from testbed.kube_api import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    NODES,
    OWNER,
    PODS,
    KubeApi,
    Request,
    Status,
    mpijob,
    node,
    pod,
)
from tests.discovery.conftest import Running, Start, until
from tests.discovery.workers import Workers
from tests.failing_threads import fails_once

PLACE = MPIJobPlace(job="job", namespace="default", version="v2beta1")
LEDGER = "job-ledger"
Kind = TypeVar("Kind")


def launcher(uid: str, code: int | None = None, **meta: str) -> dict[str, Any]:
    state = (
        {"running": {}} if code is None else {"terminated": {"exitCode": code, "finishedAt": "2026-03-01T00:00:00Z"}}
    )
    labels = {LABEL_JOB_NAME: "job", LABEL_JOB_ROLE: "launcher"}
    return {
        "metadata": {"name": f"job-launcher-{uid}", "uid": uid, "labels": labels, **meta},
        "status": {"phase": "Running", "containerStatuses": [{"name": "launcher", "state": state}]},
    }


@pytest.fixture
def cluster(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> KubeApi:
    for module in (job_recorder, ledger_writer, worker_inquiry):
        for name in (
            "TURN_SECONDS",
            "BATCH_SECONDS",
            "RETRY_SECONDS",
            "CHECK_SECONDS",
            "FIGURES_SECONDS",
            "SOON_SECONDS",
        ):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(job_news, "GAP_SECONDS", 0.05)
    monkeypatch.setattr(launcher_pods, "END_SECONDS", 0.2)
    api.put(CONFIG_MAPS, {"metadata": {"name": LEDGER}})
    api.put(NODES, node("node-a", labels={"node.kubernetes.io/instance-type": "p3.2xlarge"}))
    api.put(PODS, launcher("l1"))
    return api


def ledger(api: KubeApi) -> BoundedLedger:
    return BoundedLedger.from_text(api.objects[CONFIG_MAPS][LEDGER].get("data", {}).get(LEDGER_KEY, ""))


def told(api: KubeApi, kind: type[Kind]) -> list[Kind]:
    return [entry for entry in ledger(api).entries if isinstance(entry, kind)]


def status(api: KubeApi) -> LiveStatus | None:
    return LiveStatus.from_json(api.objects[JOBS]["job"]["metadata"]["annotations"].get(ANNOTATION_STATUS, ""))


def sentences(api: KubeApi) -> dict[str, str]:
    events = api.objects[EVENTS].values()
    return {event["reason"]: event["message"] for event in events if event["involvedObject"]["kind"] == "MPIJob"}


def train(workers: Workers, *indexes: int, step: int = 10, **figures: object) -> None:
    """These workers train, the first of them as rank 0."""
    for index in indexes:
        workers.say(f"127.0.1.{index + 1}", state=WorkerState.TRAINING)
    known = {"unix": 2e9, "step": step, "size": len(indexes), "steps_per_second": 4.0, "loss": 0.5, **figures}
    workers.report(f"127.0.1.{indexes[0] + 1}", figures=known)


def test_a_job_from_its_first_worker_to_its_end(cluster: KubeApi, start: Start, workers: Workers) -> None:
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1))
    running = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    assert [(entry.pod, entry.uid) for entry in told(cluster, LauncherStarted)] == [("job-launcher-l1", "l1")]
    assert [entry.workers for entry in told(cluster, WantedChanged)] == [3]
    bound = {entry.pod: entry for entry in told(cluster, WorkerBound)}
    assert bound.keys() == {"job-worker-0", "job-worker-1"}
    first = bound["job-worker-0"]
    assert (first.node, first.machine, first.spot, first.unix) == ("node-a", "p3.2xlarge", False, 1767225600.0)
    assert told(cluster, WorldChanged)[0].workers == ("job-worker-0", "job-worker-1")
    until(lambda: (known := status(cluster)) is not None and known.workers == 2)
    known = status(cluster)
    assert known is not None
    assert (known.activity, known.step, known.loss, known.wanted) == (Activity.TRAINING, 10, 0.5, 3)
    until(lambda: "Resized" in sentences(cluster))
    assert sentences(cluster)["Resized"] == "trains with 2 of [1..3] workers"

    cluster.put(PODS, launcher("l1", code=0))
    running.stop()
    assert [(entry.exit_code, entry.unix) for entry in told(cluster, LauncherEnded)] == [(0, 1772323200.0)]
    assert ledger(cluster).entries[-1] == JobEnded(unix=1772323200.0, succeeded=True, exit_code=0, step=10)
    last = status(cluster)
    assert last is not None
    assert (last.activity, last.workers) == (Activity.ENDED, 0)
    assert sentences(cluster)["Finished"] == "the job has ended after step 10"


LAST = {"unix": 2e9, "step": 750, "size": 1, "epoch": 24, "loss": 0.25, "metrics": {"accuracy": 0.83}}


def end(api: KubeApi, running: Running, last: object = None) -> LiveStatus:
    """The launcher ends, and has left these figures; return what the MPIJob tells then."""
    if last is not None:
        (running.folder / LAST_FIGURES_FILE).write_text(last if isinstance(last, str) else json.dumps(last))
    api.put(PODS, launcher("l1", code=0))
    running.stop()
    told_last = status(api)
    assert told_last is not None
    assert told_last.activity is Activity.ENDED
    return told_last


def test_the_last_figures_are_those_of_the_end_and_not_of_the_last_question(
    cluster: KubeApi, start: Start, workers: Workers
) -> None:
    train(workers, 0, step=747)
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    until(lambda: (known := status(cluster)) is not None and known.step == 747)
    known = end(cluster, running, {**LAST, "samples": "epochs 0-24"})
    assert (known.step, known.loss, known.metrics) == (750, 0.25, {"accuracy": 0.83})
    assert known.samples == "epochs 0-24"
    (ended,) = told(cluster, JobEnded)
    assert ended.step == 750
    assert sentences(cluster)["Finished"] == "the job has ended after step 750"


def test_a_script_that_was_over_before_anybody_asked(cluster: KubeApi, start: Start) -> None:
    running = start(pod_uid="l1")
    until(lambda: bool(told(cluster, LauncherStarted)))
    known = end(cluster, running, LAST)
    assert (known.step, known.loss, known.metrics, known.has_run) == (750, 0.25, {"accuracy": 0.83}, True)


@pytest.mark.parametrize(
    "last",
    [
        {**LAST, "unix": 1e9},
        {**LAST, "unix": "late"},
        "no JSON",
        "[" * FIGURES_MAX_BYTES,
        json.dumps(LAST) + " " * FIGURES_MAX_BYTES,
    ],
)  # fmt: skip
def test_last_figures_that_are_older_or_none_change_nothing(
    cluster: KubeApi, start: Start, workers: Workers, last: object
) -> None:
    train(workers, 0, step=747)
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    until(lambda: (known := status(cluster)) is not None and known.step == 747)
    assert (known := end(cluster, running, last)).step == 747
    assert known.loss == 0.5


def test_a_script_that_tells_no_steps_has_run_once_it_has_registered(
    cluster: KubeApi, start: Start, workers: Workers
) -> None:
    workers.say("127.0.1.1", state=WorkerState.TRAINING)
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    until(lambda: has_begun(running.folder))
    until(lambda: (known := status(cluster)) is not None and not known.has_run)
    (running.folder / REGISTERED_FILE).touch()
    until(lambda: (known := status(cluster)) is not None and known.has_run)


def test_an_mpijob_of_the_legacy_operator_is_never_patched(cluster: KubeApi, start: Start, workers: Workers) -> None:
    """The right to is not there: the launcher's open port would be a way to it."""
    jobs = JOBS.replace("v2beta1", "v1")
    cluster.objects[jobs] = {}
    cluster.put(jobs, mpijob())
    worker = pod(0)
    worker["metadata"]["labels"][LABEL_REPLICA_TYPE] = "worker"
    train(workers, 0)
    cluster.put(PODS, worker)
    running = start(pod_uid="l1", version="v1")
    until(lambda: "Resized" in sentences(cluster))
    until(lambda: has_begun(running.folder))
    running.stop()
    assert told(cluster, WorldChanged)
    assert [
        request.path for request in cluster.requests if request.method == "PATCH" and "mpijobs" in request.path
    ] == []


def test_a_world_is_told_soon_though_its_workers_were_asked_just_before(
    cluster: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_inquiry, "FIGURES_SECONDS", 3600.0)
    workers.say("127.0.1.1", state=WorkerState.TRAINING)
    cluster.put(PODS, pod(0))
    start(pod_uid="l1")
    until(lambda: ("127.0.1.1", "report") in workers.received)
    train(workers, 0)
    until(lambda: bool(told(cluster, WorldChanged)))


def test_names_who_preempted_a_worker(cluster: KubeApi, start: Start, workers: Workers) -> None:
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1))
    start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    cluster.put(PODS, pod(1, disrupted="PreemptionByScheduler"))
    cluster.remove(PODS, "job-worker-1")
    cluster.create(EVENTS, {
        "metadata": {"generateName": "job-worker-1."},
        "involvedObject": {"kind": "Pod", "name": "job-worker-1", "uid": "uid-job-1"},
        "related": {"kind": "Pod", "namespace": "inference", "name": "web-1", "uid": "web-uid"},
        "reason": "Preempted",
        "message": "Preempted by pod web-uid on node node-a",
    })  # fmt: skip
    until(lambda: bool(told(cluster, WorkerGone)))
    (leaving,) = told(cluster, WorkerLeaving)
    assert (leaving.pod, leaving.why, leaving.by) == ("job-worker-1", Departure.PREEMPTED, "inference/web-1")
    until(lambda: (known := status(cluster)) is not None and known.preemptions == 1)
    train(workers, 0, step=20)
    until(lambda: told(cluster, WorldChanged)[-1].workers == ("job-worker-0",))
    until(lambda: "preempted" in sentences(cluster)["Resized"])
    expected = "trains with 1 of [1..3] workers: job-worker-1 was preempted by inference/web-1"
    assert sentences(cluster)["Resized"] == expected


@pytest.mark.parametrize(
    ("event", "by"),
    [
        ({"related": {"namespace": "team", "name": "web-1"}, "message": "Preempted by pod u on node n"}, "team/web-1"),
        ({"message": "Preempted by pod 0f-1 on node n"}, "uid:0f-1 on node n"),
        ({"message": "Preempted by podgroup 0f-1 on node n"}, "uid:0f-1 on node n"),
        ({"message": "Preempted by pod 0f-1 on node n,spec.nodeName!=n"}, "uid:0f-1 on node n"),
        ({"message": "Preempted by pod 0f-1"}, "uid:0f-1"),
        ({"message": "Preempted by team/web-1 on node n"}, "team/web-1"),
        ({"message": None}, ""),
    ],
)  # fmt: skip
def test_who_an_event_names(event: dict[str, Any], by: str) -> None:
    assert preemptor(event) == by


@pytest.mark.parametrize("placed", [{"status": {"nominatedNodeName": "node-a"}}, {"spec": {"nodeName": "node-a"}}])
@pytest.mark.parametrize(("uid", "by"), [("web-uid", "default/web-1"), ("other", "uid:web-uid on node node-a")])
def test_a_preemptor_of_the_own_namespace_is_named_by_its_uid(
    cluster: KubeApi, placed: dict[str, Any], uid: str, by: str
) -> None:
    """From Kubernetes 1.36 on, whose Events have no `related`."""
    cluster.put(PODS, {"metadata": {"name": "web-1", "namespace": "default", "uid": uid}, **placed})
    cluster.create(EVENTS, {
        "metadata": {"generateName": "job-worker-1."}, "involvedObject": {"uid": "uid-job-1"}, "reason": "Preempted",
        "message": "Preempted by pod web-uid on node node-a",
    })  # fmt: skip
    assert PreemptorLookup(ApiServer(cluster.access()), PLACE, clock=lambda: 0.0).find("uid-job-1") == by


@pytest.mark.parametrize("code", [401, 403])
def test_events_that_may_not_be_listed_are_asked_for_ever_less_often(
    code: int, cluster: KubeApi, caplog: pytest.LogCaptureFixture
) -> None:
    """By the Role of an older version, or by an API server that has just started."""

    def refuse(request: Request) -> None:
        raise Status(code)

    caplog.set_level(logging.INFO)
    cluster.create(EVENTS, {
        "metadata": {"generateName": "job-worker-1."}, "involvedObject": {"uid": "uid"},
        "message": "Preempted by pod other on node node-a", "reason": "Preempted",
    })  # fmt: skip
    cluster.fault, now = refuse, itertools.count()
    lookup = PreemptorLookup(ApiServer(cluster.access()), PLACE, clock=lambda: float(next(now)))
    assert [lookup.find("uid") for _ in range(1000)] == [""] * 1000
    assert len(cluster.requests) < 20
    cluster.fault = lambda request: None
    assert "uid:other on node node-a" in [lookup.find("uid") for _ in range(int(REFUSED.most_seconds))]
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "is not known, which is tried again every few minutes: HTTP 40" in said[0]
    assert said[1] == "Events may be listed again"


def test_no_entry_waits_for_a_name_that_nobody_will_tell_in_time(
    cluster: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: Request) -> None:
        if request.path == EVENTS and request.method == "GET":
            raise Status(403)

    monkeypatch.setattr(ledger_writer, "PREEMPTOR_SECONDS", 3600.0)
    monkeypatch.setattr(preemptor_lookup, "REFUSED", Backoff(first_seconds=4000.0, most_seconds=4000.0))
    cluster.fault = refuse
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1))
    start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    cluster.put(PODS, pod(1, disrupted="PreemptionByScheduler"))
    until(lambda: bool(told(cluster, WorkerLeaving)))


def test_entries_wait_for_the_api_server(cluster: KubeApi, start: Start) -> None:
    cluster.put(PODS, pod(0))
    start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorkerBound)))

    def refuse(request: Request) -> None:
        if request.path.startswith(CONFIG_MAPS):
            raise Status(503)

    cluster.fault = refuse
    cluster.put(PODS, pod(1))
    cluster.remove(PODS, "job-worker-0")
    asked = len(cluster.requests)
    until(lambda: sum(request.path.startswith(CONFIG_MAPS) for request in cluster.requests[asked:]) > 2)
    assert not told(cluster, WorkerGone)
    cluster.fault = lambda request: None
    until(lambda: bool(told(cluster, WorkerGone)))
    assert [entry.pod for entry in told(cluster, WorkerBound)] == ["job-worker-0", "job-worker-1"]


def test_without_the_right_to_a_ledger_the_live_status_goes_on(
    cluster: KubeApi, start: Start, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """A job of an older version, or one whose Role is gone for a while."""

    def refuse(request: Request) -> None:
        if request.path.startswith(CONFIG_MAPS):
            raise Status(403)

    cluster.fault = refuse
    train(workers, 0)
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    running.shows(0)
    until(lambda: (known := status(cluster)) is not None and known.activity is Activity.TRAINING)
    until(lambda: "LedgerLost" in sentences(cluster))
    assert "cannot be kept, and lives in memory only (HTTP 403: injected)" in sentences(cluster)["LedgerLost"]
    until(lambda: "Resized" in sentences(cluster))
    asked = len(cluster.requests)
    until(lambda: sum(request.path.startswith(CONFIG_MAPS) for request in cluster.requests[asked:]) > 2)
    assert sum("lives in memory only" in record.message for record in caplog.records) == 1
    cluster.fault = lambda request: None
    until(lambda: bool(told(cluster, WorldChanged)))
    assert len(told(cluster, LauncherStarted)) == len(told(cluster, WorkerBound)) == 1


def test_a_launcher_that_could_not_read_the_ledger_at_first_goes_on_with_it_all_the_same(
    cluster: KubeApi, start: Start, workers: Workers
) -> None:
    """A worker that went while nobody looked must not count as held for ever, and nothing was lost."""
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1))
    first = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    until(lambda: (known := status(cluster)) is not None and known.launchers == 1)
    first.stop()

    def refuse(request: Request) -> None:
        if request.path.startswith(CONFIG_MAPS):
            raise Status(403)

    cluster.fault = refuse
    cluster.remove(PODS, "job-worker-1")
    cluster.remove(PODS, "job-launcher-l1")
    cluster.put(PODS, launcher("l2"))
    train(workers, 0, step=20)
    start(pod_uid="l2")
    until(lambda: "LedgerLost" in sentences(cluster))
    until(lambda: (known := status(cluster)) is not None and known.workers == 1)
    cluster.fault = lambda request: None
    until(lambda: len(told(cluster, LauncherStarted)) == 2)
    assert [entry.uid for entry in told(cluster, WorkerGone)] == ["uid-job-1"]
    assert not told(cluster, RecordLost)
    account = fold(ledger(cluster).entries, 2e9)
    assert (account.launchers, account.counts_since) == (2, None)


def test_a_ledger_that_is_deleted_is_made_again_from_memory(cluster: KubeApi, start: Start, workers: Workers) -> None:
    train(workers, 0)
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    before = ledger(cluster).entries
    cluster.remove(CONFIG_MAPS, LEDGER)
    until(lambda: LEDGER in cluster.objects[CONFIG_MAPS] and ledger(cluster).entries == before)
    until(lambda: "LedgerLost" in sentences(cluster))
    assert sentences(cluster)["LedgerLost"].startswith("the ledger, ConfigMap job-ledger, was gone, or emptied")
    (owner,) = cluster.objects[CONFIG_MAPS][LEDGER]["metadata"]["ownerReferences"]
    assert owner["uid"] == OWNER
    (apply,) = (each for each in cluster.requests if each.headers.get("Content-Type") == "application/apply-patch+yaml")
    assert apply.query == {"fieldManager": "hvd-elastic-discovery", "force": "true"}
    cluster.put(PODS, pod(1))
    until(lambda: len(told(cluster, WorkerBound)) == 2)
    running.stop()
    assert not told(cluster, RecordLost)


@pytest.mark.parametrize(
    "text",
    [
        "rubbish\n",
        "",
        '{"kind":"world-changed","unix":"x"}\n',
        to_line(LauncherStarted(unix=1.0, pod="job-launcher-x", uid="of a ledger that was restored")),
    ],
)
def test_rubbish_in_the_ledger_is_written_over_and_the_live_status_goes_on(
    text: str, cluster: KubeApi, start: Start, workers: Workers
) -> None:
    train(workers, 0)
    cluster.put(PODS, pod(0))
    start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    before = ledger(cluster).entries
    cluster.patch(CONFIG_MAPS, LEDGER, {"data": {LEDGER_KEY: text}})
    train(workers, 0, step=20)
    cluster.put(PODS, pod(1))
    until(lambda: len(told(cluster, WorkerBound)) == 2)
    assert ledger(cluster).entries[: len(before)] == before
    until(lambda: (known := status(cluster)) is not None and known.step == 20)


def test_what_no_memory_has_is_a_gap_and_the_counters_say_since_when(
    cluster: KubeApi, start: Start, workers: Workers
) -> None:
    train(workers, 0)
    cluster.put(PODS, pod(0))
    first = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    until(lambda: (known := status(cluster)) is not None and known.workers == 1)
    first.stop()
    cluster.remove(CONFIG_MAPS, LEDGER)
    cluster.put(PODS, launcher("l2"))
    start(pod_uid="l2")
    until(lambda: LEDGER in cluster.objects[CONFIG_MAPS] and bool(told(cluster, WorldChanged)))
    (lost,) = told(cluster, RecordLost)
    assert ledger(cluster).entries[0] == lost
    until(lambda: (known := status(cluster)) is not None and known.counts_since == lost.unix)


def test_the_live_status_counts_nothing_that_its_ledger_lacks(cluster: KubeApi, start: Start, workers: Workers) -> None:
    """What it counts more was lost; entries that only wait were not."""

    def refuse(request: Request) -> None:
        if request.method == "PATCH" and request.path.startswith(CONFIG_MAPS):
            raise Status(503)

    cluster.fault = refuse
    train(workers, 0)
    cluster.put(PODS, pod(0))
    start(pod_uid="l1")
    until(lambda: (known := status(cluster)) is not None and known.activity is Activity.TRAINING)
    known = status(cluster)
    assert known is not None
    assert (known.step, known.launchers, known.gpu_seconds) == (10, 0, 0.0)
    cluster.fault = lambda request: None
    until(lambda: (known := status(cluster)) is not None and known.launchers == 1)


def test_no_ledger_is_made_for_a_job_that_is_gone(cluster: KubeApi, start: Start) -> None:
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorkerBound)))
    cluster.remove(JOBS, "job")

    def stays_away() -> bool:
        """Three looks for it later it is not there."""
        cluster.remove(CONFIG_MAPS, LEDGER)
        asked = len(cluster.requests)
        until(lambda: sum(each.path.startswith(CONFIG_MAPS) for each in cluster.requests[asked:]) >= 3)
        return LEDGER not in cluster.objects[CONFIG_MAPS]

    until(stays_away)
    running.stop()
    assert "LedgerLost" not in sentences(cluster) or "memory only" not in sentences(cluster)["LedgerLost"]
    assert LEDGER not in cluster.objects[CONFIG_MAPS]


def test_the_next_launcher_goes_on_with_the_ledger(cluster: KubeApi, start: Start, tmp_path: Path) -> None:
    cluster.put(PODS, pod(0))
    first = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorkerBound)))
    cluster.put(PODS, launcher("l1", code=1))
    first.stop()
    assert [entry.exit_code for entry in told(cluster, LauncherEnded)] == [1]
    assert not told(cluster, JobEnded), "another launcher follows"
    cluster.put(PODS, launcher("l2"))
    start(pod_uid="l2")
    until(lambda: len(told(cluster, LauncherStarted)) == 2)
    assert len(told(cluster, WorkerBound)) == 1
    assert len(told(cluster, LauncherEnded)) == 1


def test_an_end_that_nobody_knows_yet_is_told_by_the_next_launcher(cluster: KubeApi, start: Start) -> None:
    first = start(pod_uid="l1")
    until(lambda: bool(told(cluster, LauncherStarted)))
    first.stop()
    assert not told(cluster, LauncherEnded), "perhaps only the sidecar has to begin again"
    cluster.put(PODS, launcher("l1", code=3))
    cluster.put(PODS, launcher("l2"))
    start(pod_uid="l2")
    until(lambda: len(told(cluster, LauncherStarted)) == 2)
    (ended,) = told(cluster, LauncherEnded)
    assert (ended.uid, ended.exit_code, ended.unix) == ("l1", 3, 1772323200.0)


def test_a_sidecar_that_begins_again_beside_its_launcher_tells_of_no_end(
    cluster: KubeApi, start: Start, workers: Workers
) -> None:
    train(workers, 0)
    cluster.put(PODS, pod(0))
    first = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    first.stop()
    before = ledger(cluster).entries
    start(pod_uid="l1")
    cluster.put(PODS, pod(1))
    until(lambda: len(told(cluster, WorkerBound)) == 2)
    assert ledger(cluster).entries[: len(before)] == before
    assert not told(cluster, LauncherEnded)
    assert len(told(cluster, WorldChanged)) == 1


def test_a_launcher_that_is_gone_was_deleted(cluster: KubeApi, start: Start) -> None:
    running = start(pod_uid="l1")
    until(lambda: bool(told(cluster, LauncherStarted)))
    cluster.remove(PODS, "job-launcher-l1")
    running.stop()
    (ended,) = told(cluster, LauncherEnded)
    assert (ended.pod, ended.exit_code, ended.reason) == ("job-launcher-l1", None, "deleted")


def test_a_lost_process_is_told_with_how_it_ended(
    cluster: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world_history, "PROCESS_SECONDS", 0.5)
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1))
    start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    workers.report("127.0.1.2", last_exit={"seconds": 0.1, "code": 137, "hung": True})
    workers.say("127.0.1.2", state=WorkerState.WAITING, generation=1)
    until(lambda: bool(told(cluster, WorkerProcessLost)))
    assert [(entry.pod, entry.detail) for entry in told(cluster, WorkerProcessLost)] == [("job-worker-1", "hung")]


def test_ranks_that_wait_for_each_other_are_told(
    cluster: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_history, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(worker_inquiry, "WAITS_SECONDS", 0.05)
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1))
    for index, operation in enumerate(("allreduce loss", "broadcast w")):
        wait = {"rank": index, "size": 2, "seconds": 31.0, "after": 30.0, "operation": operation}
        workers.report(f"127.0.1.{index + 1}", waits=[wait])
    start(pod_uid="l1")
    until(lambda: bool(told(cluster, RanksStalled)))
    words = "rank 0 waits in allreduce loss; rank 1 waits in broadcast w"
    assert [(entry.words, entry.step) for entry in told(cluster, RanksStalled)] == [(words, 10)]
    until(lambda: (known := status(cluster)) is not None and known.stall == words)
    until(lambda: sentences(cluster).get("RanksStalled") == f"training waits for ranks: {words}")
    for index in range(2):
        workers.report(f"127.0.1.{index + 1}", waits=[])
    until(lambda: bool(told(cluster, StallEnded)))
    until(lambda: (known := status(cluster)) is not None and known.stall == "")
    assert len(told(cluster, RanksStalled)) == 1


def train_with_a_slow_rank(cluster: KubeApi, workers: Workers) -> None:
    """Two workers, of which the second one is slow."""
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1))
    for index, computing in enumerate((0.2, 0.36)):
        now = time.time()
        blocks = [[now - 5.0 * ago, 10, 0.5, computing, 0.01] for ago in reversed(range(12))]
        workers.report(f"127.0.1.{index + 1}", unix=now, paces=[{"rank": index, "size": 2, "blocks": blocks}])


def test_a_rank_that_is_slow_is_told(cluster: KubeApi, start: Start, workers: Workers) -> None:
    train_with_a_slow_rank(cluster, workers)
    running = start(pod_uid="l1")
    until(lambda: bool(told(cluster, RankSlow)))
    (entry,) = told(cluster, RankSlow)
    assert (entry.rank, entry.pod, entry.times, entry.slowness) == (1, "job-worker-1", 1.76, Slowness.COMPUTING)
    words = f"rank 1 on {entry.node} takes 1.8 times as long as the others: computing, not loading"
    until(lambda: sentences(cluster).get("RankSlow") == words)
    until(lambda: (known := status(cluster)) is not None and known.slow == {"job-worker-1": entry.unix})
    labels = {"rank": "1", "worker": "job-worker-1", "node": entry.node, "slowness": "computing"}
    assert running.metrics.registry.get_sample_value("hvd_elastic_discovery_slow_rank", labels) == 1.76
    for index in range(2):
        workers.say(f"127.0.1.{index + 1}", state=WorkerState.WAITING)
    # Nobody trains any more: an alert would go on for ever.
    until(lambda: running.metrics.registry.get_sample_value("hvd_elastic_discovery_slow_rank", labels) is None)
    until(lambda: (known := status(cluster)) is not None and known.slow == {})


@pytest.mark.parametrize(
    ("replaces", "excluded", "successor"),
    [
        (True, "", "it is only drained, and nothing keeps its successor off node-a"),
        (True, "node-b=2026-12-01T12:00:00Z", "it is only drained, and nothing keeps its successor off node-a"),
        (True, "node-b=2026-12-01T12:00:00Z,node-a=2026-12-01T12:05:00Z", "its successor keeps off node-a"),
        (False, "", ""),
    ],
)
def test_a_slow_worker_is_replaced_if_the_job_asks_for_it(
    cluster: KubeApi,
    start: Start,
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
    replaces: bool,
    excluded: str,
    successor: str,
) -> None:
    monkeypatch.setattr(slow_workers, "HOLD_SECONDS", 0.0)
    train_with_a_slow_rank(cluster, workers)
    cluster.put(JOBS, mpijob(annotations={ANNOTATION_EXCLUDED_NODES: excluded}))
    start(pod_uid="l1", replace_slow=replaces)
    until(lambda: bool(told(cluster, RankSlow)))
    if replaces:
        until(lambda: bool(told(cluster, WorkerLeaving)))
        assert [(entry.pod, entry.why) for entry in told(cluster, WorkerLeaving)] == [("job-worker-1", Departure.SLOW)]
        (event,) = (each for each in cluster.objects[EVENTS].values() if each["reason"] == "WorkerSlow")
        assert event["message"].endswith(f"not loading; {successor}: deleted so that the operator replaces it")
    deleted = [request.body for request in cluster.requests if request.method == "DELETE"]
    assert [body["preconditions"]["uid"] for body in deleted if body] == ["uid-job-1"] * replaces
    assert all("gracePeriodSeconds" not in (body or {}) for body in deleted), "it drains, as one that is preempted"


def test_a_slow_worker_that_could_not_be_deleted_is_tried_again(
    cluster: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((slow_workers, "HOLD_SECONDS"), (slow_worker_replacement, "RETRY_SECONDS")):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(slow_worker_replacement, "LOOK_SECONDS", 0.2)
    train_with_a_slow_rank(cluster, workers)
    refused: list[Request] = []

    def refuse_once(request: Request) -> None:
        if request.method == "DELETE" and not refused:
            refused.append(request)
            raise Status(500)

    cluster.fault = refuse_once
    start(pod_uid="l1", replace_slow=True)
    until(lambda: bool(told(cluster, WorkerLeaving)), 60)
    assert len(refused) == 1


def test_saves_that_fail_are_told_at_once(
    cluster: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_publisher, "STATUS_SECONDS", 3600.0)
    train(workers, 0, durable_step=8, durable=1e9)
    cluster.put(PODS, pod(0))
    start(pod_uid="l1")
    until(lambda: (known := status(cluster)) is not None and known.durable_step == 8)
    train(workers, 0, durable_step=8, durable=1e9, save_error="/checkpoints: Read-only file system")
    until(lambda: (known := status(cluster)) is not None and known.save_error != "")
    until(lambda: "CheckpointFailed" in sentences(cluster))
    assert "Read-only file system; the newest is of step 8. " in sentences(cluster)["CheckpointFailed"]
    train(workers, 0, step=20, durable_step=19, durable=1.1e9)
    until(lambda: "CheckpointDurable" in sentences(cluster))
    until(lambda: (known := status(cluster)) is not None and known.save_error == "")


def test_the_ledger_of_an_earlier_job_is_void(cluster: KubeApi, start: Start) -> None:
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
    old = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "job", "uid": "earlier"}
    text = to_line(WorkerBound(unix=1.0, pod="job-worker-0", uid="old", node="n"))
    cluster.put(CONFIG_MAPS, {
        "metadata": {"name": LEDGER, "ownerReferences": [old, stranger]}, "data": {LEDGER_KEY: text},
    })  # fmt: skip
    start(pod_uid="l1")
    until(lambda: bool(told(cluster, LauncherStarted)))
    assert not told(cluster, WorkerBound)
    owners = cluster.objects[CONFIG_MAPS][LEDGER]["metadata"]["ownerReferences"]
    assert owners == [stranger, {**old, "uid": OWNER}]


def store(api: KubeApi, uid: str, *launchers: str) -> LedgerStore:
    """Of the launcher `uid`, while pods of `launchers` are there."""
    opened = LedgerStore(
        ApiServer(api.access()),
        PLACE,
        launcher_uid=uid,
        is_launcher=launchers.__contains__,
        on_trouble=lambda sentence: None,
    )
    opened.read(OWNER)
    return opened


def test_a_write_that_nobody_answered_is_not_written_twice(cluster: KubeApi) -> None:
    writer = store(cluster, "l1")
    entries: list[Entry] = [LauncherStarted(unix=1.0, pod="l", uid="l1"), WantedChanged(unix=1.0, workers=2)]
    writer.append(entries[:1])
    cluster.patch(CONFIG_MAPS, LEDGER, {"data": {LEDGER_KEY: ledger(cluster).append(entries[1:]).text}})
    writer.append(entries[1:])
    assert list(ledger(cluster).entries) == entries


def test_the_later_launcher_has_the_ledger(cluster: KubeApi) -> None:
    older, newer = store(cluster, "l1", "l1", "l2"), store(cluster, "l2", "l1", "l2")
    older.append([LauncherStarted(unix=1.0, pod="l", uid="l1")])
    newer.append([LauncherStarted(unix=2.0, pod="l", uid="l2")])
    with pytest.raises(LedgerTakenOverError):
        older.append([WantedChanged(unix=3.0, workers=1)])
    assert [entry.uid for entry in told(cluster, LauncherStarted)] == ["l1", "l2"]
    assert not told(cluster, WantedChanged)


def test_a_restored_copy_that_ends_with_an_earlier_launcher_is_written_over(cluster: KubeApi) -> None:
    """Its pod is still there: a Job keeps those that ended by themselves."""
    earlier: list[Entry] = [LauncherStarted(unix=1.0, pod="l", uid="l1"), LauncherEnded(unix=2.0, pod="l", uid="l1")]
    store(cluster, "l1").append(earlier)
    copy = ledger(cluster).text
    writer = store(cluster, "l2", "l1", "l2")
    writer.append([LauncherStarted(unix=3.0, pod="l", uid="l2")])
    cluster.patch(CONFIG_MAPS, LEDGER, {"data": {LEDGER_KEY: copy}})
    writer.check()
    assert [entry.uid for entry in told(cluster, LauncherStarted)] == ["l1", "l2"]


@pytest.mark.parametrize(("healed_by", "arguments"), [("check", ()), ("append", ([],))])
def test_what_was_kept_in_memory_comes_behind_what_could_not_be_read(
    cluster: KubeApi, healed_by: str, arguments: tuple[Any, ...]
) -> None:
    def refuse(request: Request) -> None:
        raise Status(403)

    earlier: list[Entry] = [LauncherStarted(unix=1.0, pod="l", uid="l1"), LauncherEnded(unix=2.0, pod="l", uid="l1")]
    store(cluster, "l1").append(earlier)
    cluster.fault = refuse
    writer = LedgerStore(
        ApiServer(cluster.access()), PLACE, launcher_uid="l2", is_launcher=lambda uid: False, on_trouble=print
    )
    with pytest.raises(LedgerRefusedError):
        writer.read(OWNER)
    begun = LauncherStarted(unix=3.0, pod="l", uid="l2")
    with pytest.raises(LedgerRefusedError):
        writer.append([begun])
    cluster.fault = lambda request: None
    getattr(writer, healed_by)(*arguments)
    assert list(ledger(cluster).entries) == [*earlier, begun]


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (JobHistory, "_see"),
        (JobHistory, "take_nodes"),
        (JobHistory, "take_job"),
        (JobHistory, "take_answers"),
        (JobHistory, "begin"),
        (WorkerInquiry, "ask_all"),
        (WorldHistory, "pass_time"),
        (LedgerWriter, "write_if_due"),
        (StatusPublisher, "publish"),
    ],
)
def test_an_unforeseen_error_costs_what_it_struck_and_not_the_record(
    owner: Any,
    method: str,
    cluster: KubeApi,
    start: Start,
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = fails_once(monkeypatch, owner, method)
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    until(lambda: failing.calls > 0)
    train(workers, 0, 1)
    cluster.put(PODS, pod(1))
    cluster.put(NODES, node("node-b"))
    cluster.put(JOBS, mpijob(replicas=2))
    until(lambda: failing.calls > 1)
    until(lambda: bool(told(cluster, WorldChanged)))
    until(lambda: (known := status(cluster)) is not None and known.step == 10)
    said = [record.getMessage() for record in caplog.records if "the job's record goes on" in record.getMessage()]
    assert len(said) == 1
    assert "RuntimeError: broken (failing_threads.py:" in said[0]
    cluster.put(PODS, launcher("l1", code=0))
    running.stop()
    assert told(cluster, JobEnded)


def test_an_error_in_one_last_word_does_not_cost_the_others(
    cluster: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once(monkeypatch, LedgerWriter, "conclude")
    train(workers, 0)
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    until(lambda: (known := status(cluster)) is not None and known.workers == 1)
    cluster.put(PODS, launcher("l1", code=0))
    running.stop()
    known = status(cluster)
    assert known is not None
    assert known.workers == 0


def test_the_live_status_waits_while_the_operator_has_something_to_do(
    cluster: KubeApi, start: Start, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write would make the operator's own conflict. The ledger goes on, and the metric tells of the wait."""
    monkeypatch.setattr(operator_lag, "HELD_SECONDS", 3600.0)
    cluster.put(JOBS, mpijob(replicas=2))
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    running = start(pod_uid="l1")
    until(lambda: bool(told(cluster, WorldChanged)))
    patched = [request for request in cluster.requests if request.method == "PATCH" and request.path.startswith(JOBS)]
    assert [request.path for request in patched] == []
    wait = "hvd_elastic_discovery_operator_wait_seconds"
    assert running.metrics.registry.get_sample_value(wait)
    cluster.put(PODS, pod(1))
    until(lambda: (known := status(cluster)) is not None and known.workers == 2)
    assert running.metrics.registry.get_sample_value(wait) == 0.0
    cluster.put(JOBS, {**mpijob(replicas=2), "status": {"replicaStatuses": {"Worker": {"active": 1}}}})
    cluster.put(PODS, pod(1, disrupted="PreemptionByScheduler"))
    until(lambda: bool(told(cluster, WorkerLeaving)))
    assert status(cluster) is None, "the operator has not noted the second worker"
    cluster.put(JOBS, {**mpijob(replicas=2), "status": {"replicaStatuses": {"Worker": {"active": 2}}}})
    until(lambda: status(cluster) is not None)


def test_a_status_of_a_job_that_was_changed_meanwhile_is_written_once_that_is_seen(
    cluster: KubeApi, start: Start, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """The change may have given the operator work."""
    train(workers, 0, 1)
    cluster.put(PODS, pod(0))
    start(pod_uid="l1")
    until(lambda: (known := status(cluster)) is not None and known.workers == 1, 60.0)
    refused: list[str] = []

    def refuse(request: Request) -> None:
        if request.method == "PATCH" and not refused and ANNOTATION_STATUS in json.dumps(request.body):
            refused.append(request.path)
            raise Status(409)

    cluster.fault = refuse
    cluster.put(PODS, pod(1))
    until(lambda: (known := status(cluster)) is not None and known.workers == 2, 60.0)
    assert refused
    assert not [record for record in caplog.records if "does not tell its status" in record.getMessage()]
