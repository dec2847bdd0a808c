"""Pods that are not the one kind that is rendered by default train, and give way to inference as fast."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.manifests.customization.pod_merge import merged_template
from testbed.cluster import inference, jobs
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_operating import run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

SECRET: Final = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": "a word"}}
GRACE_OF_ITS_OWN: Final = "trap 'exit 0' TERM; touch /scratch/there; while :; do sleep 0.2; done"


def pod(site: Site) -> dict[str, Any]:
    """A pod with a sidecar, a volume that both share, a variable from a Secret, an annotation and a host alias."""
    scratch = {"name": "scratch", "mountPath": "/scratch"}
    proxy = {
        "name": "proxy",
        "image": site.image,
        "command": ["/bin/sh", "-c", GRACE_OF_ITS_OWN],
        "restartPolicy": "Always",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [scratch],
    }
    token = {"name": "HUB_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    return {
        "metadata": {"annotations": {"example.com/note": "mine"}},
        "spec": {
            "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["hub.example.com"]}],
            "initContainers": [proxy],
            "containers": [{"name": "worker", "env": [token], "volumeMounts": [scratch]}],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    }


@pytest.mark.core
def test_a_pod_of_ones_own_trains_and_gives_way(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    cluster.local()
    namespace.apply([SECRET])
    job = start(cluster, namespace, "launch", workers=jobs.workers((1, SIZE, SIZE), pod=pod(cluster)))
    load = inference.deploy(cluster, namespace)
    job.wait_size(SIZE)
    first = job.pods(Role.WORKER)[0]
    assert first["metadata"]["annotations"]["example.com/note"] == "mine"
    name = first["metadata"]["name"]
    seen = namespace("exec", name, "-c", "worker", "--", "sh", "-c", 'echo "$HUB_TOKEN"; ls /scratch; cat /etc/hosts')
    assert seen.splitlines()[:2] == ["a word", "there"]
    assert "hub.example.com" in seen

    timeline.mark("inference takes two")
    load.scale(2)
    load.wait(2)
    job.wait_size(SIZE - 2)
    job.wait_steps(10)
    back = timeline.mark("and gives them back")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    job.wait_steps(10)
    nothing_lost(job.account)


UNKNOWN: Final[dict[str, Any]] = {"spec": {"securityContext": {"runAsUser": 1000680000}}}
"""A user as OpenShift gives each namespace its own: without an entry in /etc/passwd."""


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_a_user_whom_the_image_does_not_know_trains(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    shared = jobs.share_results(cluster, namespace)
    shared.chmod(0o777)
    jobs.priority_classes(cluster)
    keys = {
        "launcher": {"kind": launcher, "cpu": "100m", "pod": UNKNOWN},
        "workers": jobs.workers((2, 2, 2), pod=UNKNOWN),
    }
    job = jobs.submit(
        cluster, namespace, jobs.describe(cluster, namespace, "unknown", jobs.PACED, **keys), shared=shared
    )
    job.wait_size(2)
    timeline.mark("trains")
    name = job.pods(Role.WORKER)[0]["metadata"]["name"]
    script = "id; python -c 'import getpass; print(getpass.getuser())'; touch ~/it-is-writable && echo written"
    said = namespace("exec", name, "-c", "worker", "--", "sh", "-c", script).splitlines()
    assert said[0].startswith("uid=1000680000(mpiuser) gid=1000(mpiuser)")
    assert said[1:] == ["mpiuser", "written"]
    job.wait_steps(10)
    job.finish()
    nothing_lost(job.account, ended=True)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"workers": jobs.workers(pod={"spec": {"nodeSelectr": {"a": "b"}}})}, "nodeSelectr"),
        ({"patches": [{"target": {"kind": "MPIJob"}, "patch": {"spec": {"runPolicy": {"ttl": 3}}}}]}, "ttl"),
    ],
)
def test_a_field_that_the_cluster_does_not_know_is_refused(
    cluster: Site, namespace: Kubectl, change: dict[str, Any], field: str
) -> None:
    jobs.priority_classes(cluster)
    described = json.dumps(jobs.describe(cluster, namespace, "typo", ["true"], **change))
    done = run(namespace, "submit", "-", given=described)
    assert done.returncode
    assert field in done.stderr
    assert not namespace.list("mpijobs")


def overlay(folder: Path, described: dict[str, Any], field: str) -> list[str]:
    """`submit -k` of an overlay that sets a field of the workers."""
    jobs.generate(described, "--output-dir", str(folder / "base"))
    (folder / "prod").mkdir(exist_ok=True)
    change = [{"op": "add", "path": f"/spec/mpiReplicaSpecs/Worker/template/spec/{field}", "value": "other"}]
    kustomization = {
        "resources": ["../base"],
        "labels": [{"pairs": {"team": "vision"}}],
        "configMapGenerator": [{"name": "settings", "literals": ["a=b"]}],
        "patches": [{"target": {"kind": "MPIJob"}, "patch": json.dumps(change)}],
    }
    (folder / "prod" / "kustomization.yaml").write_text(json.dumps(kustomization))
    return ["submit", "-k", str(folder / "prod")]


def test_an_overlay_is_submitted_with_the_real_kubectl(
    cluster: Site, namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it adds is there, a restart that makes the job again keeps it, and a field that nobody knows is refused."""
    monkeypatch.setenv("PATH", str(namespace.program.parent))
    jobs.priority_classes(cluster)
    described = jobs.describe(cluster, namespace, "overlaid", ["true"], suspend=True)
    wrong = run(namespace, *overlay(tmp_path, described, "schedulerNam"))
    assert wrong.returncode
    assert "schedulerNam" in wrong.stderr
    assert not namespace.list("mpijobs")
    words = overlay(tmp_path, described, "schedulerName")
    for more in ([], ["--diff"]):
        done = run(namespace, *words, *more)
        assert done.returncode == 0, done.stderr
    job = namespace.get("mpijob", "overlaid")
    assert job["metadata"]["labels"]["team"] == "vision"
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] == "other"
    assert [one for one in namespace.list("configmaps") if one["metadata"]["name"].startswith("settings-")]
    time = "2026-01-01T00:00:00Z"
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": time, "lastUpdateTime": time}
    ended = json.dumps({"status": {"completionTime": time, "conditions": [failed]}})
    namespace("patch", "mpijob", "overlaid", "--subresource=status", "--type=merge", f"--patch={ended}")
    again = run(namespace, "restart", "overlaid", "--yes")
    assert again.returncode == 0, again.stderr
    made = namespace.get("mpijob", "overlaid")
    assert made["metadata"]["uid"] != job["metadata"]["uid"]
    assert made["spec"]["mpiReplicaSpecs"] == job["spec"]["mpiReplicaSpecs"]


OVERLAY: Final[dict[str, Any]] = {
    "metadata": {"annotations": {"a": "b"}},
    "spec": {
        "runtimeClassName": "nvidia",
        "nodeSelector": {"pool": "gpu"},
        "enableServiceLinks": None,
        "securityContext": {"runAsGroup": None, "supplementalGroups": [7]},
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["hub"]}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
        "initContainers": [{"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "worker",
                "tty": True,
                "env": [{"name": "MORE", "value": "1"}],
                "ports": [{"containerPort": 7000}],
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}, {"name": "big", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
    },
}


def test_two_templates_become_one_as_kubectl_patches_them(cluster: Site, namespace: Kubectl) -> None:
    described = jobs.describe(cluster, namespace, "merged", ["true"])
    (job,) = [item for item in json.loads(jobs.generate(described, "-o", "json"))["items"] if item["kind"] == "MPIJob"]
    base = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "merged"}, "template": base}
    patch = json.dumps({"template": OVERLAY})
    by_kubectl = namespace("patch", "--local", "-f", "-", "-o", "json", "-p", patch, stdin=json.dumps(template))
    assert by_key(json.loads(by_kubectl)["template"]) == by_key(merged_template(base, OVERLAY))


def by_key(value: Any) -> Any:
    """The same without the order of lists, and without what kubectl writes of a type though it is empty."""
    if isinstance(value, dict):
        return {key: by_key(inner) for key, inner in value.items() if inner not in ({}, [], None)}
    if isinstance(value, list):
        return sorted((by_key(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value
