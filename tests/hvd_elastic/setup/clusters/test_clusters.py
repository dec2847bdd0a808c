"""Clusters, as the clouds' own tools are told to make them: valid for those tools, and fit for our pods."""

import json
import shutil
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.clouds.gpu_types import GKE_ACCELERATORS
from hvd_elastic.mpijob.clouds.machine_types import machine_tables
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.setup.clusters import ClusterPlan, Step, WorkerPool, creation, deletion, kept_data, script
from hvd_elastic.setup.clusters.eks import cluster_config
from tests.mpijob.jobs import job, pods
from tests.mpijob.manifests.test_node_placement import admits
from tests.properties import examples

SCHEMA = Path(__file__).parent / "eksctl_schema.json"
MACHINES = {
    Cloud.EKS: ("g5.2xlarge", "p5.48xlarge"),
    Cloud.GKE: ("g2-standard-48", "a2-ultragpu-8g"),
    Cloud.AKS: ("Standard_NC24ads_A100_v4", "Standard_ND96isr_H100_v5"),
}
DAY = date(2026, 11, 28)
every_cloud = pytest.mark.parametrize("cloud", MACHINES)


def plan_of(cloud: Cloud, **changes: Any) -> ClusterPlan:
    given = {"cloud": cloud, "name": "research", "region": "r1", "zones": ("r1-a", "r1-b"), "account": "team"}
    return ClusterPlan(**(given | {"machines": MACHINES[cloud]} | changes))


def after(argv: tuple[str, ...], flag: str) -> list[str]:
    """The words that follow a flag, up to the next flag; empty without the flag."""
    if flag not in argv:
        return []
    rest = argv[argv.index(flag) + 1 :]
    return list(rest[: next((i for i, word in enumerate(rest) if word.startswith("--")), len(rest))])


def made_by(cloud: Cloud, plan: ClusterPlan, pool: WorkerPool) -> tuple[dict[str, str], set[str]]:
    """Labels and taints of a pool's nodes: those that we ask for, and those that the cloud adds by itself."""
    if cloud is Cloud.EKS:
        groups = [one for one in cluster_config(plan)["managedNodeGroups"] if one["name"].startswith(f"{pool.name}-r1")]
        assert len(groups) == len(plan.zones)
        labels = groups[0]["labels"] | {"eks.amazonaws.com/capacityType": "SPOT" if groups[0]["spot"] else "ON_DEMAND"}
        return labels, {taint["key"] for taint in groups[0]["taints"]}
    names = {pool.name, f"{'spot' if pool.spot else 'od'}{pool.number}"}
    (argv,) = (step.argv for step in creation(plan) if names & set(step.argv))
    if cloud is Cloud.GKE:
        flags = dict(word.split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        accelerator = dict(part.split("=") for part in flags["--accelerator"].split(","))
        labels = {"cloud.google.com/gke-accelerator": accelerator["type"]}
        labels |= {"cloud.google.com/gke-spot": "true"} if "--spot" in argv else {}
        assert int(accelerator["count"]) == pool.machine.gpus
        return labels, {"nvidia.com/gpu", *(["cloud.google.com/gke-spot"] if "--node-taints" in flags else [])}
    spot = {"kubernetes.azure.com/scalesetpriority": "spot"} if after(argv, "--priority") == ["Spot"] else {}
    taints = {taint.partition("=")[0] for taint in after(argv, "--node-taints")}
    return spot | dict(label.split("=") for label in after(argv, "--labels")), taints | set(spot)


@every_cloud
def test_pools_have_the_labels_and_taints_that_workers_select(cloud: Cloud) -> None:
    plan = plan_of(cloud)
    assert {(pool.machine.name, pool.spot) for pool in plan.pools()} == {
        (name, spot) for name in plan.machines for spot in (True, False)
    }
    for pool in plan.pools():
        labels, taints = made_by(cloud, plan, pool)
        for capacity in ("spot", "on-demand"):
            spec = job(cloud=cloud.value, capacity=capacity, gpu_type=pool.machine.gpu, workers__gpus=1)
            launcher, worker = pods(spec)
            assert admits(worker, labels) == (pool.spot == (capacity == "spot")), (pool.name, labels)
            tolerated = {toleration["key"] for toleration in worker["tolerations"]}
            assert taints <= tolerated or pool.spot != (capacity == "spot")
            assert not taints <= {toleration["key"] for toleration in launcher["tolerations"]}


@every_cloud
def test_every_known_machine_can_be_a_pool(cloud: Cloud) -> None:
    table = machine_tables()[cloud]
    current = [one.name for one in table.machines.values() if not one.retired and one.gpu in {"t4", "l4", "a100"}]
    plan = plan_of(cloud, machines=tuple(current))
    assert len({pool.name for pool in plan.pools()}) == 2 * len(current)
    assert all(len(pool.name) <= 40 for pool in plan.pools())
    assert creation(plan)


def test_the_cluster_config_is_one_of_eksctl() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    config = cluster_config(plan_of(Cloud.EKS))
    jsonschema.Draft7Validator(schema).validate(config)
    launchers, *workers = config["managedNodeGroups"]
    assert launchers["minSize"] == 1
    assert "taints" not in launchers
    assert {group["minSize"] for group in workers} == {0}
    assert [group["name"] for group in workers if group.get("efaEnabled")] == [
        f"p5-48xlarge-{kind}-r1-{zone}" for kind in ("spot", "od") for zone in "ab"
    ]


@every_cloud
def test_the_operator_keeps_up_with_jobs_of_hundreds_of_workers(cloud: Cloud) -> None:
    """Its own limits are too low for them: docs/requirements.md#an-operator-for-large-jobs."""
    operators = [step.argv for step in creation(plan_of(cloud)) if "mpi-operator" in step.argv]
    (argv,) = operators
    patch = json.loads(argv[-1].removeprefix("--patch="))
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    given = dict(word.lstrip("-").split("=") for word in container["args"] if "=" in word)
    assert given["lock-namespace"] == argv[-2].removeprefix("--namespace=")
    assert int(given["kube-api-qps"]) >= 50
    assert int(given["controller-queue-rate-limit"]) >= 100


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="needs the Google Cloud SDK, which checks its own commands")
def test_gcloud_knows_every_flag(tmp_path: Path) -> None:
    plan = plan_of(Cloud.GKE, region="us-central1", zones=("us-central1-a",))
    steps = [step for step in (*creation(plan), *kept_data(plan), *deletion(plan)) if step.argv[0] == "gcloud"]
    commands = tmp_path / "commands.json"
    commands.write_text(json.dumps([{"command_string": " ".join(step.argv)} for step in steps]), encoding="utf-8")
    lint = ("gcloud", "meta", "lint-gcloud-commands", f"--commands-file={commands}")
    answer = subprocess.run(lint, capture_output=True, text=True, check=False)
    try:
        results = json.loads(answer.stdout)
    except ValueError:
        pytest.skip(f"this gcloud cannot check commands: {answer.stderr[:200]}")
    assert [one["error_message"] for one in results if not one["success"]] == []
    assert len(results) == len({*(" ".join(step.argv) for step in steps)})


def test_gke_names_each_accelerator_as_the_nodes_do() -> None:
    plan = plan_of(Cloud.GKE)
    text = script(creation(plan), title="x")
    assert all(f"type={GKE_ACCELERATORS[pool.gpu]}," in text for pool in plan.pools())


@every_cloud
def test_each_create_has_its_delete(cloud: Cloud) -> None:
    plan = plan_of(cloud)
    created = next(step.argv for step in creation(plan) if "create" in step.argv and "cluster" in " ".join(step.argv))
    (deleted,) = (step.argv for step in deletion(plan))
    assert deleted[0] == created[0]
    assert "research" in " ".join(deleted)
    assert kept_data(plan)[-1].argv[:3] == ("kubectl", "get", "persistentvolumes")


@every_cloud
def test_scripts_are_scripts(cloud: Cloud, tmp_path: Path) -> None:
    plan = plan_of(cloud)
    texts = (
        script(creation(plan), title="creates"),
        script(deletion(plan), first=kept_data(plan), confirm=plan.name, title="deletes"),
    )
    for text in texts:
        assert "set -eu" in text.splitlines()
        subprocess.run(("sh", "-n"), input=text, text=True, check=True)
        if shutil.which("shellcheck"):
            subprocess.run(("shellcheck", "-s", "sh", "-"), input=text, text=True, check=True)


@settings(max_examples=examples(25))
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=90), min_size=1, max_size=6))
def test_a_shell_reads_the_words_of_a_step_as_they_are(words: list[str]) -> None:
    step = Step(purpose="x", argv=("printf", "%s\\0", *words))
    done = subprocess.run(("sh", "-c", step.line()), capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words


def test_a_shell_does_not_expand_what_a_step_reads() -> None:
    step = Step(purpose="x", argv=("cat",), stdin="a: $HOME `id` $(id)\n")
    assert subprocess.run(("sh", "-c", step.line()), capture_output=True, text=True, check=True).stdout == step.stdin


def test_a_deletion_ends_unless_its_name_is_typed() -> None:
    text = script([Step(purpose="x", argv=("echo", "gone"))], confirm="research", title="deletes")
    answers = {"research\n": (0, True), "yes\n": (1, False), "": (1, False)}
    for typed, (code, gone) in answers.items():
        done = subprocess.run(("sh", "-c", text), input=typed, capture_output=True, text=True, check=False)
        assert (done.returncode, "gone" in done.stdout) == (code, gone)


def test_every_problem_of_a_plan_is_said() -> None:
    changes = {"name": "Not a name", "region": "r 1", "zones": ("a",), "max_nodes": 0, "machines": ("m5.large",)}
    with pytest.raises(InvalidInputError) as error:
        creation(plan_of(Cloud.EKS, **changes))
    assert {problem.path for problem in error.value.problems} == {
        "name",
        "--region",
        "--zone",
        "--max-nodes",
        "--machine",
    }
    with pytest.raises(InvalidInputError, match="retired since 2025-09-30"):
        creation(plan_of(Cloud.AKS, machines=("Standard_NC6s_v3",)))
    with pytest.raises(InvalidInputError, match="--project"):
        creation(plan_of(Cloud.GKE, account=None))


@every_cloud
def test_a_version_that_has_ended_is_refused_for_a_new_cluster(cloud: Cloud) -> None:
    plan = plan_of(cloud, version="1.33")
    with pytest.raises(InvalidInputError, match=r"--version: .*1\.33.* has ended: .*up to 2026-0[78]-") as error:
        creation(plan, today=DAY)
    assert "1.36, 1.35" in str(error.value)
    assert deletion(plan)
    assert creation(plan_of(cloud), today=DAY), "the default"
    assert creation(plan_of(cloud, version="1.99"), today=DAY), "newer than all that is known"
