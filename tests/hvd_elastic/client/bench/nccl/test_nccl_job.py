"""The MPIJob of nccl-tests: where it runs, what it starts, and what cannot be."""

import itertools
from typing import Any

import pytest

from hvd_elastic.client.bench.nccl.nccl_job import NcclRun, nccl_job
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.admission import errors, restricted


def spec(**values: object) -> JobSpec:
    workers = {"min": 1, "max": 2, "gpus": 8, "efa": 4, "memory": "64Gi"}
    given = {"name": "bert", "image": "train:1", "cloud": "eks", "instance_type": "p4d.24xlarge", "workers": workers}
    return read_job(None, {**given, "command": ["python", "train.py"], **values})


def roles(manifest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    found = manifest["spec"]["mpiReplicaSpecs"]
    return found["Launcher"]["template"]["spec"], found["Worker"]["template"]["spec"]


def test_one_rank_for_each_gpu_once_all_workers_are_there() -> None:
    made = nccl_job(spec(), NcclRun(smallest=1024, largest=4096, program="/opt/nccl-tests/all_reduce_perf"))
    launcher, worker = roles(made)
    command = launcher["containers"][0]["command"]
    assert command[:3] == ["mpirun", "-np", "16"]
    end = ["/opt/nccl-tests/all_reduce_perf", "-b", "1024", "-e", "4096", "-f", "2", "-g", "1", "-n", "20", "-w", "5"]
    assert command[-len(end) :] == end
    assert made["spec"]["slotsPerWorker"] == 8
    assert made["spec"]["launcherCreationPolicy"] == "WaitForWorkersReady"
    assert made["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    assert made["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] == 3
    assert worker["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]


def test_workers_are_where_the_job_has_them_and_get_the_same() -> None:
    description = spec()
    _, worker = roles(nccl_job(description, NcclRun()))
    (job,) = (one for one in render(description) if one["kind"] == "MPIJob")
    _, training = roles(job)
    for key in ("tolerations", "priorityClassName", "securityContext"):
        assert worker[key] == training[key]
    assert worker["affinity"]["nodeAffinity"] == training["affinity"]["nodeAffinity"]
    assert worker["containers"][0]["resources"] == training["containers"][0]["resources"]


def test_its_environment_is_that_of_nccl_and_the_log_is_on() -> None:
    launcher, worker = roles(nccl_job(spec(env={"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN", "SEED": "1"}), NcclRun()))
    given = {one["name"]: one["value"] for one in worker["containers"][0]["env"]}
    assert given["NCCL_DEBUG"] == "INFO"
    assert given["NCCL_ALGO"] == "Ring"
    assert given["FI_PROVIDER"] == "efa"
    assert "SEED" not in given
    command = launcher["containers"][0]["command"]
    forwarded = {after for word, after in itertools.pairwise(command) if word == "-x"}
    assert forwarded == {"PATH", "LD_LIBRARY_PATH", *given}


@pytest.mark.parametrize(
    "more", [{}, {"queue": {"system": "volcano", "name": "q"}}, {"cloud": "gke", "gpu_type": "l4"}]
)
def test_an_api_server_takes_it(more: dict[str, Any]) -> None:
    """By the operator's own schema, and Pod Security `restricted`."""
    workers = {"max": 2, "gpus": 1}
    made = nccl_job(spec(workers=workers, instance_type=None, **more), NcclRun())
    assert errors(made) == []
    assert [restricted(pod) for pod in roles(made)] == [[], []]


def test_it_is_no_job_of_ours_and_has_a_name_of_its_own() -> None:
    made = nccl_job(spec(), NcclRun())
    assert made["metadata"]["name"] == "bert-nccl"
    assert ANNOTATION_SPEC not in made["metadata"].get("annotations", {})
    assert made["metadata"]["labels"]["app.kubernetes.io/part-of"] == "bert-nccl"


def test_every_reason_why_not() -> None:
    with pytest.raises(InvalidInputError) as caught:
        nccl_job(read_job(None, {"name": "a" * 50, "command": ["x"], "workers": 2}), NcclRun())
    assert [problem.path for problem in caught.value.problems] == ["image", "workers.gpus", "name"]
    with pytest.raises(InvalidInputError, match=r"workers\.max: 1: one GPU has nobody to send to"):
        nccl_job(spec(workers={"max": 1, "gpus": 1}, instance_type=None), NcclRun())
