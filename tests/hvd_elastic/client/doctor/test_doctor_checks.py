"""What the checks of `doctor` say of clusters that cannot be made on the test cluster, and of what may not be read."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from types import MappingProxyType
from typing import Any

import pytest

from hvd_elastic.client.doctor.checks import namespace_checks, node_checks
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact, Right, ServiceAccount, Webhook
from hvd_elastic.client.doctor.diagnosis import Level
from hvd_elastic.client.doctor.examination import CHECKS, examine
from hvd_elastic.client.doctor.fact_reader import NEEDED_RIGHTS
from hvd_elastic.client.operations.resource_paths import PLURALS
from hvd_elastic.discovery.rules.operator_lag import OperatorWork
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.priorityclasses import DEFAULTS, ClassUser, guard_manifests, manifest
from hvd_elastic.setup.platform_kit.floor_policy import floor_policy
from tests.mpijob.jobs import job, one

KUEUE = (
    "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    "integrations: {frameworks: [kubeflow.org/mpijob, pod]}\n"
)
OF_VGPUS = one(job(workers__gpus=1, workers__gpu_resource="example.com/vgpu"), "MPIJob")
OPERATOR = ServiceAccount(namespace="mpi-operator", name="mpi-operator")


def crd(*served: str, established: bool = True) -> dict[str, Any]:
    return {
        "spec": {"versions": [{"name": name, "served": True} for name in served]},
        "status": {"conditions": [{"type": "Established", "status": str(established)}]},
    }


def operator(image: str = "mpioperator/mpi-operator:v0.8.2", *arguments: str, available: int = 1) -> dict[str, Any]:
    container = {"image": image, "args": list(arguments)}
    return {
        "metadata": {"name": "mpi-operator", "namespace": OPERATOR.namespace},
        "spec": {"template": {"spec": {"serviceAccountName": OPERATOR.name, "containers": [container]}}},
        "status": {"availableReplicas": available},
    }


def node(
    name: str = "gpu",
    *,
    spot: bool = False,
    gpus: int = 4,
    cidr: str = "10.0.0.0/24",
    taint: str = "",
    others: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": str(gpus), **{resource: str(amount) for resource, amount in others.items()}}
    return {
        "metadata": {"name": name, "labels": {"cloud.google.com/gke-spot": "true"} if spot else {}},
        "spec": {"podCIDRs": [cidr], "taints": [{"key": taint, "effect": "NoSchedule"}] if taint else []},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": amounts,
            "allocatable": amounts,
            "nodeInfo": {"kubeletVersion": "v1.36.5"},
        },
    }


def slice_of(driver: str, devices: int, *, pool: str = "gpu", generation: int = 1) -> dict[str, Any]:
    listed = [{"name": f"gpu-{number}"} for number in range(devices)]
    return {
        "spec": {
            "driver": driver,
            "nodeName": pool,
            "pool": {"name": pool, "generation": generation},
            "devices": listed,
        }
    }


def device_class(name: str, resource: str | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"extendedResourceName": resource} if resource else {}}


def kueue(tag: str, *arguments: str) -> dict[str, Any]:
    containers = [
        {"image": "registry.k8s.io/kubebuilder/kube-rbac-proxy:v0.8.0"},
        {"image": f"registry.k8s.io/kueue/kueue:{tag}", "args": list(arguments)},
    ]
    return {
        "metadata": {"name": "kueue-controller-manager", "namespace": "kueue-system"},
        "spec": {"template": {"spec": {"containers": containers}}},
        "status": {"availableReplicas": 1},
    }


def local_queue(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"clusterQueue": "training"}}


def cluster_queue(name: str = "training", *, gpus: int, **preemption: str) -> dict[str, Any]:
    flavor = {"name": "any", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": str(gpus)}]}
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}
    return {
        "metadata": {"name": name},
        "spec": {"cohortName": "gpus", "preemption": preemption, "resourceGroups": [group]},
    }


def floored(name: str, *, priority: int = 100_000_000) -> dict[str, Any]:
    """A worker of a job with a floor of two."""
    labels = {"hvd-elastic.dev/floor": "2"}
    return {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"priority": priority, "nodeName": "gpu"},
    }


FLOORED = one(job(workers={"min": 1, "max": 3, "gpus": 1, "floor": 2}), "MPIJob")
POLICY, BINDING = floor_policy(DEFAULTS[1])
FLOOR: dict[str, Any] = {"mutating_policies": [POLICY], "mutating_bindings": [BINDING]}
SAMPLE_POLICY = {
    "metadata": {"name": "sample-validating-admission-policy"},
    "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["batch"], "resources": ["jobs"]}]},
        "matchConditions": [{"name": "exclude-jobset-owned", "expression": "true"}],
        "validations": [{"expression": "'kueue.x-k8s.io/queue-name' in object.metadata.labels"}],
    },
}
"""Kueue's, in what matters (its `site/static/examples/sample-validating-policy.yaml`)."""


def daemon_set(name: str, *containers: str) -> dict[str, Any]:
    inside = [{"name": container} for container in containers or ("main",)]
    return {"metadata": {"name": name}, "spec": {"template": {"spec": {"containers": inside}}}}


def mpijob(image: str, *command: str, name: str = "fashion", condition: str = "Running") -> dict[str, Any]:
    """An elastic job of horovodrun, unless `command` says otherwise."""
    words = [*(command or ("horovodrun",)), "-np", "2", "--min-np", "1", "python", "train.py"]
    container = {"name": "launcher", "image": image, "command": words}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"containers": [container]}}}}},
        "status": {"conditions": [{"type": condition, "status": "True"}]},
    }


def bound(role: str, account: ServiceAccount) -> dict[str, Any]:
    subject = {"kind": "ServiceAccount", "namespace": account.namespace, "name": account.name}
    return {"roleRef": {"name": role}, "subjects": [subject]}


def sidecar_rights(job: str, account: str, **meta: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "hvd-elastic", "app.kubernetes.io/part-of": job}
    return {"metadata": {"labels": labels, **meta}, "subjects": [{"kind": "ServiceAccount", "name": account}]}


LATER = date(2027, 7, 1)
ON_AKS = node()
ON_AKS["metadata"]["labels"] = {"kubernetes.azure.com/cluster": "one"}
SOUND = ClusterFacts(
    namespace="team",
    version="v1.36.5",
    today=date(2026, 11, 28),
    nodes=[node(), node("plain", gpus=0)],
    priority_classes=[manifest(one) for one in DEFAULTS],
    crds={"mpijobs.kubeflow.org": crd("v2beta1")},
    deployments=[operator()],
    daemon_sets=[daemon_set("calico-node")],
    cluster_roles={
        "driver": {
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "delete"]},
                {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs", "mpijobs/status"], "verbs": ["*"]},
            ]
        },
        "kueue-manager-role": {  # as Kueue 0.14 has it, of these kinds
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "get", "list", "patch", "watch"]},
                {
                    "apiGroups": ["kubeflow.org"],
                    "resources": ["jaxjobs/status", "mpijobs/status"],
                    "verbs": ["get", "patch", "update"],
                },
            ]
        },
    },
    cluster_role_bindings=[
        bound("driver", OPERATOR),
        bound("kueue-manager-role", ServiceAccount(namespace="kueue-system", name="kueue-controller-manager")),
    ],
    namespace_object={"metadata": {"name": "team"}},
    mpijobs=[
        mpijob("example.com/train:1", "hvd-elastic", "horovodrun"),
        mpijob("example.com/train:1", "hvd-elastic", "launch"),
        mpijob("example.com/train:1", "mpirun"),
        mpijob("example.com/train:horovod0.28.1-hvdelastic.2"),
        mpijob("horovod/horovod:0.28.1", condition="Succeeded"),
    ],
    role_bindings=[
        sidecar_rights("fashion", "fashion-discovery"),
        sidecar_rights("going", "going-discovery", ownerReferences=[{"kind": "MPIJob", "name": "going"}]),
        sidecar_rights("legacy", "legacy-launcher"),  # of an MPIJob v1
        sidecar_rights("search.sweep", "search-sweep"),
    ],
    rights={Right(verb="create", resource="mpijobs", group="kubeflow.org"): True},
    resume_rights={OPERATOR: True},
)


def told(facts: ClusterFacts) -> dict[str, tuple[Level, str]]:
    return {
        one.check: (one.verdict.level, one.verdict.evidence)
        for one in examine(facts)
        if one.verdict.level is not Level.OK
    }


def test_a_sound_cluster_alarms_nobody_and_every_check_says_why() -> None:
    assert told(SOUND) == {}
    assert {one.check for one in examine(SOUND)} == {one.name for one in CHECKS}


@pytest.mark.parametrize(
    ("facts", "check", "level", "evidence"),
    [
        (replace(SOUND, version="v1.28.9-eks-1"), "kubernetes", Level.ERROR, "no native sidecars"),
        (replace(SOUND, today=LATER), "kubernetes", Level.WARNING, "v1.36.5: its support ended on 2027-06-28"),
        (
            replace(SOUND, version="v1.36.1-eks-3cfe0ce", today=date(2027, 8, 3)),
            "kubernetes",
            Level.WARNING,
            "the standard support of EKS for it ended on 2027-08-02",
        ),
        (
            replace(SOUND, version="v1.34.9-gke.1", today=date(2026, 11, 28)),
            "kubernetes",
            Level.WARNING,
            "the standard support of GKE for it ended on 2026-10-01",
        ),
        (
            replace(SOUND, nodes=[ON_AKS], today=LATER),
            "kubernetes",
            Level.WARNING,
            "the standard support of AKS for it ended on 2027-06-30",
        ),
        (
            replace(
                SOUND,
                resource_slices=[
                    slice_of("gpu.nvidia.com", 4, generation=2),
                    slice_of("gpu.nvidia.com", 8, generation=1),
                    slice_of("gpu.nvidia.com", 4, pool="b"),
                ],
                device_classes=[device_class("gpu.nvidia.com"), device_class("net", "example.com/nic")],
            ),
            "claimed-devices",
            Level.WARNING,
            "gpu.nvidia.com 8 devices: no DeviceClass gives them the name of a resource",
        ),
        (
            replace(
                SOUND,
                nodes=[node(gpus=0)],
                resource_slices=[slice_of("gpu.nvidia.com", 4)],
                device_classes=[device_class("whole", "nvidia.com/gpu")],
            ),
            "claimed-devices",
            Level.WARNING,
            "jobs get them as nvidia.com/gpu (DeviceClass whole). The scheduler takes no such GPU from a lower class",
        ),
        (
            replace(SOUND, crds={**SOUND.crds, "workloads.kueue.x-k8s.io": crd("v1")}),
            "queues",
            Level.WARNING,
            "serves kueue.x-k8s.io as v1, and this release of hvd-elastic reads v1beta2, v1beta1",
        ),
        (replace(SOUND, clock_offset_seconds=-90), "clock", Level.WARNING, "90 s behind"),
        (replace(SOUND, crds={}), "mpijob", Level.ERROR, "not installed"),
        (replace(SOUND, crds={"mpijobs.kubeflow.org": crd("v1")}), "mpijob", Level.ERROR, "serves v1, not v2beta1"),
        (
            replace(SOUND, crds={"mpijobs.kubeflow.org": crd("v2beta1", established=False)}),
            "mpijob",
            Level.ERROR,
            "not established",
        ),
        (
            replace(SOUND, deployments=[operator("mpioperator/mpi-operator:0.4.0")]),
            "mpi-operator",
            Level.WARNING,
            "is 0.4",
        ),
        (
            replace(SOUND, waiting_jobs={"fashion": OperatorWork(missing=1, surplus=3)}),
            "waiting-jobs",
            Level.WARNING,
            "nothing of fashion for 15 s, though 1 worker has no pod, and 3 workers are too many",
        ),
        (
            replace(SOUND, deployments=[operator("kubeflow/training-operator:v1.8.1")]),
            "mpi-operator",
            Level.ERROR,
            "no MPI Operator is installed",
        ),
        (
            replace(SOUND, deployments=[operator("mpioperator/mpi-operator:0.8.2", "--gang-scheduling=volcano")]),
            "mpi-operator",
            Level.ERROR,
            "podgroups.scheduling.volcano.sh",
        ),
        (
            replace(SOUND, deployments=[operator(), kueue("v0.19.1")], kueue_configuration=KUEUE),
            "queues",
            Level.WARNING,
            "within 30m (waitForPodsReady, which is on by default in this release)",
        ),
        (
            replace(SOUND, kueue_configuration=f"{KUEUE}waitForPodsReady: {{timeout: 5m, blockAdmission: true}}"),
            "queues",
            Level.WARNING,
            "within 5m (waitForPodsReady), and admits no other job meanwhile",
        ),
        (
            replace(SOUND, kueue_configuration="integrations: {frameworks: [batch/job]}"),
            "queues",
            Level.WARNING,
            "integrations.frameworks lacks `pod`",
        ),
        (
            replace(SOUND, deployments=[operator(), kueue("v0.17.4")], kueue_configuration=KUEUE),
            "queues",
            Level.WARNING,
            "delete it (it is 0.17)",
        ),
        (
            replace(SOUND, local_queues=[local_queue("default")], cluster_queues=[cluster_queue(gpus=2)]),
            "local-queues",
            Level.ERROR,
            "takes every job and pod of team that names no queue",
        ),
        (
            replace(SOUND, validating_policies=[SAMPLE_POLICY]),
            "local-queues",
            Level.ERROR,
            "the launcher of a job whose workers are queued one by one is such a Job",
        ),
        (
            replace(SOUND, local_queues=[local_queue("q")]),
            "local-queues",
            Level.ERROR,
            "of the ClusterQueue training, which is not there",
        ),
        (
            replace(
                SOUND,
                local_queues=[local_queue("q")],
                cluster_queues=[cluster_queue(gpus=1), cluster_queue("serving", gpus=3)],
            ),
            "local-queues",
            Level.WARNING,
            "serving lends GPUs to q and never takes them back",
        ),
        (
            replace(SOUND, pod_groups=[{"metadata": {"name": "g"}, "spec": {"disruptionMode": {"all": {}}}}]),
            "groups",
            Level.WARNING,
            "the PodGroup g is disrupted whole",
        ),
        (
            replace(SOUND, volcano_configuration='actions: "allocate, backfill, gangPreempt, gangReclaim"'),
            "groups",
            Level.WARNING,
            "gangPreempt, gangReclaim may evict a job whole",
        ),
        (replace(SOUND, mpijobs=[FLOORED]), "floor", Level.ERROR, "there is no policy that gives it"),
        (
            replace(SOUND, mpijobs=[FLOORED], version="v1.35.4", mutating_policies=None),
            "floor",
            Level.ERROR,
            "Kubernetes v1.35.4 serves no MutatingAdmissionPolicies of v1",
        ),
        (
            replace(SOUND, **FLOOR, priority_classes=SOUND.priority_classes[:1]),
            "floor",
            Level.ERROR,
            "floor-pc does not exist",
        ),
        (replace(SOUND, mutating_policies=[POLICY]), "floor", Level.ERROR, "has no binding"),
        (
            replace(SOUND, **FLOOR, workers=[floored("w-0"), floored("w-1", priority=80_000_001)]),
            "floor",
            Level.WARNING,
            "w-1: below the floor of the job, and of a class that inference preempts",
        ),
        (
            replace(SOUND, **FLOOR, nodes=[node(spot=True), node("plain")], workers=[floored("w-0")]),
            "floor",
            Level.WARNING,
            "w-0: below the floor of the job, and on a spot node",
        ),
        (
            replace(SOUND, version="v1.35.4", resume_rights={OPERATOR: False}),
            "suspend-and-resume",
            Level.WARNING,
            "jobs/status",
        ),
        (replace(SOUND, nodes=[node(spot=True)]), "launcher-nodes", Level.WARNING, "spot node"),
        (replace(SOUND, nodes=[node(gpus=0)]), "gpus", Level.ERROR, "none of 1 nodes offers"),
        (
            replace(SOUND, nodes=[node(gpus=0, taint="nvidia.com/gpu", others={"amd.com/gpu": 8})]),
            "gpus",
            Level.WARNING,
            "workers do not tolerate nvidia.com/gpu of gpu",
        ),
        (
            replace(SOUND, quotas=[{"metadata": {"name": "q"}, "spec": {"hard": {"requests.amd.com/gpu": "0"}}}]),
            "quotas",
            Level.ERROR,
            "the quota q leaves nothing: requests.amd.com/gpu 0",
        ),
        (
            replace(
                SOUND,
                limit_ranges=[
                    {
                        "metadata": {"name": "l"},
                        "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/mig-1g.10gb": "0"}}]},
                    }
                ],
            ),
            "limit-ranges",
            Level.WARNING,
            "allows at most 0 nvidia.com/mig-1g.10gb: no worker fits",
        ),
        (replace(SOUND, nodes=[node(cidr="fd00::/64")]), "addresses", Level.WARNING, "IPv6 addresses only"),
        (replace(SOUND, daemon_sets=[daemon_set("kube-flannel-ds")]), "network-policies", Level.WARNING, "any pod"),
        (
            replace(SOUND, mpijobs=[mpijob("horovod/horovod:0.28.1", name="b"), mpijob("train:1", name="a")]),
            "launchers",
            Level.WARNING,
            "a, b: Horovod 0.28.1 runs what anyone sends to the launcher (CVE-2024-10190)",
        ),
        (
            replace(SOUND, role_bindings=[sidecar_rights("bert", "bert-discovery"), *SOUND.role_bindings]),
            "left-behind",
            Level.WARNING,
            "bert: deleted, and the rights of the sidecar are still there",
        ),
        (
            replace(SOUND, mpijobs=[mpijob("train:1")]),
            "launchers",
            Level.WARNING,
            "fashion: nothing says that the Horovod of this image is patched",
        ),
        (
            replace(SOUND, daemon_sets=[daemon_set("aws-node", "aws-node")]),
            "network-policies",
            Level.WARNING,
            "any pod",
        ),
        (
            replace(
                SOUND,
                webhooks=[Webhook(name="w", resources=frozenset({"pods"}), service="a/b", ready_addresses=0)],
            ),
            "admission-webhooks",
            Level.ERROR,
            "a/b has no ready address",
        ),
    ],
)
def test_what_is_wrong_is_said(facts: ClusterFacts, check: str, level: Level, evidence: str) -> None:
    found = told(facts)
    assert found[check][0] is level
    assert evidence in found[check][1]


@pytest.mark.parametrize(
    "facts",
    [
        replace(SOUND, deployments=[operator("mpioperator/mpi-operator:0.6.0")], resume_rights={OPERATOR: False},
                version="v1.35.4"),
        replace(SOUND, resume_rights={OPERATOR: False}),
        replace(SOUND, daemon_sets=[daemon_set("aws-node", "aws-node", "aws-eks-nodeagent")]),
        replace(SOUND, deployments=[operator("x:0.8.2", "--gang-scheduling=volcano")], crds={
            **SOUND.crds, "podgroups.scheduling.volcano.sh": {}}),
        replace(SOUND, deployments=[operator(), kueue("v0.18.3")], kueue_configuration=KUEUE),
        replace(SOUND, crds={**SOUND.crds, "workloads.kueue.x-k8s.io": crd("v1beta2")}),
        replace(SOUND, deployments=[operator(), kueue("v0.19.0", "--feature-gates=DisableWaitForPodsReady=true")],
                kueue_configuration=KUEUE),
        replace(SOUND, local_queues=[local_queue("q")], cluster_queues=[
            cluster_queue(gpus=1), cluster_queue("serving", gpus=3, reclaimWithinCohort="Any")]),
        replace(SOUND, validating_policies=[*guard_manifests(DEFAULTS, [ClassUser(namespace="serving")], [])]),
        replace(SOUND, pod_groups=[{"metadata": {"name": "g"}, "spec": {"disruptionMode": {"single": {}}}}]),
        replace(SOUND, **FLOOR, mpijobs=[FLOORED],
                workers=[floored("w-0"), floored("w-2", priority=80_000_001)]),
        replace(SOUND, webhooks=[
            Webhook(name="w", resources=frozenset({"pods"}), service="a/b", ready_addresses=2)]),
        replace(SOUND, nodes=[node(spot=True), node("plain", gpus=0)]),
        replace(SOUND, resource_slices=[slice_of("dra.net", 2)], device_classes=[device_class("net")]),
    ],
)  # fmt: skip
def test_what_is_well_alarms_nobody(facts: ClusterFacts) -> None:
    assert told(facts) == {}


@pytest.mark.parametrize(
    ("facts", "evidence"),
    [
        (replace(SOUND, nodes=[node(), node("b", gpus=2)]), "6 nvidia.com/gpu on 2 nodes: gpu, b"),
        (
            replace(SOUND, nodes=[node(gpus=0, taint="amd.com/gpu", others={"amd.com/gpu": 8}), node("plain", gpus=0)]),
            "8 amd.com/gpu on 1 node: gpu",
        ),
        (
            replace(SOUND, nodes=[node(gpus=2, taint="nvidia.com/gpu", others={"nvidia.com/mig-1g.10gb": 14})]),
            "2 nvidia.com/gpu, 14 nvidia.com/mig-1g.10gb on 1 node: gpu",
        ),
        (
            replace(
                SOUND,
                nodes=[node(gpus=0, taint="example.com/vgpu", others={"example.com/vgpu": 3})],
                mpijobs=[OF_VGPUS, mpijob("train:1"), {"spec": "no job"}],
            ),
            "3 example.com/vgpu on 1 node: gpu",
        ),
    ],
)
def test_gpus_are_counted_by_what_the_cluster_and_its_jobs_call_them(facts: ClusterFacts, evidence: str) -> None:
    (found,) = node_checks.gpus.run(facts)
    assert (found.level, found.evidence) == (Level.OK, evidence)


def test_gpus_that_claims_alone_hand_out_are_no_error() -> None:
    classes = [device_class("whole", "nvidia.com/gpu")]
    found = told(replace(SOUND, nodes=[node(gpus=0)], device_classes=classes, resource_slices=[slice_of("gpu.x", 1)]))
    assert set(found) == {"claimed-devices"}


@pytest.mark.parametrize(
    ("drivers", "evidence"),
    [
        (["gcsfuse.csi.storage.gke.io", "pd.csi.storage.gke.io"], "mounted by gcsfuse.csi.storage.gke.io"),
        (["ebs.csi.aws.com"], "nothing mounts one: `output` is a claim here"),
    ],
)
def test_what_mounts_a_bucket_is_named(drivers: list[str], evidence: str) -> None:
    facts = replace(SOUND, csi_drivers=[{"metadata": {"name": name}} for name in drivers])
    (found,) = namespace_checks.buckets.run(facts)
    assert (found.level, found.evidence) == (Level.OK, evidence)


@pytest.mark.parametrize("fact", Fact)
def test_what_may_not_be_read_is_a_warning_of_the_checks_that_need_it_alone(fact: Fact) -> None:
    found = told(replace(SOUND, unreadable={fact: "somebody may not list this"}))
    assert set(found) == {one.name for one in CHECKS if fact in one.needs}
    assert all(level is Level.WARNING and "somebody may not list this" in text for level, text in found.values())


def test_the_rights_that_are_asked_for_are_those_that_a_submission_takes() -> None:
    """To look at, create and patch each object; and every right of the Role, for nobody may give what he lacks."""
    manifests = render(read_job("name: toy\nnamespace: team\nimage: toy:1\ncommand: [python, toy.py]\n"))
    written = {
        Right(verb=verb, resource=PLURALS[one["kind"]], group=_group(one["apiVersion"]))
        for one in manifests
        for verb in ("create", "get", "patch")
    }
    (role,) = (one for one in manifests if one["kind"] == "Role")
    given = {
        Right(verb=verb, resource=resource, group=group)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert written | given <= set(NEEDED_RIGHTS)
    reading = {("get", "pods/log"), ("list", "mpijobs"), ("delete", "mpijobs")}
    assert {(right.verb, right.resource) for right in set(NEEDED_RIGHTS) - written - given} <= reading
    assert len(set(NEEDED_RIGHTS)) == len(NEEDED_RIGHTS)


def _group(api_version: str) -> str:
    group, slash, _ = api_version.partition("/")
    return group if slash else ""
