"""Contradictions between keys, which hold wherever the job runs."""

import pytest

from tests.mpijob.jobs import refused

_FSX = {"zone": "a", "subnet": "subnet-01234567", "security_groups": ["sg-01234567"]}
_PERSISTENT_2 = {"deployment": "PERSISTENT_2", "throughput": 250}


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"name": "a" * 52, "workers": "1:10000"}, "name"),
        ({"workers__cpu": 1, "workers__loaders": 2}, "workers.cpu"),
        ({"workers__gpus": 2, "workers__slots": 3}, "workers.slots"),
        ({"workers__sizes": [2, 4], "workers__min": 1}, "workers.min"),
        ({"workers__sizes": [1, 2, 4], "workers__start": 3}, "workers.start"),
        ({"workers__sizes": [1, 2, 8], "workers__max": 3}, "workers.max"),
        ({"workers__shm": "4Gi"}, "workers.shm"),
        ({"workers__grace": 0}, "workers.grace"),
        ({"workers__grace": 31, "cloud": "gke"}, "workers.grace"),
        ({"workers__grace": 26, "cloud": "aks", "capacity": "prefer-spot"}, "workers.grace"),
        ({"workers__grace": 101, "cloud": "eks"}, "workers.grace"),
        ({"gpu_type": "a100"}, "gpu_type"),
        ({"gpu_type": "k80", "workers__gpus": 1, "cloud": "gke"}, "gpu_type"),
        ({"workers__efa": 1}, "workers.efa"),
        ({"workers__efa": 1, "cloud": "eks"}, "workers.efa"),
        ({"workers__efa": 5, "cloud": "eks", "instance_type": "p4d.24xlarge"}, "workers.efa"),
        ({"workers__efa": 1, "cloud": "eks", "instance_type": "t3.micro"}, "instance_type"),
        ({"batch__global": 8, "batch__per_worker": 2}, "batch.per_worker"),
        ({"batch__learning_rate": "linear"}, "batch.learning_rate"),
        ({"batch": 3}, "batch"),
        ({"checkpoint": "gs://bucket"}, "checkpoint"),
        ({"checkpoint": "s3:///prefix"}, "checkpoint"),
        ({"checkpoint": "file://host/a"}, "checkpoint"),
        ({"checkpoint": "s3://b/a b"}, "checkpoint"),
        ({"checkpoint": "s3://b", "checkpoint__every": 0}, "checkpoint.every"),
        ({"checkpoint": "s3://b", "checkpoint__warm_start": "model.pt"}, "checkpoint.warm_start"),
        ({"checkpoint": "s3://b", "checkpoint__warm_start": "s3://b"}, "checkpoint.warm_start"),
        ({"checkpoint": "s3://b", "checkpoint__warm_start": "file:///"}, "checkpoint.warm_start"),
        ({"checkpoint": "s3://b", "checkpoint__endpoint": "minio"}, "checkpoint.endpoint"),
        ({"checkpoint": "s3://b", "checkpoint__endpoint": "http://minio:9000"}, "checkpoint.endpoint"),
        ({"data": {}}, "data"),
        ({"data": {"size": "1Gi"}}, "data"),
        ({"data": {"storage_class": "nfs"}}, "data"),
        ({"data": {"efs": "fs-01234567"}}, "data"),
        ({"data": {"claim": "a", "mount": "/tmp/x"}}, "data"),
        ({"data": {"claim": "a", "mount": "/"}}, "data"),
        ({"data": {"claim": "a", "mount": "/x"}, "output": {"claim": "b", "mount": "/x/y"}}, "output"),
        ({"output": {"claim": "b", "tensorboard": "/events"}}, "output"),
        ({"data": {"fsx": {"zone": "a"}}, "cloud": "eks"}, "data"),
        ({"data": {"fsx": {"zone": "a", "subnet": "subnet-01234567"}, "size": "1Ti"}, "cloud": "eks"}, "data"),
        ({"data": {"fsx": {"zone": "a", "subnet": "subnet-01234567"}}, "cloud": "eks", "zones": ["b"]}, "zones"),
        ({"data": {"fsx": {"zone": "a", "subnet": "subnet-01234567"}}, "cloud": "eks", "one_zone": False}, "one_zone"),
        ({"data": {"size": "1Ti", "storage_class": "nfs"}}, "data"),
        ({"data": {"fsx": _FSX}, "cloud": "eks"}, "data"),
        ({"output": {"fsx": {"zone": "a", "subnet": "subnet-01234567"}}, "cloud": "eks"}, "output"),
        ({"data": {"storage_class": "nfs", "size": "1Ti", "csi": {"driver": "d", "handle": "h"}}}, "data"),
        ({"output": {"fsx": _FSX | {"deployment": "PERSISTENT_1"}}, "cloud": "eks"}, "output"),
        ({"output": {"fsx": _FSX | {"deployment": "PERSISTENT_1", "throughput": 125}}, "cloud": "eks"}, "output"),
        ({"output": {"fsx": _FSX | {"throughput": 125}}, "cloud": "eks"}, "output"),
        ({"data": {"fsx": _FSX | _PERSISTENT_2 | {"s3_import": "s3://b"}}, "cloud": "eks"}, "data"),
        ({"data": {"fsx": _FSX | {"file_system": "fs-01234567", "dns_name": "d", "mount_name": "m"}}}, "data"),
        ({"cooldown": [9, 2]}, "cooldown"),
        ({"elastic_timeout": 0}, "elastic_timeout"),
        ({"priority": {"launcher": "a", "workers": "a"}}, "priority"),
        ({"priority": {"launcher": "system-cluster-critical"}}, "priority"),
        ({"launcher_node_labels": {"eks.amazonaws.com/capacityType": "SPOT"}}, "launcher_node_labels"),
        ({"node_labels": {"cloud.google.com/gke-spot": "true"}}, "node_labels"),
        ({"env": {"HOROVOD_AUTOTUNE": "1"}}, "env"),
        ({"queue": {"system": "kueue", "name": "q"}}, "queue"),
        (
            {"queue": {"system": "kueue", "name": "q"}, "checkpoint": "s3://b/p", "autoscale": "shared"},
            "autoscale",
        ),
        ({"queue": {"system": "kai", "name": "q"}, "priority__workers": "a" * 64}, "priority.workers"),
        ({"workers": "2", "disruption_budget": True}, "disruption_budget"),
        ({"env": {"HVD_ELASTIC_JOB": "x"}}, "env"),
        ({"env": {"HOROVOD_RANK": "0"}}, "env"),
        ({"env": {"HUB_TOKEN": "0"}}, "env"),
        ({"labels": {"app.kubernetes.io/name": "x"}}, "labels"),
        ({"annotations": {"hvd-elastic.dev/job": "x"}}, "annotations"),
    ],
)
def test_contradictions(keys: dict[str, object], path: str) -> None:
    flag = "--" + path.replace(".", "-").replace("_", "-")
    found = refused(**keys)
    assert flag in found, found
    assert found[flag].count(": ") >= 1
