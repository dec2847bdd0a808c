from typing import Any

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.clouds import efa
from tests.mpijob.jobs import job, one, pods


def worker(**keys: Any) -> dict[str, Any]:
    return pods(job(**keys))[1]


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in pod["containers"][0]["env"]}


def test_pid_1_is_the_entry_point_and_ready_means_warm() -> None:
    (container,) = worker()["containers"]
    assert container["command"] == ["hvd-elastic", "worker", "--", "python", "train.py"]
    assert container["readinessProbe"]["tcpSocket"] == {"port": contract.READY_PORT}
    assert container["readinessProbe"]["periodSeconds"] == 1


def test_requests_are_set_and_equal_limits() -> None:
    resources = worker(workers__gpus=2, workers__memory="10Gi", workers__disk="50Gi")["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["requests"] == {
        "cpu": "2",
        "memory": "10Gi",
        "ephemeral-storage": "50Gi",
        "nvidia.com/gpu": "2",
    }


def test_gpus_are_asked_for_by_the_resource_that_the_cluster_calls_them() -> None:
    replicas = one(job(workers__gpus=2, workers__gpu_resource="amd.com/gpu"), "MPIJob")["spec"]["mpiReplicaSpecs"]
    template = replicas["Worker"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["resources"]["limits"]["amd.com/gpu"] == "2"
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert environment(template["spec"])[contract.ENV_SLOTS] == "2"
    assert template["metadata"]["annotations"] == {contract.ANNOTATION_GPU_RESOURCE: "amd.com/gpu"}
    assert "annotations" not in replicas["Launcher"]["template"]["metadata"]


def test_whatever_else_a_worker_gets_is_in_requests_and_limits() -> None:
    wanted = {"rdma/hca_shared_devices_a": 1, "hugepages-2Mi": "4Gi", "ephemeral-storage": "10Gi"}
    resources = worker(workers__gpus=1, workers__resources=wanted)["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"].items() >= {name: str(amount) for name, amount in wanted.items()}.items()


def test_own_huge_pages_take_the_place_of_those_for_the_adapters() -> None:
    keys = {"cloud": "eks", "instance_type": "p4d.24xlarge", "workers__gpus": 8, "workers__efa": 4}
    resources = worker(**keys, workers__resources={"hugepages-2Mi": "8Gi"})["containers"][0]["resources"]
    assert resources["limits"]["hugepages-2Mi"] == "8Gi"


def test_shared_memory_is_counted_in_the_memory() -> None:
    pod = worker(workers__memory="8Gi", workers__shm="3Gi")
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "3Gi"}
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "8Gi"


def test_the_entry_point_knows_the_grace() -> None:
    for keys, seconds in (
        ({}, 30),
        ({"cloud": "gke"}, 15),
        ({"cloud": "aks"}, 25),
        ({"cloud": "gke", "capacity": "on-demand"}, 30),
        ({"workers__grace": 90, "cloud": "eks"}, 90),
    ):
        pod = worker(**keys)
        assert pod["terminationGracePeriodSeconds"] == seconds
        assert environment(pod)[contract.ENV_GRACE_SECONDS] == str(seconds)


def test_workers_hold_no_token() -> None:
    assert worker()["automountServiceAccountToken"] is False
    assert worker(workers__service_account="s3")["serviceAccountName"] == "s3"


def test_threads_are_shared_out() -> None:
    assert environment(worker(workers__cpu=16, workers__slots=4, workers__loaders=2))["OMP_NUM_THREADS"] == "2"
    assert environment(worker(workers__cpu="500m"))["OMP_NUM_THREADS"] == "1"
    assert environment(worker(env={"OMP_NUM_THREADS": "7"}))["OMP_NUM_THREADS"] == "7"


def test_a_warm_start_travels_by_the_contract() -> None:
    given: dict[str, object] = {"url": "s3://b/p", "warm_start": "s3://models/bert.safetensors"}
    values = environment(worker(checkpoint=given))
    assert values[contract.ENV_CHECKPOINT_WARM_START] == "s3://models/bert.safetensors"
    assert contract.ENV_CHECKPOINT_WARM_START_STRICT not in values
    given["warm_start"] = {"url": "file:///data/bert.pt", "strict": False}
    values = environment(worker(checkpoint=given))
    assert values[contract.ENV_CHECKPOINT_WARM_START] == "file:///data/bert.pt"
    assert values[contract.ENV_CHECKPOINT_WARM_START_STRICT] == "0"
    assert contract.ENV_CHECKPOINT_WARM_START not in environment(worker(checkpoint="s3://b/p"))


def test_batch_and_checkpoint_travel_by_the_contract() -> None:
    values = environment(worker(batch__per_worker=32, checkpoint="s3://b/p/", checkpoint__every="2m", namespace="team"))
    assert values[contract.ENV_BATCH_PER_WORKER] == "32"
    assert values[contract.ENV_LEARNING_RATE] == "linear"
    assert values[contract.ENV_CHECKPOINT] == "s3://b/p/team/fashion"
    assert values[contract.ENV_CHECKPOINT_SECONDS] == "120"
    assert values[contract.ENV_CHECKPOINT_KEEP] == "3"
    assert environment(worker(checkpoint="s3://b/p/", checkpoint__keep=1))[contract.ENV_CHECKPOINT_KEEP] == "1"
    assert environment(worker(batch=64))[contract.ENV_BATCH_GLOBAL] == "64"


def test_adapters_bring_huge_pages_and_their_environment() -> None:
    pod = worker(cloud="eks", instance_type="p4d.24xlarge", workers__gpus=8, workers__efa=4)
    limits = pod["containers"][0]["resources"]["limits"]
    assert (limits[efa.RESOURCE], limits["hugepages-2Mi"]) == ("4", "5120Mi")
    assert environment(pod)["FI_PROVIDER"] == "efa"
    assert environment(pod)[contract.ENV_EFA] == "4"  # what the entry point looks for libraries by
    launching, _ = pods(job(cloud="eks", instance_type="p4d.24xlarge", workers__gpus=8, workers__efa=4))
    assert environment({"containers": [{"env": launching["containers"][0]["env"][:-1]}]})["FI_PROVIDER"] == "efa"


def test_a_worker_without_adapters_looks_for_no_libraries_of_theirs() -> None:
    assert contract.ENV_EFA not in environment(worker(workers__gpus=8))


def test_the_store_of_checkpoints_is_named_as_its_library_looks_for_it() -> None:
    ports = {"network__storage_ports": [443, 9000]}
    own = {"checkpoint__endpoint": "http://store:9000", **ports}
    assert environment(worker(checkpoint="s3://b/p", **own))["AWS_ENDPOINT_URL_S3"] == "http://store:9000"
    assert environment(worker(checkpoint="gs://b/p", **own))[contract.ENV_STORE_ENDPOINT] == "http://store:9000"
    azure = environment(worker(checkpoint="az://c/p", checkpoint__account="account1"))
    assert azure["AZURE_STORAGE_ACCOUNT_NAME"] == "account1"
    assert environment(worker(checkpoint="https://account1.blob.core.windows.net/c/p"))[contract.ENV_CHECKPOINT] == (
        "https://account1.blob.core.windows.net/c/p/default/fashion"
    )


def test_aks_gives_a_worker_with_an_account_a_token_of_it() -> None:
    def labels(**keys: Any) -> dict[str, str]:
        replicas = one(job(**keys), "MPIJob")["spec"]["mpiReplicaSpecs"]
        found = {role: replicas[role]["template"]["metadata"]["labels"] for role in ("Launcher", "Worker")}
        assert "azure.workload.identity/use" not in found["Launcher"]
        worker_labels: dict[str, str] = found["Worker"]
        return worker_labels

    assert labels(cloud="aks", workers__service_account="trainer")["azure.workload.identity/use"] == "true"
    assert "azure.workload.identity/use" not in labels(cloud="aks")
    assert "azure.workload.identity/use" not in labels(cloud="gke", workers__service_account="trainer")
