"""`status`, `list`, `events` and `cost` against an API server, as a person calls them."""

import json
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from hvd_elastic.cli import cli
from hvd_elastic.cli.inspection.status import command as status_verb
from hvd_elastic.client.report.job_state import JobState
from hvd_elastic.discovery.ledger.entries import Departure, RecordLost, WorkerLeaving
from testbed.kube_api import EVENTS, JOBS, PODS, KubeApi, Request, Status
from tests.hvd_elastic.client.report.objects import (
    ALL_JOBS,
    CONFIG_MAPS,
    LEDGER,
    NOW,
    VERSION,
    condition,
    facts,
    ledger_map,
    live,
    mpijob,
    preempted_event,
    queued,
    workload,
)

pytestmark = pytest.mark.usefixtures("cluster")

ALL_PODS = "/api/v1/pods"


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def fresh() -> dict[str, Any]:
    """A job whose sidecar spoke just now, by the clock of this machine, which the fake server tells too."""
    return mpijob(status=live(unix=time.time(), since=time.time() - 600))


@pytest.fixture
def training(served: KubeApi) -> KubeApi:
    served.put(JOBS, fresh())
    served.put(ALL_JOBS, fresh())
    served.put(CONFIG_MAPS, ledger_map())
    served.put(EVENTS, preempted_event())
    for pod in facts().pods:
        served.put(PODS, pod)
    return served


def test_status_says_the_truth_and_its_exit_code_tells_the_state(training: KubeApi) -> None:
    said = call("status", "train")
    assert said.exit_code == 0
    assert said.output.startswith("default/train: training with 2 of [1..8] workers since ")
    assert "the one before was preempted by inference/web-1" in said.output
    training.put(JOBS, mpijob(conditions=[condition("Failed")], ended=1.0))
    assert call("status", "train").exit_code == 20


@pytest.mark.parametrize("output", ["wide", "json", "yaml", "name"])
def test_status_in_other_forms(training: KubeApi, output: str) -> None:
    said = call("status", "train", "-o", output).output
    match output:
        case "json":
            assert json.loads(said)["workers"][2]["before"] == "preempted by inference/web-1"
        case "yaml":
            assert yaml.safe_load(said)["state"] == "training"
        case "name":
            assert said == "mpijob.kubeflow.org/train\n"
        case _:
            assert "train-worker-0 training on node-a" in said


@pytest.mark.parametrize("has_ledger", [True, False])
@pytest.mark.parametrize(("allowed", "who"), [(True, "inference/web-1"), (False, "uid:3c1f on node node-a")])
def test_a_preemptor_that_the_sidecar_could_not_name_is_looked_for(
    training: KubeApi, *, has_ledger: bool, allowed: bool, who: str
) -> None:
    """From Kubernetes 1.36 on the scheduler's Events have a UID alone, and the sidecar sees its own namespace."""

    def fault(request: Request) -> None:
        if request.path == ALL_PODS and not allowed:
            raise Status(403)

    left, by = time.time() - 60, "uid:3c1f on node node-a"
    gone = WorkerLeaving(unix=left, pod="train-worker-2", uid="old-2", why=Departure.PREEMPTED, by=by)
    if has_ledger:
        training.put(CONFIG_MAPS, ledger_map([*LEDGER[:4], gone]))
    else:
        training.remove(CONFIG_MAPS, "train-ledger")
    victim = {"kind": "Pod", "name": "train-worker-2", "uid": "old-2"}
    training.put(EVENTS, {**preempted_event(unix=left), "related": None, "involvedObject": victim})
    web = {"name": "web-1", "namespace": "inference", "uid": "3c1f"}
    training.objects[ALL_PODS] = {}
    training.put(ALL_PODS, {"metadata": web, "spec": {"nodeName": "node-a"}})
    training.fault = fault
    assert f"preempted by {who}" in call("status", "train").output
    assert f"preempted by {who}" in call("events", "train").output


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize(
    ("owners", "name"), [([{"kind": "Pod", "name": "web-1"}], "inference/web-1"), ([], "inference/pod-web-1-4f2")]
)
def test_what_kueue_took_a_worker_for_is_looked_for_by_its_workload(
    training: KubeApi, owners: list[dict[str, str]], name: str, *, allowed: bool
) -> None:
    """The sidecar knows its UID, and may ask nobody."""
    left = time.time() - 60
    gone = WorkerLeaving(
        unix=left, pod="train-worker-2", uid="old-2", why=Departure.PREEMPTED, by="uid:3c1f", queue="serving"
    )
    training.put(CONFIG_MAPS, ledger_map([*LEDGER[:4], gone]))
    path = "/apis/kueue.x-k8s.io/v1beta2/workloads"
    meta = {"name": "pod-web-1-4f2", "namespace": "inference", "labels": {"kueue.x-k8s.io/job-uid": "3c1f"}}
    training.objects[path] = {
        "other": {"metadata": {**meta, "name": "other", "labels": {"kueue.x-k8s.io/job-uid": "3c1"}}},
        "ours": {"metadata": {**meta, "ownerReferences": owners}},
    }

    def fault(request: Request) -> None:
        if request.path == path and not allowed:
            raise Status(403)

    training.fault = fault
    who = name if allowed else "uid:3c1f"
    assert f"preempted by {who} of queue serving" in call("status", "train").output
    assert f"preempted by {who} of queue serving" in call("events", "train").output


def test_a_worker_that_waits_in_a_queue_has_its_words_in_status_and_events(training: KubeApi) -> None:
    for name in ("train-worker-0", "train-worker-1", "train-worker-2"):
        training.put(PODS, queued(name))
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
    training.objects[path] = {
        str(index): {
            "metadata": {"name": f"pod-{index}", "labels": {"kueue.x-k8s.io/job-uid": f"uid-train-worker-{index}"}},
            **workload(f"no quota for {index}"),
        }
        for index in range(2)
    }
    for verb in ("status", "events"):
        told = call(verb, "train").output
        assert "queued" in told
        assert all(f"queue research: no quota for {index}" in told for index in range(2))
        assert told.count("Kueue has not looked at it in queue research") == 1


@pytest.mark.parametrize("by", ["uid:a) , x in (b", "uid:-", f"uid:{'a' * 64}", "uid:"])
def test_a_uid_that_is_none_is_asked_of_nobody(training: KubeApi, by: str) -> None:
    gone = WorkerLeaving(unix=time.time(), pod="train-worker-2", uid="old-2", why=Departure.PREEMPTED, by=by, queue="q")
    training.put(CONFIG_MAPS, ledger_map([*LEDGER[:4], gone]))
    assert call("status", "train").exit_code == 0
    assert not any("kueue" in request.path for request in training.requests)


def test_every_state_can_be_waited_for() -> None:
    (wait_for,) = (one for one in status_verb.params if one.name == "wait_for")
    assert isinstance(wait_for.type, click.Choice)
    assert set(wait_for.type.choices) == set(JobState)


def test_status_waits_for_a_state(training: KubeApi) -> None:
    assert call("status", "train", "--wait-for", "training").exit_code == 0
    assert call("status", "train", "--wait-for", "succeeded", "--timeout", "0").exit_code == 124
    training.put(JOBS, mpijob(conditions=[condition("Failed")], ended=1.0))
    assert call("status", "train", "--wait-for", "succeeded").exit_code == 20
    training.put(JOBS, mpijob(conditions=[condition("Succeeded")], ended=1.0))
    assert call("status", "train", "--wait-for", "training").exit_code == 1


def fail(served: KubeApi, *codes: int, then: Callable[[], object] = lambda: None) -> None:
    """From its next look on the job is answered with these codes, and `then` happens."""
    left = [200, *codes]

    def fault(request: Request) -> None:
        if request.path == f"{JOBS}/train" and left and (code := left.pop(0)) != 200:
            if not left:
                then()
            raise Status(code)

    served.fault = fault


def test_faults_that_pass_end_neither_status_nor_watch(training: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvd_elastic.cli.inspection.status._POLL_SECONDS", 0.01)
    monkeypatch.setattr("hvd_elastic.cli.inspection.watch._READ_SECONDS", 0.01)
    for words in (("status", "train", "--wait-for", "succeeded"), ("watch", "train")):
        training.put(JOBS, fresh())
        end = partial(training.put, JOBS, mpijob(conditions=[condition("Succeeded")], ended=1.0))
        fail(training, 503, 429, 500, 401, then=end)
        said = call(*words)
        assert said.exit_code == 0
        assert "succeeded" in said.output


def test_a_fault_does_not_outlast_the_time_limit(training: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvd_elastic.cli.inspection.status._POLL_SECONDS", 0.01)
    fail(training, *[503] * 1000)
    said = call("status", "train", "--wait-for", "succeeded", "--timeout", "0.5")
    assert said.exit_code == 124
    assert "training with 2" in said.output, "what was seen last"


def test_what_may_not_be_read_is_said_and_the_rest_is_shown(training: KubeApi) -> None:
    def no_ledger(request: Request) -> None:
        if "configmaps" in request.path:
            raise Status(403)

    training.fault = no_ledger
    said = call("status", "train")
    assert "training with 2" in said.output
    assert "note: injected" in said.output


def in_queue(training: KubeApi, *served: str) -> None:
    """The job waits in a queue of Kueue, whose API the cluster serves in these versions."""
    training.put(JOBS, mpijob(suspend=True, labels={"kueue.x-k8s.io/queue-name": "team"}))
    said = {"type": "QuotaReserved", "status": "False", "message": "insufficient quota"}
    for version in served:
        workload = {"metadata": {"name": "w", "labels": {"kueue.x-k8s.io/job-uid": "uid-train"}}}
        workloads = f"/apis/kueue.x-k8s.io/{version}/namespaces/default/workloads"
        training.objects[workloads] = {"w": {**workload, "status": {"conditions": [said]}}}


def queue_of(version: str) -> str:
    return f"/apis/visibility.kueue.x-k8s.io/{version}/namespaces/default/localqueues/team/pendingworkloads"


@pytest.mark.parametrize("versions", [("v1beta1",), ("v1beta1", "v1beta2"), ("v1beta2",)], ids=" ".join)
def test_a_queued_job_says_how_many_come_before_it(training: KubeApi, versions: tuple[str, ...]) -> None:
    in_queue(training, *versions)
    without = call("status", "train")
    assert without.exit_code == 14
    assert "queue team: insufficient quota" in without.output
    assert (
        "its place in the queue is not known: the API server does not serve visibility.kueue.x-k8s.io" in without.output
    )
    training.objects[queue_of(versions[-1])] = {"w": {"metadata": {"name": "w"}, "positionInLocalQueue": 2}}
    told = call("status", "train").output
    assert "queue team, 2 jobs before it: insufficient quota" in told
    assert "not known" not in told
    asked = {request.path.split("/")[3] for request in training.requests if "/workloads" in request.path}
    assert asked == {versions[-1]}, "the newest"


@pytest.mark.parametrize(
    ("versions", "said"), [((), "does not serve kueue.x-k8s.io"), (("v1",), "kueue.x-k8s.io as v1,")]
)
def test_a_queue_that_cannot_be_asked_is_not_an_empty_one(
    training: KubeApi, versions: tuple[str, ...], said: str
) -> None:
    in_queue(training, *versions)
    told = call("status", "train")
    assert told.exit_code == 14
    assert "Kueue cannot be asked why" in told.output
    assert said in told.output
    assert "is there such a LocalQueue" not in told.output


def test_a_place_in_the_queue_that_nobody_tells_is_not_known(training: KubeApi) -> None:
    in_queue(training, "v1beta2")
    training.objects[queue_of("v1beta2")] = {}

    def away(request: Request) -> None:
        if "pendingworkloads" in request.path:
            raise Status(503)

    training.fault = away
    told = call("status", "train").output
    assert "queue team: insufficient quota" in told
    assert "its place in the queue is not known: GET /apis/visibility" in told


def test_list_shows_every_job_and_the_total_apart(training: KubeApi) -> None:
    said = call("list", "-A")
    header, row = said.stdout.splitlines()
    assert header.split() == [
        "NAMESPACE",
        "NAME",
        "STATE",
        "SIZE",
        "STEP",
        "WALL",
        "TRAINING",
        "GPU-HOURS",
        "LENT",
        "PREEMPTIONS",
    ]
    assert row.split()[:6] == ["default", "train", "training", "2", "of", "[1..8]"]
    assert said.stderr.startswith("jobs: 1, training: 1 with 2 workers; ")
    assert json.loads(call("list", "-o", "json").stdout)[0]["name"] == "train"


def test_a_job_that_cannot_be_read_is_named_and_the_others_are_listed(training: KubeApi) -> None:
    broken = mpijob("broken", conditions=[condition("Succeeded")])
    broken["status"]["completionTime"] = ["no time"]
    training.put(JOBS, broken)
    said = call("list")
    assert said.exit_code == 0
    assert [line.split()[0] for line in said.stdout.splitlines()] == ["NAME", "train"]
    assert said.stderr.startswith("the MPIJob default/broken cannot be read and is left out: TypeError: ")
    assert "jobs: 1, training: 1" in said.stderr


def test_the_cost_of_all_leaves_out_a_job_that_cannot_be_read(training: KubeApi) -> None:
    broken = mpijob("broken", conditions=[condition("Succeeded")])
    broken["status"]["completionTime"] = ["no time"]
    training.put(JOBS, broken)
    training.put(CONFIG_MAPS, {**ledger_map(), "metadata": {"name": "broken-ledger"}})
    said = call("cost", "--all")
    assert said.exit_code == 0, said.output
    assert [line.split()[:2] for line in said.stdout.splitlines()[1:]] == [["default", "train"]]
    assert "the MPIJob default/broken cannot be read and is left out: TypeError: " in said.stderr
    assert "\njobs: 1, " in said.stderr


def test_a_job_whose_record_was_lost_says_since_when_it_counts(training: KubeApi) -> None:
    training.put(JOBS, mpijob(status=live(counts_since=NOW - 900)))
    assert "\ndefault/train counts since 2027-01-1" in call("list").stderr
    training.put(CONFIG_MAPS, ledger_map((RecordLost(unix=NOW - 900), *LEDGER)))
    assert "  counted since 2027-01-1" in call("cost", "train").stdout
    assert "default/train: counted since 2027-01-1" in call("cost", "--all").stderr
    assert "what was recorded before is lost: all sums count from here on" in call("events", "train").stdout
    assert "note: what was recorded before" in call("status", "train").stdout


def test_list_asks_for_mpijobs_and_the_time_and_nothing_else(training: KubeApi) -> None:
    training.requests.clear()
    call("list")
    assert {request.path for request in training.requests} == {JOBS, VERSION}


def test_the_cost_of_all_reads_of_each_job_its_pods_and_its_ledger(training: KubeApi) -> None:
    """Also of one whose ledger is empty, and of one that is deleted meanwhile."""
    for name in ("fresh", "gone"):
        training.put(JOBS, {**fresh(), "metadata": {**fresh()["metadata"], "name": name, "uid": name}})
    training.put(CONFIG_MAPS, {"metadata": {"name": "fresh-ledger"}, "data": {}})
    training.requests.clear()

    def delete(request: Request) -> None:
        if request.path == PODS and request.query["labelSelector"].endswith("=gone"):
            training.remove(JOBS, "gone")

    training.fault = delete
    said = call("cost", "--all")
    assert said.exit_code == 0
    assert {line.split()[1] for line in said.stdout.splitlines()[1:]} == {"train", "fresh", "gone"}
    asked = Counter(request.path for request in training.requests)
    ledgers = {f"{CONFIG_MAPS}/{name}-ledger": 1 for name in ("train", "fresh", "gone")}
    assert asked == {VERSION: 1, JOBS: 1, PODS: 3, **ledgers}


def test_events_tell_the_story(training: KubeApi) -> None:
    said = call("events", "train").stdout
    assert "leaves: preempted by inference/web-1" in said
    told = json.loads(call("events", "train", "-o", "json").stdout)
    assert [happening["unix"] for happening in told] == sorted(happening["unix"] for happening in told)
    assert call("events", "train", "--since", "soon").exit_code == 2


def test_cost_of_one_job_and_of_all(training: KubeApi) -> None:
    training.put(JOBS, mpijob(conditions=[condition("Succeeded")], ended=1_800_000_000.0))
    assert call("cost", "train").stdout.startswith("default/train: held 0.57 GPU-hours")
    assert json.loads(call("cost", "train", "-o", "json").stdout)["gpu_seconds"] == 2065.0
    assert call("cost", "--all").stdout.splitlines()[1].split()[:3] == ["default", "train", "0.57"]
    assert call("cost").exit_code == 2
    training.remove(CONFIG_MAPS, "train-ledger")
    unknown = call("cost", "train")
    assert unknown.exception is not None
    assert "has no ledger" in str(unknown.exception)
