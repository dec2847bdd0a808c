"""`hvd-elastic autoscale` over an API server: what it reads, writes, and leaves alone."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hvd_elastic.cli import cli
from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError
from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.decide.autoscale.controller import Autoscaler
from hvd_elastic.decide.autoscale.controller_manifests import manifests
from hvd_elastic.decide.autoscale.demand_store import DEMAND_NAME, DemandStore, from_text
from hvd_elastic.decide.autoscale.leadership import LEASE_NAME, Leadership
from hvd_elastic.decide.autoscale.state_reader import StateReader
from hvd_elastic.mpijob.contract import ANNOTATION_AUTOSCALER, ANNOTATION_WANTED_WORKERS
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.policy.reserve import DemandHistory, DemandWindow
from testbed.kube_api import CONFIG_MAPS, EVENTS, JOBS, LEASES, NODES, PODS, KubeApi, Request, Status

Json = dict[str, Any]

HPA_PATH = "/apis/autoscaling/v2/horizontalpodautoscalers"


def mpijob(name: str, *, gpu_resource: str = "nvidia.com/gpu", **autoscale: object) -> Json:
    text = {
        "name": name,
        "image": "registry/train:1",
        "command": ["python", "train.py"],
        "workers": {"min": 1, "max": 8, "gpus": 1, "gpu_resource": gpu_resource},
        "autoscale": autoscale,
    }
    job = render(read_job(json.dumps(text)))[-1]
    job["metadata"]["uid"] = f"uid-{name}"
    return job


def gpu_node(name: str, gpus: int) -> Json:
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def inference_pod(name: str, node: str, gpus: int) -> Json:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    meta = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"pod-template-hash": "5d4"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "chat-5d4", "controller": True}],
    }
    spec = {"nodeName": node, "priority": 1000, "containers": [{"resources": limits}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    api = KubeApi()
    api.answers["/version"] = lambda _request: {"gitVersion": "v1.34.0"}
    api.answers["/apis/autoscaling"] = lambda _request: {"versions": [{"groupVersion": "autoscaling/v2"}]}
    api.answers[HPA_PATH] = lambda _request: {"metadata": {}, "items": []}
    api.put(NODES, gpu_node("node-a", 6))
    api.put(JOBS, mpijob("one"))
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield api
    api.stop()


def autoscale(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["autoscale", "--context", "here", *arguments])


def annotations(api: KubeApi, name: str = "one") -> dict[str, str]:
    found: dict[str, str] = api.objects[JOBS][name]["metadata"]["annotations"]
    return found


def writes(api: KubeApi) -> list[Request]:
    return [request for request in api.requests if request.method != "GET"]


def test_once_sets_the_number_says_why_and_gives_the_lease_back(api: KubeApi) -> None:
    api.put(PODS, inference_pod("chat", "node-a", 2))
    done = autoscale("--once", "-o", "json")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert (row["job"], row["before"], row["workers"]) == ("default/one", 8, 4)
    assert annotations(api)[ANNOTATION_WANTED_WORKERS] == "4"
    note = ScalingNote.of_job(api.objects[JOBS]["one"])
    assert note is not None
    assert (note.before, note.workers, note.reason) == (8, 4, "4 workers had no room on any node")
    (event,) = api.objects[EVENTS].values()
    assert event["reason"] == "SuccessfulRescale"
    assert "from 8 to 4 workers" in event["message"]
    assert api.objects[LEASES][LEASE_NAME]["spec"]["holderIdentity"] == ""


def test_a_job_of_other_gpus_is_given_those_of_its_resource(api: KubeApi) -> None:
    amd = gpu_node("node-b", 3)
    amd["status"]["allocatable"] = {"amd.com/gpu": "3"}
    api.put(NODES, amd)
    api.put(JOBS, mpijob("other", gpu_resource="amd.com/gpu"))
    api.put(PODS, inference_pod("chat", "node-a", 2))
    done = autoscale("--once", "-o", "json")
    assert done.exit_code == 0, done.output
    assert {row["job"]: row["workers"] for row in json.loads(done.stdout)} == {"default/one": 4, "default/other": 3}


def test_a_second_turn_has_nothing_to_do(api: KubeApi) -> None:
    autoscale("--once")
    before = len(api.objects[EVENTS])
    assert "nothing to change" in autoscale("--once").output
    assert len(api.objects[EVENTS]) == before


def test_a_dry_run_writes_nothing_and_needs_no_lease(api: KubeApi) -> None:
    done = autoscale("--dry-run")
    assert "default/one      8    6" in done.stdout
    assert writes(api) == []


def test_jobs_that_do_not_ask_for_it_are_left_alone(api: KubeApi) -> None:
    plain = mpijob("plain")
    text = json.loads(plain["metadata"]["annotations"]["hvd-elastic.dev/job"])
    del text["autoscale"]
    plain["metadata"]["annotations"]["hvd-elastic.dev/job"] = json.dumps(text)
    suspended = mpijob("suspended")
    suspended["spec"]["runPolicy"]["suspend"] = True
    foreign = {"apiVersion": "kubeflow.org/v2beta1", "metadata": {"name": "foreign"}, "spec": {"mpiReplicaSpecs": {}}}
    for job in (plain, suspended, foreign):
        api.put(JOBS, job)
    autoscale("--once")
    assert [request.path for request in writes(api) if request.path.startswith(JOBS)] == [f"{JOBS}/one"]


def test_only_the_named_namespaces_are_looked_at(api: KubeApi) -> None:
    autoscale("--once", "-n", "default")
    assert api.asked(watch=False, path=JOBS) == 1
    assert api.asked(watch=False, path="/apis/kubeflow.org/v2beta1/mpijobs") == 0


def test_while_another_leads_once_changes_nothing(api: KubeApi) -> None:
    other = Leadership(ClusterClient.connect(context="here"), namespace="default", identity="other")
    other.attempt()
    done = autoscale("--once")
    assert done.exit_code == 1
    assert "another autoscaler leads (other)" in done.output
    assert ANNOTATION_AUTOSCALER not in annotations(api)


def test_a_person_who_scales_meanwhile_is_not_overwritten(api: KubeApi) -> None:
    def meanwhile(request: Request) -> None:
        if request.method == "PATCH" and request.path.startswith(JOBS):
            api.fault = lambda _request: None
            api.patch(JOBS, "one", {"metadata": {"annotations": {ANNOTATION_WANTED_WORKERS: "2"}}})

    api.fault = meanwhile
    assert "the job has changed since it was read" in autoscale("--once").output
    assert annotations(api)[ANNOTATION_WANTED_WORKERS] == "2"
    autoscale("--once")
    assert annotations(api)[ANNOTATION_WANTED_WORKERS] == "2"  # six have room: the person's number is the most


def test_scaling_to_max_gives_the_number_back_to_the_autoscaler(api: KubeApi) -> None:
    for asked, wanted in (("2", "2"), ("8", "6")):
        api.patch(JOBS, "one", {"metadata": {"annotations": {ANNOTATION_WANTED_WORKERS: asked}}})
        autoscale("--once")
        assert annotations(api)[ANNOTATION_WANTED_WORKERS] == wanted


def test_without_a_part_of_the_picture_nothing_is_decided(api: KubeApi) -> None:
    def blind(request: Request) -> None:
        if request.path == "/api/v1/pods":
            raise Status(403)

    api.fault = blind
    assert autoscale("--once").exit_code != 0
    assert ANNOTATION_WANTED_WORKERS not in annotations(api)


def test_the_loop_outlives_an_api_server_that_goes_away(api: KubeApi) -> None:
    cluster, stop, turns = ClusterClient.connect(context="here"), threading.Event(), threading.Semaphore(0)
    scaler = Autoscaler(cluster, StateReader(cluster), DemandStore(cluster, "default"), may_act=lambda: True)
    api.stop()
    loop = threading.Thread(target=scaler.run, args=(stop,), kwargs={"period": 0.05, "alive": turns.release})
    loop.start()
    assert turns.acquire(timeout=30)
    api.start()
    with api.changed:
        assert api.changed.wait_for(lambda: annotations(api).get(ANNOTATION_WANTED_WORKERS) == "6", timeout=30)
    stop.set()
    loop.join(30)
    assert not loop.is_alive()


def test_who_leads_no_more_writes_nothing(api: KubeApi) -> None:
    cluster = ClusterClient.connect(context="here")
    led = iter((True, False))
    scaler = Autoscaler(
        cluster, StateReader(cluster), DemandStore(cluster, "default"), may_act=lambda: next(led, False)
    )
    assert next(led)
    (done,) = scaler.turn()
    assert done.failure == "another autoscaler leads"
    assert writes(api) == []


def test_a_cluster_that_cannot_be_read_is_an_error_of_the_turn(api: KubeApi) -> None:
    cluster = ClusterClient.connect(context="here")
    api.stop()
    with pytest.raises(ClusterError):
        Autoscaler(cluster, StateReader(cluster), DemandStore(cluster, "default"), may_act=lambda: True).turn()


def test_what_is_forecast_is_left_idle(api: KubeApi) -> None:
    forecast = {"status": "success", "data": {"resultType": "scalar", "result": [1e9, "5"]}}
    api.answers["/api/v1/query"] = lambda _request: forecast
    api.put(PODS, inference_pod("chat", "node-a", 2))
    autoscale("--once", "--prometheus", f"http://127.0.0.1:{api.port}", "--forecast", "gpus")
    assert annotations(api)[ANNOTATION_WANTED_WORKERS] == "1"


def hpa(**status: Any) -> Json:
    """Of the Deployment `chat`: a GPU is to serve 100 requests at a time."""
    target = {"type": "AverageValue", "averageValue": "100"}
    return {
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "chat"},
            "maxReplicas": 3,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": "requests"}, "target": target}}],
        },
        "status": status,
    }


def test_what_an_hpa_will_ask_for_is_left_idle(api: KubeApi) -> None:
    value = {"type": "Pods", "pods": {"metric": {"name": "requests"}, "current": {"averageValue": "250"}}}
    busy = hpa(currentReplicas=1, desiredReplicas=2, currentMetrics=[value])
    api.answers[HPA_PATH] = lambda _request: {"metadata": {}, "items": [busy]}
    api.put(PODS, inference_pod("chat-1", "node-a", 1))
    autoscale("--once")
    assert annotations(api)[ANNOTATION_WANTED_WORKERS] == "3"  # of six: one is held, two are coming


def test_what_a_workload_will_ask_for_that_comes_back_from_zero_is_left_idle(api: KubeApi) -> None:
    waking = hpa(currentReplicas=0, desiredReplicas=2)
    api.answers[HPA_PATH] = lambda _request: {"metadata": {}, "items": [waking]}
    autoscale("--once")
    assert annotations(api)[ANNOTATION_WANTED_WORKERS] == "6"  # nobody knows its pods
    template = {"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}}}
    api.answers["/apis/apps/v1/namespaces/default/deployments/chat"] = lambda _request: template
    api.objects[JOBS]["one"]["metadata"]["annotations"].pop(ANNOTATION_WANTED_WORKERS)
    autoscale("--once")
    assert annotations(api)[ANNOTATION_WANTED_WORKERS] == "2"


def test_without_the_right_to_see_hpas_it_decides_all_the_same(api: KubeApi) -> None:
    def refuse(request: Request) -> None:
        if request.path == HPA_PATH:
            raise Status(403)

    api.fault = refuse
    assert autoscale("--once").exit_code == 0
    assert annotations(api)[ANNOTATION_WANTED_WORKERS] == "6"


def test_the_next_leader_goes_on_from_the_history_of_demand(api: KubeApi) -> None:
    cluster = ClusterClient.connect(context="here")
    before = DemandHistory(windows=(DemandWindow(began=1767225600.0, first=1, highest=4, waited=True),), care=2.0)
    DemandStore(cluster, "default").write(before)
    autoscale("--once")
    found = from_text(api.objects[CONFIG_MAPS][DEMAND_NAME]["data"]["demand.json"])
    assert found.windows[0] == before.windows[0]
    assert len(found.windows) == 2


@pytest.mark.parametrize("data", [{}, {"demand.json": "{"}, {"demand.json": '{"care":1,"windows":[[1]]}'}])
def test_a_history_that_cannot_be_read_is_begun_anew(api: KubeApi, data: Json) -> None:
    api.put(CONFIG_MAPS, {"metadata": {"name": DEMAND_NAME}, "data": data})
    assert autoscale("--once").exit_code == 0
    assert len(from_text(api.objects[CONFIG_MAPS][DEMAND_NAME]["data"]["demand.json"]).windows) == 1


def test_the_empty_config_map_that_was_applied_with_it_is_no_damage(
    api: KubeApi, caplog: pytest.LogCaptureFixture
) -> None:
    made = manifests(image="i", namespace="default")
    api.put(CONFIG_MAPS, next(one for one in made if one["kind"] == "ConfigMap"))
    store = DemandStore(ClusterClient.connect(context="here"), "default")
    assert store.read() == DemandHistory()
    assert caplog.messages == []


def test_the_history_is_written_once_for_each_window(api: KubeApi) -> None:
    cluster = ClusterClient.connect(context="here")
    store = DemandStore(cluster, "default")
    first = DemandHistory().seen(300.0, 1, waits=False, quantile=0.9)
    for history in (
        first,
        first.seen(599.0, 2, waits=False, quantile=0.9),
        first.seen(600.0, 2, waits=False, quantile=0.9),
    ):
        store.write(history)
    assert [request.method for request in writes(api)] == ["PATCH", "POST", "PATCH"]  # the first met no ConfigMap
