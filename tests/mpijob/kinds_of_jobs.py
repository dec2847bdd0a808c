"""What each kind of job makes of each key.

A key means something if it changes what is written, apart from the annotation that holds the description, and in a
PyTorchJob also apart from the variables that only Horovod and hvd-elastic read.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, ENV_DATA, ENV_OUTPUT, ENV_TENSORBOARD
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job

FOLDERS: Final = (ENV_DATA, ENV_OUTPUT, ENV_TENSORBOARD)
YES, NOTHING = "yes", "nothing"

GPU: Final = {"workers": "1:4", "workers__gpus": 1}
EKS: Final = {"cloud": "eks"}
P4D: Final = {**EKS, **GPU, "instance_type": "p4d.24xlarge"}
DATA: Final = {"data": "images"}
STAGE: Final = {"data__claim": "images", "stage__source": "s3://bucket/images"}
AZURE_STAGE: Final = STAGE | {"stage__source": "az://images", "secrets": ["account"]}
OUTPUT: Final = {"output": "results"}
STORE: Final = {"checkpoint__url": "s3://bucket"}
AZURE_STORE: Final = {"checkpoint__url": "az://container", "checkpoint__endpoint": "https://store.example.com"}
KAI: Final = {"queue__system": "kai", "queue__name": "team"}
ON_NODES: Final = {"workers__pod": {"spec": {"hostNetwork": True}}}
SHARED: Final = {**GPU, "autoscale__cooldown": 60}

SAMPLES: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    # key: (the job without it, its value)
    "name": ({}, "other"),
    "namespace": ({}, "team"),
    "image": ({}, "image:2"),
    "image_pull_policy": ({}, "Always"),
    "image_pull_secrets": ({}, ["registry"]),
    "command": ({}, ["python", "other.py"]),
    "workdir": ({}, "/work"),
    "env": ({}, {"A": "b"}),
    "secrets": ({}, ["s3"]),
    "workers.sizes": ({}, [1, 2, 4]),
    "workers.min": ({}, 2),
    "workers.start": ({}, 2),
    "workers.max": ({}, 5),
    "workers.floor": ({}, 2),
    "workers.gpus": ({}, 1),
    "workers.gpu_resource": (GPU, "amd.com/gpu"),
    "workers.slots": ({}, 2),
    "workers.loaders": ({"workers__cpu": 4}, 2),
    "workers.cpu": ({}, 2),
    "workers.memory": ({}, "8Gi"),
    "workers.shm": ({}, "2Gi"),
    "workers.disk": ({}, "10Gi"),
    "workers.resources": ({}, {"rdma/hca": 1}),
    "workers.efa": (P4D | {"network__interface": "eth0"}, 1),
    "workers.grace": ({}, 60),
    "workers.service_account": ({}, "reader"),
    "workers.pod": ({}, {"spec": {"runtimeClassName": "nvidia"}}),
    "launcher.kind": ({}, "launch"),
    "launcher.cpu": ({}, 2),
    "launcher.memory": ({}, "4Gi"),
    "launcher.pod": ({}, {"spec": {"runtimeClassName": "nvidia"}}),
    "engine": ({"launcher__kind": "launch"}, "torch"),
    "standby": ({}, "off"),
    "batch.global": ({}, 64),
    "batch.per_worker": ({}, 8),
    "batch.learning_rate": ({"batch__per_worker": 8}, "constant"),
    "cloud": ({}, "gke"),
    "capacity": (EKS, "on-demand"),
    "gpu_type": (EKS | GPU, "t4"),
    "instance_type": (EKS | GPU, "g4dn.xlarge"),
    "machine.gpus": (P4D, 8),
    "machine.cpu": (P4D, 90),
    "machine.memory": (P4D, "1000Gi"),
    "machine.efa": (P4D, 4),
    "zones": (EKS, ["eu-west-1a"]),
    "one_zone": (EKS, False),
    "node_labels": ({}, {"pool": "gpu"}),
    "launcher_node_labels": ({}, {"pool": "cpu"}),
    "tolerations": ({}, ["dedicated=training:NoSchedule"]),
    "lost_node": ({}, 60),
    "data.claim": ({}, "images"),
    "data.mount": (DATA, "/images"),
    "stage.source": ({"data__claim": "images"}, "s3://bucket/images"),
    "stage.into": (STAGE, "/data/train"),
    "stage.endpoint": (STAGE, "https://store.example.com"),
    "stage.account": (AZURE_STAGE, "account1"),
    "stage.rearrange": (STAGE, ["sh", "-c", "true"]),
    "stage.threads": (STAGE, 3),
    "stage.cpu": (STAGE, 3),
    "stage.memory": (STAGE, "3Gi"),
    "output.claim": ({}, "results"),
    "output.mount": (OUTPUT, "/results"),
    "output.tensorboard": (OUTPUT, "/output/tb"),
    "checkpoint.url": ({}, "s3://bucket"),
    "checkpoint.every": (STORE, 60),
    "checkpoint.steps": (STORE, 100),
    "checkpoint.keep": (STORE, 9),
    "checkpoint.warm_start.url": (STORE, "s3://bucket/model.safetensors"),
    "checkpoint.warm_start.strict": (STORE | {"checkpoint__warm_start__url": "s3://bucket/model.safetensors"}, False),
    "checkpoint.endpoint": (STORE, "https://store.example.com"),
    "checkpoint.account": (AZURE_STORE, "account1"),
    "elastic_timeout": ({}, 60),
    "reset_limit": ({}, 3),
    "restarts": ({}, 5),
    "slow_workers": ({}, "replace"),
    "cooldown": ({}, [1, 2]),
    "gloo_timeout": ({}, 60),
    "deadline": ({}, 60),
    "keep": ({}, 60),
    "suspend": ({}, True),
    "priority.launcher": ({}, "high"),
    "priority.workers": ({}, "low"),
    "priority.floor": ({"workers__floor": 1}, "kept"),
    "queue.system": (KAI, "volcano"),
    "queue.name": (KAI, "other"),
    "queue.whole": ({**STORE, "queue__system": "kueue", "queue__name": "team"}, True),
    "network.policy": ({}, False),
    "network.interface": ({}, "net1"),
    "network.host_port": (ON_NODES, 25_000),
    "network.nodes": (ON_NODES, ["10.0.0.0/24"]),
    "network.ipv6": ({}, True),
    "network.mesh": ({}, True),
    "network.storage_ports": ({}, [9000]),
    "network.egress": ({}, ["10.0.0.0/8"]),
    "network.identity": (EKS | {"workers__service_account": "reader"}, False),
    "network.dns": ({}, [{"namespace": "dns"}]),
    "network.api_ports": ({}, [8443]),
    "network.api_server": ({}, ["10.0.0.5/32"]),
    "network.monitoring_namespace": ({}, "metrics"),
    "disruption_budget": ({}, True),
    "monitor": ({}, True),
    "autoscale.cpu_percent": (GPU, 70),
    "autoscale.cooldown": (GPU, 60),
    "autoscale.weight": (SHARED, 2),
    "autoscale.quota": (SHARED, 3),
    "autoscale.buy": (SHARED, True),
    "autoscale.budget": (SHARED | {"autoscale__buy": True}, 9),
    "read_nodes": ({}, True),
    "labels": ({}, {"team": "vision"}),
    "annotations": ({}, {"note": "a"}),
    "patches": ({}, [{"target": {"kind": "NetworkPolicy"}, "patch": {"metadata": {"annotations": {"a": "b"}}}}]),
    "log_format": ({}, "json"),
}

READ_ELSEWHERE: Final = {
    "machine": "what is refused before anything is written",
    "autoscale": "`hvd-elastic autoscale`, from the annotation",
}
"""Sections that change no manifest of an MPIJob, and who reads them."""


def section(key: str) -> str:
    return key.partition(".")[0]


def written(keys: dict[str, Any], target: Target) -> str:
    manifests = json.loads(json.dumps(render(job(**keys), target)))
    for each in manifests:
        each["metadata"].get("annotations", {}).pop(ANNOTATION_SPEC, None)
        if each["kind"] == "PyTorchJob":
            for container in each["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]:
                container["env"] = [one for one in container["env"] if not is_ours(one["name"])]
    return json.dumps(manifests, sort_keys=True)


def is_ours(name: str) -> bool:
    """Whether only hvd-elastic or Horovod reads it. A script of torchrun's may look for its folders there."""
    return name.startswith(("HVD_ELASTIC_", "HOROVOD_")) and name not in FOLDERS


@cache
def outcome(key: str, target: Target) -> str:
    """`yes`, `nothing`, or what is said of the key where it is refused."""
    base, value = SAMPLES[key]
    keys = {**base, key.replace(".", "__"): value}
    try:
        changed = written(keys, target)
    except InvalidInputError as error:
        (said,) = [problem.what for problem in error.problems if problem.path in {key, section(key)}]
        return said
    return YES if changed != written(base, target) else NOTHING


def is_storage(path: str) -> bool:
    """All volumes are written by one module, for all kinds of jobs: one sample of each of the two stands for them."""
    return section(path) in {"data", "output"} and path.partition(".")[2] not in {"claim", "mount", "tensorboard"}


def rows() -> Iterator[str]:
    """The keys that are refused somewhere, with one row for all of which the same is said; a section stands for its
    keys if they are in one row.
    """
    said: dict[tuple[str, ...], dict[str, None]] = {}
    for key in SAMPLES:
        inside = [other for other in SAMPLES if section(other) == section(key)]
        same = len({cells(other) for other in inside}) == 1
        if any(cell != YES for cell in cells(key)):
            said.setdefault(cells(key), {})[f"`{section(key) if same else key}`"] = None
    for answers, keys in said.items():
        yield f"| {', '.join(keys)} | {' | '.join(answers)} |"


def cells(key: str) -> tuple[str, ...]:
    """How each kind of job takes the key."""
    found = [outcome(key, target) for target in Target]
    if found == [NOTHING] * 3:
        return (YES,) * 3
    read = f"yes: {READ_ELSEWHERE.get(section(key))}"
    errors = [f"error: {each.removeprefix('has no effect: ')}" for each in found]
    return tuple({YES: YES, NOTHING: read}.get(each, error) for each, error in zip(found, errors, strict=True))
