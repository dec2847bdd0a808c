"""Jobs without contradictions that a cluster, or one kind of job, cannot run."""

import pytest

from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job


@pytest.mark.parametrize(
    "keys",
    [
        {"image": ""},
        {"data": {"local": "./data"}},
        {"checkpoint": "file:///tmp/checkpoints"},
        {"checkpoint": "file:///elsewhere", "output": "results"},
    ],
)
def test_what_a_local_run_may_do_and_a_cluster_not(keys: dict[str, object]) -> None:
    given: dict[str, object] = {"name": "a", "image": "b", "command": ["c"]} | keys
    spec = read_job(None, {key: value for key, value in given.items() if value})
    with pytest.raises(InvalidInputError):
        render(spec)


def test_an_image_is_needed() -> None:
    with pytest.raises(InvalidInputError, match="image: is missing"):
        render(read_job(None, {"name": "a", "command": ["b"]}))


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"launcher": "launch"}, "launcher"),
        ({"launcher__memory": "4Gi"}, "launcher"),
        ({"launcher_node_labels": {"pool": "cpu"}}, "launcher_node_labels"),
        ({"priority__launcher": "high"}, "priority.launcher"),
        ({"batch": 1024}, "batch"),
        ({"checkpoint": "s3://bucket"}, "checkpoint"),
        ({"monitor": True}, "monitor"),
        ({"standby": "off"}, "standby"),
        ({"elastic_timeout": 60}, "elastic_timeout"),
        ({"cooldown": [1, 2]}, "cooldown"),
        ({"gloo_timeout": 60}, "gloo_timeout"),
        ({"read_nodes": True}, "read_nodes"),
        ({"slow_workers": "replace"}, "slow_workers"),
        ({"log_format": "json"}, "log_format"),
        ({"network__api_ports": [8443]}, "network.api_ports"),
        ({"network__api_server": ["10.0.0.5/32"]}, "network.api_server"),
        ({"network__monitoring_namespace": "metrics"}, "network.monitoring_namespace"),
        ({"restarts": 3}, "restarts"),
        ({"restarts": 0}, "restarts"),
        ({"workers": "1:2:4"}, "workers.start"),
    ],
)
def test_a_pytorchjob_drops_nothing_in_silence(keys: dict[str, object], path: str) -> None:
    spec = job(**keys)
    assert render(spec), "an MPIJob has it"
    with pytest.raises(InvalidInputError) as refused:
        render(spec, Target.PYTORCHJOB)
    (problem,) = refused.value.problems
    assert problem.path == path
    assert "has no effect" in str(problem)
    assert "--as mpijob" in problem.way_out


def test_a_pytorchjob_names_all_of_them_at_once() -> None:
    with pytest.raises(InvalidInputError) as refused:
        render(job(launcher="launch", batch=8, monitor=True), Target.PYTORCHJOB)
    assert {problem.path for problem in refused.value.problems} == {"launcher", "batch", "monitor"}


def test_what_a_pytorchjob_would_have_anyway_may_be_said() -> None:
    assert render(job(launcher="horovodrun", standby="init", monitor=False, log_format="text"), Target.PYTORCHJOB)


def test_kueue_leaves_a_pytorchjob_no_way_out_but_an_mpijob() -> None:
    """The queue needs a checkpoint, which nobody would write."""
    spec = job(queue={"system": "kueue", "name": "q", "whole": True}, checkpoint="s3://bucket")
    with pytest.raises(InvalidInputError, match=r"with queue\.whole a job needs it"):
        render(spec, Target.PYTORCHJOB)


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"launcher": "launch"}, "launcher.kind"),
        ({"launcher": "launch", "engine": "torch"}, "engine"),
        ({"autoscale": "shared", "workers__gpus": 1}, "autoscale"),
        ({"restarts": 3}, "restarts"),
        ({"queue": {"system": "kueue", "name": "q", "whole": True}, "checkpoint": "s3://bucket"}, "queue.whole"),
        ({"workers": {"max": 2, "floor": 1}}, "workers.floor"),
    ],
)
def test_legacy_refuses_what_it_cannot_hold(keys: dict[str, object], path: str) -> None:
    spec = job(**keys)
    assert render(spec), "an MPIJob has it"
    with pytest.raises(InvalidInputError) as refused:
        render(spec, Target.MPIJOB_V1)
    assert [problem.path for problem in refused.value.problems] == [path]


@pytest.mark.parametrize("target", [Target.MPIJOB_V1, Target.PYTORCHJOB])
def test_the_training_operator_is_given_no_limit_that_a_lost_worker_would_reach(target: Target) -> None:
    (owner,) = [each for each in render(job(), target) if each["kind"] in {"MPIJob", "PyTorchJob"}]
    assert "backoffLimit" not in owner["spec"]["runPolicy"]


def test_a_legacy_job_may_say_that_no_launcher_follows_a_failed_one() -> None:
    assert render(job(restarts=0), Target.MPIJOB_V1)


def test_gloo_uses_the_interface_that_is_named_unless_the_environment_names_another() -> None:
    assert _gloo(network__interface="net1") == ["net1"]
    assert _gloo(network__interface="net1", env={"GLOO_SOCKET_IFNAME": "net2"}) == ["net2"]


def _gloo(**keys: object) -> list[str]:
    (owner,) = [each for each in render(job(**keys), Target.PYTORCHJOB) if each["kind"] == "PyTorchJob"]
    (container,) = owner["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    return [one["value"] for one in container["env"] if one["name"] == "GLOO_SOCKET_IFNAME"]
