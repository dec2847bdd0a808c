"""A job's pods are as it says, and what would break the job is refused, by whichever field it was written."""

from typing import Any

import pytest

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.customization.patches import merge_difference, merge_patch
from hvd_elastic.mpijob.manifests.customization.pod_merge import merged_template
from hvd_elastic.mpijob.manifests.render import render, render_customized
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job, one, pods

RDMA: dict[str, Any] = {
    "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "rdma"}},
    "spec": {
        "runtimeClassName": "nvidia",
        "initContainers": [{"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "worker",
                "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }
        ],
        "volumes": [
            {"name": "scratch", "hostPath": {"path": "/mnt/nvme"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    },
}


@pytest.mark.parametrize("target", [Target.MPIJOB, Target.MPIJOB_V1])
def test_a_pod_has_what_its_job_says_beside_its_own(target: Target) -> None:
    spec = job(workers__pod=RDMA, launcher__pod={"spec": {"nodeSelector": {"pool": "cpu"}}})
    plain_launcher, plain_worker = pods(job(), target)
    launcher, worker = pods(spec, target)
    assert launcher == {**plain_launcher, "nodeSelector": {"pool": "cpu"}}
    assert worker["runtimeClassName"] == "nvidia"
    assert worker["initContainers"] == RDMA["spec"]["initContainers"]
    (training,), (plain,) = worker["containers"], plain_worker["containers"]
    assert training["env"] == [*plain["env"], *RDMA["spec"]["containers"][0]["env"]]
    assert training["volumeMounts"] == [*plain["volumeMounts"], {"name": "scratch", "mountPath": "/scratch"}]
    assert {volume["name"]: volume for volume in worker["volumes"]}["tmp"] == RDMA["spec"]["volumes"][1]
    template = one(spec, "MPIJob", target)["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    assert template["metadata"]["annotations"] == RDMA["metadata"]["annotations"]


def test_a_description_keeps_its_pods() -> None:
    spec = job(workers__pod=RDMA)
    assert read_job(spec.as_json()) == spec


def broken(role: str, pod: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        render(job(**{f"{role}__pod": pod, "launcher__kind": "launch"}))
    return {problem.path.removeprefix(f"{role}.pod."): str(problem) for problem in caught.value.problems}


def in_container(name: str, **fields: Any) -> dict[str, Any]:
    group = "initContainers" if name == "discovery" else "containers"
    return {"spec": {group: [{"name": name, **fields}]}}


@pytest.mark.parametrize(
    ("field", "value", "way_out"),
    [
        ("activeDeadlineSeconds", 60, "set deadline"),
        ("automountServiceAccountToken", True, "leave it out"),
        ("hostPID", True, "leave it out"),
        ("hostname", "me", "leave it out"),
        ("hostnameOverride", "me", "leave it out"),
        ("nodeName", "node-1", "set node_labels"),
        ("priorityClassName", "system-node-critical", "set priority.workers"),
        ("restartPolicy", "Always", "leave it out"),
        ("resources", {"limits": {"cpu": "9"}}, "set workers or launcher"),
        ("serviceAccount", "admin", "set workers.service_account"),
        ("serviceAccountName", "admin", "set workers.service_account"),
        ("shareProcessNamespace", True, "leave it out"),
        ("subdomain", "me", "leave it out"),
        ("terminationGracePeriodSeconds", None, "set workers.grace"),
    ],
)
@pytest.mark.parametrize("role", ["workers", "launcher"])
def test_what_the_operator_and_the_grace_need_stays(role: str, field: str, value: object, way_out: str) -> None:
    if field == "terminationGracePeriodSeconds" and role == "launcher":
        value = 3600
    problems = broken(role, {"spec": {field: value}})
    assert list(problems) == [f"spec.{field}"]
    assert way_out in problems[f"spec.{field}"]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("worker", {"command": ["sleep"]}),
        ("worker", {"args": ["--help"]}),
        ("worker", {"image": "other"}),
        ("worker", {"readinessProbe": None}),
        ("worker", {"startupProbe": {"periodSeconds": 60}}),
        ("worker", {"lifecycle": {"preStop": {"sleep": {"seconds": 60}}}}),
        ("worker", {"resources": {"limits": {"cpu": "9"}}}),
        ("launcher", {"lifecycle": None}),
        ("discovery", {"restartPolicy": None}),
        ("discovery", {"livenessProbe": None}),
    ],
)
def test_our_containers_run_what_they_run(name: str, fields: dict[str, Any]) -> None:
    role = "workers" if name == "worker" else "launcher"
    group = "initContainers" if name == "discovery" else "containers"
    assert list(broken(role, in_container(name, **fields))) == [f"spec.{group}[{name}].{next(iter(fields))}"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"env": [{"name": "HVD_ELASTIC_SLOTS", "value": "9"}]}, "env[HVD_ELASTIC_SLOTS]"),
        ({"volumeMounts": [{"mountPath": "/run/hvd-elastic", "name": "tmp"}]}, "volumeMounts[/run/hvd-elastic]"),
        ({"ports": [{"containerPort": 2222, "name": "mine"}]}, "ports[2222]"),
        ({"securityContext": {"privileged": True}}, "securityContext.privileged"),
        ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser"),
        ({"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}, "securityContext.capabilities.add"),
        ({"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}, "securityContext.capabilities.add"),
        ({"securityContext": {"capabilities": {"add": [{"a": 1}]}}}, "securityContext.capabilities.add"),
    ],
)
def test_a_workers_own_set_up_stays(fields: dict[str, Any], path: str) -> None:
    assert list(broken("workers", in_container("worker", **fields))) == [f"spec.containers[worker].{path}"]


def test_any_user_but_root_may_run_a_pod() -> None:
    context: dict[str, Any] = {"runAsUser": 0, "runAsNonRoot": False}
    assert list(broken("workers", {"spec": {"securityContext": context}})) == ["spec.securityContext.runAsUser"]
    for group in (0, None):  # group 0 is what OpenShift takes where nobody says one
        context = {"runAsUser": 1000680000, "runAsGroup": group}
        assert list(broken("workers", {"spec": {"securityContext": context}})) == ["spec.securityContext.runAsGroup"]
    context = {"runAsUser": 1000680000}
    _, worker = pods(job(workers__pod={"spec": {"securityContext": context}}))
    assert worker["securityContext"] == {**pods(job())[1]["securityContext"], **context}
    _, worker = pods(job(workers__pod={"spec": {"securityContext": {"runAsUser": None}}}))
    assert "runAsUser" not in worker["securityContext"]


def test_a_container_that_would_keep_the_pod_from_ending_is_refused_with_the_way_out() -> None:
    problems = broken("workers", in_container("logger", image="logger:1"))
    assert "write it under initContainers with `restartPolicy: Always`" in problems["spec.containers[logger]"]


def test_a_name_that_is_none_of_ours_is_named() -> None:
    problems = broken("workers", in_container("wroker", tty=True))
    assert "none of the job's own: worker" in problems["spec.containers[wroker].name"]


@pytest.mark.parametrize("volume", ["discovery-token", "job-key"])
def test_nobody_else_gets_what_discovery_has(volume: str) -> None:
    mounts = [{"name": volume, "mountPath": "/stolen"}]
    sidecar = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always", "volumeMounts": mounts}
    ours = broken("launcher", in_container("launcher", volumeMounts=mounts))
    theirs = broken("launcher", {"spec": {"initContainers": [sidecar]}})
    assert list(ours) == ["spec.containers[launcher].volumeMounts"]
    assert list(theirs) == ["spec.initContainers[proxy].volumeMounts"]
    token = {"name": "mine", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    assert list(broken("launcher", {"spec": {"volumes": [token]}})) == ["spec.volumes[mine]"]


def test_our_volumes_and_labels_stay() -> None:
    assert list(broken("workers", {"spec": {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "9Gi"}}]}})) == [
        "spec.volumes[shm]"
    ]
    for label in ("app.kubernetes.io/part-of", "training.kubeflow.org/job-role"):
        assert list(broken("workers", {"metadata": {"labels": {label: "mine"}}})) == [f"metadata.labels[{label}]"]


def test_a_queues_scheduler_stays() -> None:
    with pytest.raises(InvalidInputError) as caught:
        render(job(queue__system="volcano", queue__name="team", workers__pod={"spec": {"schedulerName": "mine"}}))
    assert "is that of the job's queue" in str(caught.value)


@pytest.mark.parametrize(
    ("gpus", "label", "what"),
    [
        (2, "A100-SXM4-40GB-MIG-1g.5gb", "is a MIG instance, of which a worker can use one"),
        (2, "Tesla-T4-SHARED", "is a share of a GPU, of which a worker can use one"),
        (1, "A100-SXM4-40GB-MIG-1g.5gb", ""),
        (2, "A100-SXM4-40GB", ""),
    ],
)
def test_of_parts_of_a_gpu_a_worker_has_one_whoever_chose_its_nodes(gpus: int, label: str, what: str) -> None:
    pod = {"spec": {"nodeSelector": {"nvidia.com/gpu.product": label, "rack": "7"}}}
    spec = job(workers__gpus=gpus, workers__pod=pod)
    if not what:
        assert render(spec)
        return
    with pytest.raises(InvalidInputError) as caught:
        render(spec)
    assert what in str(caught.value)
    assert "workers.pod.spec.nodeSelector" in str(caught.value)


TTL = [{"op": "replace", "path": "/spec/runPolicy/ttlSecondsAfterFinished", "value": 60}]
POLICY = {"metadata": {"annotations": {"team": "vision"}}, "spec": {"egress": None}}


def patch(change: Any, kind: str = "MPIJob", name: str | None = None) -> dict[str, Any]:
    return {"target": {"kind": kind, **({"name": name} if name else {})}, "patch": change}


@pytest.mark.parametrize(
    "written", [TTL, str(TTL), "- {op: replace, path: /spec/runPolicy/ttlSecondsAfterFinished, value: 60}"]
)
def test_a_json_patch_changes_the_job(written: Any) -> None:
    changed = one(job(patches=[patch(written, name="fashion")]), "MPIJob")
    expected = one(job(), "MPIJob")
    expected["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 60
    expected["metadata"]["annotations"][ANNOTATION_SPEC] = changed["metadata"]["annotations"][ANNOTATION_SPEC]
    assert changed == expected


def test_a_merge_patch_changes_all_of_a_kind_and_null_removes() -> None:
    before, after = render(job()), render(job(patches=[patch(POLICY, "NetworkPolicy")]))
    policies = [each for each in after if each["kind"] == "NetworkPolicy"]
    assert len(policies) > 1
    assert all(
        each["metadata"]["annotations"] == {"team": "vision"} and "egress" not in each["spec"] for each in policies
    )
    assert [each for each in before if each["kind"] == "Role"] == [each for each in after if each["kind"] == "Role"]


def test_patches_come_after_pods_and_one_after_another() -> None:
    add = [
        {"op": "add", "path": "/spec/mpiReplicaSpecs/Worker/template/spec/hostAliases/-", "value": {"ip": "10.0.0.2"}}
    ]
    pod = {"spec": {"hostAliases": [{"ip": "10.0.0.1"}]}}
    _, worker = pods(job(workers__pod=pod, patches=[patch(add), patch(add)]))
    assert [alias["ip"] for alias in worker["hostAliases"]] == ["10.0.0.1", "10.0.0.2", "10.0.0.2"]


def refused_patch(*patches: dict[str, Any]) -> str:
    with pytest.raises(InvalidInputError) as caught:
        render(job(patches=list(patches)))
    return str(caught.value)


WORKER = "/spec/mpiReplicaSpecs/Worker"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "Job"}, "kind: 'Job': is what the object is"),
        ({"metadata": {"name": "other"}}, "metadata.name: 'other': is how the job finds"),
        ({"metadata": {"labels": None}}, "is how the job finds the object again"),
        ({"metadata": {"annotations": None}}, "is how the job finds the object again"),
        (
            {"spec": {"slotsPerWorker": 4}},
            "spec.slotsPerWorker: 4: is how many processes a worker has: set workers.slots",
        ),
        ({"spec": {"launcherCreationPolicy": "WaitForWorkersReady"}}, "spec.launcherCreationPolicy"),
        ({"spec": None}, "spec: is not a mapping"),
        ({"spec": {"mpiReplicaSpecs": {"Worker": None}}}, "has not the roles Launcher, Worker"),
        ({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 9}}}}, "Worker.replicas: 9: is how many pods"),
        ({"spec": {"mpiReplicaSpecs": {"Worker": {"template": 1}}}}, "Worker.template: has not the form"),
        (
            [{"op": "replace", "path": f"{WORKER}/template/spec/containers/0/command", "value": ["sleep"]}],
            "[worker].command",
        ),
        ([{"op": "remove", "path": f"{WORKER}/template/spec/containers/0"}], "'worker': is missing"),
        ([{"op": "add", "path": f"{WORKER}/template/spec/hostPID", "value": True}], "spec.hostPID"),
        ({"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"metadata": None}}}}}, "know the job's pods"),
        ({"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": None}}}}}, "'worker': is missing"),
        ([{"op": "replace", "path": f"{WORKER}/template/spec/containers", "value": None}], "'worker': is missing"),
        (
            [{"op": "replace", "path": f"{WORKER}/template/spec/volumes", "value": None}],
            "[shm]: is one of the job's own",
        ),
        (
            [{"op": "replace", "path": f"{WORKER}/template/spec/containers/0/env", "value": None}],
            "is how the job is set",
        ),
        ([{"op": "replace", "path": "", "value": []}], "does not fit MPIJob/fashion"),
        ([{"op": "remove", "path": "/spec/nothing"}], "does not fit MPIJob/fashion"),
        ([{"op": "boil", "path": "/spec"}], "does not fit MPIJob/fashion"),
        ([1], "does not fit MPIJob/fashion"),
        ("- [", "patches[0].patch"),
        ("nothing", "is not a mapping"),
    ],
)
def test_what_a_patch_breaks_or_does_not_fit_is_named(change: Any, said: str) -> None:
    assert said in refused_patch(patch(change))


def test_what_each_patch_changes_is_told() -> None:
    both = ("NetworkPolicy/fashion", "NetworkPolicy/fashion.api-server")
    changes = [
        patch(TTL),
        patch({"metadata": {"labels": {"team": "vision"}}}, "NetworkPolicy", "fashion"),
        patch({"metadata": {"labels": {"team": "vision"}}}, "NetworkPolicy"),
        patch(TTL),
    ]
    effects = render_customized(job(patches=changes)).effects
    assert [(one.path, one.changed, one.unchanged) for one in effects] == [
        ("patches[0]", ("MPIJob/fashion",), ()),
        ("patches[1]", both[:1], ()),
        ("patches[2]", both[1:], both[:1]),
        ("patches[3]", (), ("MPIJob/fashion",)),
    ]
    assert [str(one).partition(":")[0] for one in effects[2:]] == [
        f"patches[2] changes {both[1]}, and nothing in {both[0]}, as the patch would have it already",
        "patches[3] changes nothing in MPIJob/fashion, as the patch would have it already",
    ]
    assert render_customized(job()).effects == []


def test_a_patch_finds_an_object_by_what_it_was() -> None:
    remove = [{"op": "remove", "path": "/kind"}]
    assert "kind: is what the object is" in refused_patch(patch(remove), patch(TTL))


@pytest.mark.parametrize(
    ("kind", "field", "keys"),
    [
        ("NetworkPolicy", "podSelector", {}),
        ("PodDisruptionBudget", "selector", {"disruption_budget": True}),
        ("PodMonitor", "selector", {"monitor": True}),
    ],
)
def test_what_is_for_the_jobs_pods_stays_theirs(kind: str, field: str, keys: dict[str, Any]) -> None:
    """A label that they do not have, as kustomize's commonLabels adds, would leave them without a policy, unsaid."""
    for change in (None, {field: None}, {field: {"matchLabels": {"team": "vision"}}}):
        with pytest.raises(InvalidInputError, match=f"spec.{field}: selects the job's pods"):
            render(job(**keys, patches=[patch({"spec": change}, kind)]))


def test_a_difference_is_the_patch_that_makes_it() -> None:
    before = {"same": 1, "gone": {"a": 1}, "deep": {"kept": 1, "list": [1, 2], "gone": 1}, "was": "text"}
    after = {"same": 1, "deep": {"kept": 1, "list": [1]}, "was": {"new": 1}, "new": {"a": {"b": 1}}}
    difference = merge_difference(before, after)
    assert difference == {
        "gone": None,
        "deep": {"gone": None, "list": [1]},
        "was": {"new": 1},
        "new": {"a": {"b": 1}},
    }
    assert merge_patch(before, difference) == after
    assert merge_difference(after, after) == {}


def test_a_patch_that_hits_nothing_says_what_is_there() -> None:
    said = refused_patch(patch(TTL, name="other"))
    assert "patches[0].target: 'MPIJob/other': is no object of this job: choose among " in said
    assert "MPIJob/fashion" in said


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("containers", {"name": "worker", "securityContext": 5}),
        ("containers", {"name": "worker", "securityContext": {"capabilities": 5}}),
        ("containers", {"name": "worker", "securityContext": {"capabilities": {"add": 5}}}),
        ("volumes", {"name": "mine", "projected": 5}),
        ("volumes", {"name": "mine", "projected": {"sources": [5]}}),
    ],
)
def test_what_kubernetes_would_refuse_by_its_type_is_left_to_it(field: str, change: dict[str, Any]) -> None:
    _, worker = pods(job(workers__pod={"spec": {field: [change]}}))
    (written,) = [each for each in worker[field] if each["name"] == change["name"]]
    assert merged_template(written, change) == written, "it is there as it was given"
