"""Queues, budgets, monitors, the other kinds of jobs, and many jobs in one cluster."""

import json
from collections import Counter
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from tests.mpijob import admission
from tests.mpijob.jobs import job, one, pods


def test_a_queue_knows_the_job_and_its_guaranteed_part() -> None:
    volcano = job(workers="2:6", queue={"system": "volcano", "name": "q"})
    policy = one(volcano, "MPIJob")["spec"]["runPolicy"]["schedulingPolicy"]
    assert policy == {"minAvailable": 3, "queue": "q", "priorityClass": "preemptible-pc"}
    assert {pod["schedulerName"] for pod in pods(volcano)} == {"volcano"}


@pytest.mark.parametrize(("target", "kind"), [(Target.MPIJOB, "MPIJob"), (Target.PYTORCHJOB, "PyTorchJob")])
def test_kai_may_give_the_job_more_than_its_quota_and_take_it_back(target: Target, kind: str) -> None:
    """KAI reads labels of the job, and else the priority of whichever pod it looks at."""
    spec = job(queue={"system": "kai", "name": "q"}, priority__workers="low")
    (manifest,) = (each for each in render(spec, target) if each["kind"] == kind)
    labels = manifest["metadata"]["labels"]
    assert {key: value for key, value in labels.items() if "/part-of" not in key and "/managed-by" not in key} == {
        "kai.scheduler/queue": "q",
        "kai.scheduler/preemptibility": "preemptible",
        "priorityClassName": "low",
    }
    for _, template in admission.templates(manifest):
        assert template["spec"]["schedulerName"] == "kai-scheduler"
        assert dict(template["metadata"]["labels"])["kai.scheduler/queue"] == "q"
        assert "priorityClassName" not in template["metadata"]["labels"]


def test_kueue_sees_each_worker_and_neither_job_nor_launcher() -> None:
    manifest = one(job(queue={"system": "kueue", "name": "q"}), "MPIJob")
    assert "kueue.x-k8s.io/queue-name" not in manifest["metadata"]["labels"]
    labels = {role: template["metadata"]["labels"] for role, template in admission.templates(manifest)}
    assert labels["Worker"]["kueue.x-k8s.io/queue-name"] == "q"
    assert "kueue.x-k8s.io/queue-name" not in labels["Launcher"]


def test_kueue_sees_a_whole_job_and_not_each_pod() -> None:
    spec = job(queue={"system": "kueue", "name": "q", "whole": True}, checkpoint="s3://b")
    manifest = one(spec, "MPIJob")
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert all("kueue" not in json.dumps(template) for _, template in admission.templates(manifest))


def test_a_floor_is_the_launchers_class_and_the_workers_label() -> None:
    manifest = one(job(workers={"min": 1, "max": 4, "floor": 2}), "MPIJob")
    templates = dict(admission.templates(manifest))
    assert templates["Launcher"]["spec"]["priorityClassName"] == "floor-pc"
    assert templates["Worker"]["spec"]["priorityClassName"] == "preemptible-pc"
    assert templates["Worker"]["metadata"]["labels"]["hvd-elastic.dev/floor"] == "2"
    assert "hvd-elastic.dev/floor" not in templates["Launcher"]["metadata"]["labels"]


def test_the_launcher_is_above_the_workers() -> None:
    launcher, worker = pods(job())
    assert (launcher["priorityClassName"], worker["priorityClassName"]) == ("preserved-pc", "preemptible-pc")
    launcher, worker = pods(job(priority={"launcher": "high", "workers": "low"}))
    assert (launcher["priorityClassName"], worker["priorityClassName"]) == ("high", "low")


def test_restarts_and_the_end_of_a_job() -> None:
    policy = one(job(restarts=0, deadline="1h", keep="2d"), "MPIJob")["spec"]["runPolicy"]
    assert (policy["backoffLimit"], policy["activeDeadlineSeconds"], policy["ttlSecondsAfterFinished"]) == (
        0,
        3600,
        172800,
    )
    assert policy["cleanPodPolicy"] == "All"
    replicas = one(job(), "MPIJob")["spec"]["mpiReplicaSpecs"]
    assert {replica["restartPolicy"] for replica in replicas.values()} == {"Never"}


def test_a_fixed_job_is_an_elastic_one_of_one_size() -> None:
    spec = job(workers="3")
    command = pods(spec)[0]["containers"][0]["command"]
    assert [command[command.index(name) + 1] for name in ("-np", "--min-np", "--max-np")] == ["3"] * 3


def test_the_budget_guards_workers_only() -> None:
    spec = job(workers="2:5", disruption_budget=True)
    budget = one(spec, "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == 2
    selected = [
        role
        for role, template in admission.templates(one(spec, "MPIJob"))
        if budget["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ]
    assert selected == ["Worker"]


@pytest.mark.parametrize("kind", ["horovodrun", "launch"])
def test_the_monitor_names_ports_that_are_there(kind: str) -> None:
    spec = job(monitor=True, workers__slots=2, launcher=kind)
    wanted = {endpoint["port"] for endpoint in one(spec, "PodMonitor")["spec"]["podMetricsEndpoints"]}
    there = {
        port["name"]
        for pod in pods(spec)
        for container in (*pod.get("initContainers", []), *pod["containers"])
        for port in container.get("ports", [])
    }
    assert wanted == {name for name in there if name.startswith("metrics")}


def test_a_pytorchjob_scales_between_the_same_bounds() -> None:
    spec = job(workers="2:3:8", workers__slots=2, autoscale={"cpu_percent": 60, "cooldown": "10m"})
    manifest, scaler = (one(spec, kind, Target.PYTORCHJOB) for kind in ("PyTorchJob", "HorizontalPodAutoscaler"))
    assert manifest["spec"]["elasticPolicy"]["minReplicas"] == scaler["spec"]["minReplicas"] == 2
    assert manifest["spec"]["elasticPolicy"]["maxReplicas"] == scaler["spec"]["maxReplicas"] == 8
    assert manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert scaler["spec"]["scaleTargetRef"]["kind"] == "PyTorchJob"
    assert scaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 600
    (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert (container["name"], container["command"]) == ("pytorch", ["torchrun", "train.py"])
    # Kubernetes' autoscaler leaves out pods that are not Ready, and nobody answers a probe of ours.
    assert not {"startupProbe", "readinessProbe", "ports", "lifecycle"} & container.keys()
    without = one(job(workers="2:8"), "PyTorchJob", Target.PYTORCHJOB)
    assert without["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 8


def test_a_program_that_is_no_python_script_runs_under_torchrun_too() -> None:
    manifest = one(job(command=["./train", "--fast"]), "PyTorchJob", Target.PYTORCHJOB)
    (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["command"] == ["torchrun", "--no-python", "./train", "--fast"]


def test_the_description_on_the_job_reads_back() -> None:
    spec = job(workers="1:2:8", env={"A": "$(B)"}, cloud="gke", output={"claim": "o"})
    text = one(spec, "MPIJob")["metadata"]["annotations"][ANNOTATION_SPEC]
    assert read_job(text) == spec


@pytest.mark.parametrize("target", list(Target))
def test_twenty_jobs_of_sixty_four_slots_do_not_clash(target: Target) -> None:
    """Names that are prefixes of each other, and end as the operator's own names do."""
    endings = ("", "-1", "-worker", "-worker-0", "-launcher", "-config", "-ssh", "-discovery", "-data", "-output")
    names = [f"{base}{ending}" for base in ("job", "job-a") for ending in endings]
    keys: dict[str, Any] = {"workers": "1:8", "workers__gpus": 8, "cloud": "eks", "read_nodes": True}
    keys |= {"data": {"efs": "fs-01234567"}, "output": {"size": "1Ti", "storage_class": "nfs"}}
    if target is Target.PYTORCHJOB:
        del keys["read_nodes"]
    else:
        keys |= {"checkpoint": "s3://b", "monitor": True}
    specs = [job(name=name, disruption_budget=True, **keys) for name in names]
    objects = Counter(
        (manifest["kind"], manifest["metadata"].get("namespace"), manifest["metadata"]["name"])
        for spec in specs
        for manifest in render(spec, target)
    )
    assert {name: count for name, count in objects.items() if count > 1} == {}
    templates = {
        spec.name: [t["metadata"]["labels"] for m in render(spec, target) for _, t in admission.templates(m)]
        for spec in specs
    }
    for spec in specs:
        for selector in _selectors(render(spec, target)):
            caught = {
                name for name, pods in templates.items() if any(selector.items() <= labels.items() for labels in pods)
            }
            assert caught <= {spec.name}, selector


def _selectors(value: Any) -> list[dict[str, str]]:
    if isinstance(value, list):
        return [found for item in value for found in _selectors(item)]
    if not isinstance(value, dict):
        return []
    own = [value["matchLabels"]] if "matchLabels" in value else []
    own = [labels for labels in own if "kubernetes.io/metadata.name" not in labels]
    return own + [found for item in value.values() for found in _selectors(item)]


def test_namespaces_and_names_are_not_mistaken_for_each_other() -> None:
    specs = [
        job(namespace=space, name=name, cloud="eks", data={"efs": "fs-01234567"})
        for space, name in (("a", "b-c"), ("a-b", "c"))
    ]
    assert len({one(spec, "PersistentVolume")["metadata"]["name"] for spec in specs}) == 2
