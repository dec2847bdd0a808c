"""What shows a job's TensorBoard events."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.manifests.manifest_parts import pod_selector
from hvd_elastic.mpijob.manifests.supporting import tensorboard
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from tests.mpijob import admission
from tests.mpijob.examples import EXAMPLES, Example
from tests.mpijob.jobs import job

GOLDEN = Path(__file__).with_name("tensorboard-eks-efs.yaml")
SHOWING = [example for example in EXAMPLES if example.spec().output]
OWNER = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "birds", "uid": "u-1"}


def pod(**options: Any) -> dict[str, Any]:
    spec = job(output="results", **options.pop("keys", {}))
    found: dict[str, Any] = tensorboard.manifests(spec, image="board:1", **options)[-1]["spec"]["template"]
    return found


def test_an_example_renders_as_its_golden_file() -> None:
    spec = next(example for example in EXAMPLES if example.name == "eks-efs").spec()
    text = dump(tensorboard.manifests(spec, image=str(spec.image), owner=OWNER))
    if os.environ.get("HVD_ELASTIC_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("example", SHOWING, ids=lambda example: example.name)
@pytest.mark.parametrize("one_node", [False, True])
def test_it_is_admitted(example: Example, one_node: bool) -> None:
    spec = example.spec()
    made = tensorboard.manifests(spec, image=str(spec.image), one_node=one_node, owner=OWNER)
    assert [error for manifest in made for error in admission.errors(manifest)] == []
    assert admission.restricted(made[-1]["spec"]["template"]["spec"]) == []


def test_it_cannot_write_has_no_token_and_reaches_none_of_the_jobs_ports() -> None:
    template = pod(keys={"labels": {"team": "vision"}})
    inside = template["spec"]
    (claim,) = (volume["persistentVolumeClaim"] for volume in inside["volumes"] if "persistentVolumeClaim" in volume)
    assert claim == {"claimName": "results", "readOnly": True}
    assert {"name": "output", "mountPath": "/output", "readOnly": True} in inside["containers"][0]["volumeMounts"]
    assert inside["automountServiceAccountToken"] is False
    assert inside["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert template["metadata"]["labels"]["team"] == "vision"
    assert not pod_selector(job()).items() <= template["metadata"]["labels"].items()


def test_a_user_s_label_does_not_take_its_pod_away_from_it() -> None:
    spec = job(output="results", labels={"hvd-elastic.dev/tensorboard": "other", "team": "vision"})
    policy, deployment = tensorboard.manifests(spec, image="board:1")
    chosen = deployment["spec"]["selector"]["matchLabels"]
    assert chosen == policy["spec"]["podSelector"]["matchLabels"] == {"hvd-elastic.dev/tensorboard": "fashion"}
    assert chosen.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert chosen.items() <= deployment["metadata"]["labels"].items()


def test_nothing_reaches_it_but_its_kubelet() -> None:
    policy, deployment = tensorboard.manifests(job(output="results"), image="board:1")
    assert policy["spec"].keys() == {"podSelector", "policyTypes"}
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    alone = tensorboard.manifests(job(output="results", network={"policy": False}), image="board:1")
    assert [manifest["kind"] for manifest in alone] == ["Deployment"]


def test_it_runs_on_demand_or_where_the_workers_have_the_volume() -> None:
    keys = {"cloud": "eks", "workers__gpus": 1}
    away, near = pod(keys=keys)["spec"], pod(keys=keys, one_node=True)["spec"]
    assert "podAffinity" not in away["affinity"]
    assert "spot" in str(away["affinity"]["nodeAffinity"]) or "on-demand" in str(away["affinity"]["nodeAffinity"])
    assert "nvidia.com/gpu" not in str(away["tolerations"])
    (term,) = near["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == pod_selector(job(), Role.WORKER)
    assert "nvidia.com/gpu" in str(near["tolerations"])


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def board(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The container's own command, over a folder of this machine and on a port that is free here."""
    monkeypatch.setattr(tensorboard, "PORT", port)
    container: dict[str, Any] = pod(keys={})["spec"]["containers"][0]
    events = tmp_path / "events"
    words = [str(events) if word.startswith("/output") else word for word in container["command"]]
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", f"{words[0]}.main", *words[1:]],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as running:
        yield {"container": container, "events": events}
        running.terminate()


@pytest.mark.core
@pytest.mark.process
@pytest.mark.timeout(120)
def test_the_real_tensorboard_serves_what_its_command_says(board: dict[str, Any], port: int) -> None:
    from torch.utils.tensorboard import SummaryWriter

    probe = board["container"]["startupProbe"]["exec"]["command"]
    while subprocess.run([sys.executable, *probe[1:]], stderr=subprocess.DEVNULL, check=False).returncode:
        pass  # as the kubelet, which begins again; the test's timeout ends it
    with SummaryWriter(str(board["events"])) as writer:
        writer.add_scalar("train/loss", 1.0, 1)
    while b"train/loss" not in urlopen(f"http://127.0.0.1:{port}/data/plugin/scalars/tags", timeout=10).read():
        pass
    with urlopen(f"http://127.0.0.1:{port}/data/environment", timeout=10) as answer:
        assert b'"window_title": "fashion"' in answer.read()
