"""Descriptions as people first typed them, for pods that are not the default: rendered, or refused with the key."""

import json
from typing import Any

import pytest

from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job, pods

DEFAULT = {"name": "flowers", "image": "registry.example.com/vision/flowers:7", "command": ["python", "train.py"]}
POD = "workers.pod: {spec: {%s: ...}}"


@pytest.mark.parametrize(
    "written",
    [
        {"workers": {"min": 1, "max": 4, "gpus": 1, "cpu": 8, "memory": "32Gi"}},
        {"annotations": {"sidecar.istio.io/inject": "false"}, "labels": {"sidecar.istio.io/inject": "false"}},
        {"annotations": {"k8s.v1.cni.cncf.io/networks": "rail"}},
        {"workers": {"max": 4, "gpus": 1, "resources": {"rdma/ib": 1}}},
        {"workers": {"max": 4, "gpus": 1, "gpu_resource": "amd.com/gpu"}},
        {"secrets": ["hf-token"], "env": {"FOO": "bar"}},
        {"patches": []},
        {"tolerations": [{"key": "pool", "value": "gpu", "effect": "NoSchedule"}, {"key": "other"}]},
        {"image_pull_secrets": ["regcred"]},
        {"workers": {"max": 2, "gpus": 8, "cpu": 64, "memory": "256Gi", "shm": "32Gi"}, "gpu_type": "a100"},
        {"workers": {"max": 2, "service_account": "s3-reader"}},
        {
            "node_labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
            "workers": {"max": 2, "gpus": 1},
        },
    ],
    ids=" ".join,
)
def test_it_renders(written: dict[str, Any]) -> None:
    assert "MPIJob" in [manifest["kind"] for manifest in render(read_job(json.dumps(DEFAULT | written)))]


@pytest.mark.parametrize(
    ("written", "ways_out"),
    [
        ({"pod_annotations": {"a": "b"}}, {"pod_annotations": "workers.pod: {metadata: {annotations: ...}}?"}),
        ({"workers": {"host_network": True}}, {"workers.host_network": POD % "hostNetwork"}),
        (
            {"gpu_type": "mig-1g.5gb", "workers": {"gpus": 1}},
            {"gpu_type": "workers.gpu_resource: nvidia.com/mig-1g.5gb?"},
        ),
        ({"runtime_class": "nvidia"}, {"runtime_class": POD % "runtimeClassName"}),
        ({"volumes": [{"name": "scratch", "emptyDir": {}}]}, {"volumes": POD % "volumes"}),
        ({"init_containers": [{"name": "a", "image": "b"}]}, {"init_containers": POD % "initContainers"}),
        ({"scheduler": "mine"}, {"scheduler": f"queue, or {POD % 'schedulerName'}"}),
        ({"secrets": [{"name": "hub", "key": "TOKEN"}]}, {"secrets[0]": "env: [{name: ..., valueFrom: ...}]}]}}"}),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "a"}}}]},
            {"env": "env: [{name: ..., valueFrom: ...}]}]}}"},
        ),
        ({"overrides": {"spec": {}}}, {"overrides": "patches, or workers.pod?"}),
        ({"security_context": {"runAsUser": 2000}}, {"security_context": POD % "securityContext"}),
        ({"uid": 2000}, {"uid": "workers.pod: {spec: {securityContext: {runAsUser: ...}}}"}),
        (
            {"data": {"host_path": "/mnt/nvme"}},
            {
                "data.host_path": "workers.pod: {spec: {volumes: [{name: data, hostPath: {path: ...}}]",
                "data": "set data.claim",
            },
        ),
        ({"dns_policy": "None"}, {"dns_policy": POD % "dnsPolicy"}),
        ({"shm": "8Gi"}, {"shm": "workers.shm?"}),
        ({"workers": {"hugepages": "4Gi"}}, {"workers.hugepages": "workers.resources: {hugepages-2Mi: 4Gi}?"}),
        ({"spread": "node"}, {"spread": POD % "topologySpreadConstraints"}),
        (
            {"env": {"WANDB_API_KEY": "abc", "HF_TOKEN": "x"}},
            {"env.WANDB_API_KEY": "name that Secret in secrets", "env.HF_TOKEN": "name that Secret in secrets"},
        ),
        ({"workers": {"max": 2, "gpus": 8, "efa": 4}}, {"workers.efa": "set "}),
        ({"queue": {"system": "kueue", "name": "lq", "whole": True}}, {"queue.whole": "set checkpoint"}),
        ({"node_labels": {"gpu": True}}, {"node_labels.gpu": "put it in quotes"}),
        ({"replicas": 4, "gpus": 1}, {"replicas": "workers.max?", "gpus": "machine.gpus or workers.gpus?"}),
        (
            {
                "imagePullSecrets": ["a"],
                "nodeSelector": {"a": "b"},
                "activeDeadlineSeconds": 3,
                "ttlSecondsAfterFinished": 3,
                "serviceAccountName": "x",
                "schedulerName": "v",
                "priorityClassName": "y",
                "runtimeClassName": "nvidia",
                "volumeMounts": [],
                "hostNetwork": True,
            },
            {
                "imagePullSecrets": "image_pull_secrets?",
                "nodeSelector": "node_labels, for the launcher launcher_node_labels?",
                "activeDeadlineSeconds": "deadline?",
                "ttlSecondsAfterFinished": "keep?",
                "serviceAccountName": "workers.service_account?",
                "schedulerName": f"queue, or {POD % 'schedulerName'}",
                "priorityClassName": "priority.workers, for the launcher priority.launcher?",
                "runtimeClassName": POD % "runtimeClassName",
                "volumeMounts": "containers: [{name: worker, volumeMounts: ...}]",
                "hostNetwork": POD % "hostNetwork",
            },
        ),
        (
            {"workers": {"min": 2, "max": 6, "gpus": 1}, "autoscale": {"cpu_percent": 70}},
            {"autoscale.cpu_percent": "generate --as pytorchjob"},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)
def test_it_is_refused_with_the_key_that_does_it(written: dict[str, Any], ways_out: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        render(read_job(json.dumps(DEFAULT | written)))
    found = {problem.path: str(problem) for problem in raised.value.problems}
    assert found.keys() == ways_out.keys()
    assert {path for path, way_out in ways_out.items() if way_out not in found[path]} == set()


def test_the_way_out_for_one_key_of_a_secret_works() -> None:
    variable = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    _, worker = pods(job(workers__pod={"spec": {"containers": [{"name": "worker", "env": [variable]}]}}))
    assert variable in worker["containers"][0]["env"]


def test_the_way_out_for_a_folder_of_the_node_works() -> None:
    volume, mount = {"name": "data", "hostPath": {"path": "/mnt/nvme"}}, {"name": "data", "mountPath": "/data"}
    spec = {"volumes": [volume], "containers": [{"name": "worker", "volumeMounts": [mount]}]}
    _, worker = pods(job(workers__pod={"spec": spec}))
    assert volume in worker["volumes"]
    assert mount in worker["containers"][0]["volumeMounts"]


@pytest.mark.parametrize(
    "part",
    [
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"runtimeClassName": "nvidia"}},
        {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}},
        {"spec": {"initContainers": [{"name": "a", "image": "b"}]}},
        {"spec": {"schedulerName": "mine"}},
        {"spec": {"securityContext": {"runAsUser": 2000}}},
        {"spec": {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}}},
        {
            "spec": {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
                ]
            }
        },
    ],
    ids=str,
)
def test_the_other_ways_out_lead_somewhere(part: dict[str, Any]) -> None:
    assert render(job(workers__pod=part))
