"""What the API server would reject is found before, and what is sure is mended."""

from typing import Any

import pytest

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.rule import ManifestPart
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from tests.mpijob.lint.rules_on import changed, findings


def worker(**fields: object) -> list[lint.Document]:
    return changed(ManifestPart.WORKER, fields)


@pytest.mark.parametrize(
    ("written", "fixed"),
    [("32GiB", "32Gi"), ("32GB", "32G"), ("1.5TiB", "1.5Ti"), ("64KB", "64k"), ("32 GiB", "32Gi")],
)
def test_a_quantity_with_a_b_is_found_and_loses_it(written: str, fixed: str) -> None:
    documents = worker(resources={"limits": {"memory": written}})
    assert [found.value for found in findings("HE913", documents)] == [written]
    after, _ = lint.fix(documents, lint.select_rules(["HE913"]))
    job: Any = after[-1].value
    main = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert main["resources"]["limits"]["memory"] == fixed


@pytest.mark.parametrize("written", ["", "32gb", "four", "1,5Gi"])
def test_a_quantity_that_could_mean_anything_is_left_to_a_person(written: str) -> None:
    (found,) = findings("HE913", worker(resources={"limits": {"memory": written}}))
    assert found.edits == ()


@pytest.mark.parametrize("written", ["32Gi", "500m", "1e3", "0.5", ".5", "+1", 4, 1.5, "100n", "1E"])
def test_what_the_api_server_reads_is_a_quantity(written: object) -> None:
    assert findings("HE913", worker(resources={"limits": {"memory": written}})) == []


@pytest.mark.parametrize("port", [0, -1, 65_536, 222_222])
def test_a_port_outside_the_range_is_found_wherever_it_stands(port: int) -> None:
    documents = worker(
        ports=[{"name": "ssh", "containerPort": port, "hostPort": port}], readinessProbe={"tcpSocket": {"port": port}}
    )
    assert [found.value for found in findings("HE914", documents)] == [port] * 3


def test_ports_at_the_ends_of_the_range_and_names_are_right() -> None:
    documents = worker(
        ports=[{"name": "ssh", "containerPort": 1}, {"containerPort": 65_535}], readinessProbe={"grpc": {"port": "ssh"}}
    )
    assert findings("HE914", documents) == []


@pytest.mark.parametrize("image", ["", "  ", None])
def test_a_container_without_an_image_is_found(image: str | None) -> None:
    assert len(findings("HE915", worker(image=image))) == 1


def test_a_volume_that_the_operator_adds_may_be_mounted() -> None:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("ssh-auth", "mpi-job-config", "data")]
    assert [found.value for found in findings("HE916", worker(volumeMounts=mounts))] == ["data"]


def test_more_workers_than_nodes_are_found() -> None:
    def replicas(count: int) -> list[lint.Document]:
        return changed(ManifestPart.JOB, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": count}}}})

    assert findings("HE912", replicas(5_000)) == []
    assert len(findings("HE912", replicas(5_001))) == 1


def test_root_is_found_beside_the_pods_own_promise() -> None:
    pod = {"spec": {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000}}}
    containers = [{"name": "worker", "securityContext": {"runAsUser": 0}}]
    documents = changed(ManifestPart.WORKER_POD, {"spec": {**pod["spec"], "containers": containers}})
    assert [found.value for found in findings("HE424", documents)] == [0]


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "A"}]}, 2),
        ({"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a"}]}, 1),
        ({"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/b"}]}, 0),
        ({"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 1, "protocol": "TCP"}]}, 1),
        ({"ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}]}, 0),
        ({"env": [{"value": "1"}, {"value": "2"}, 3, {"name": []}]}, 0),
    ],
)
def test_items_of_a_list_differ(fields: dict[str, object], count: int) -> None:
    assert len(findings("HE917", worker(**fields))) == count


def test_a_variable_may_stand_twice_in_v1() -> None:
    documents = worker(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])
    assert len(findings("HE917", documents)) == 1
    job: Any = documents[-1].value
    legacy, _ = lint.read(dump([job | {"apiVersion": "kubeflow.org/v1"}]))
    assert findings("HE917", legacy) == []


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"tolerations": []}, "spec.mpiReplicaSpecs.Worker.template.spec.tolerations"),
        ({"resources": {"cpu": 1}}, "resources.limits.cpu"),
        ({"resources": {"nvidia.com/gpu": 1}}, "resources.limits['nvidia.com/gpu']"),
        ({"limits": {"cpu": 1}}, "resources.limits"),
    ],
)
def test_a_field_of_another_part_of_the_pod_is_named_with_its_place(fields: dict[str, object], meant: str) -> None:
    (found,) = findings("HE901", worker(**fields))
    assert found.message.startswith("no such field; did you mean spec.")
    assert found.message.endswith(f"{meant}?")
