"""The verbs that change a job, as a person types them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hvd_elastic.cli import cli
from hvd_elastic.client.connection.cluster_errors import ClusterError
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import ENV_NAMESPACE, HvdElasticError
from testbed.kube_api import JOBS, PODS, Request, Status, pod
from tests.hvd_elastic.client.operations.jobs_cluster import (
    ACCOUNTS,
    CLAIMS,
    DEPLOYMENTS,
    DESCRIPTION,
    NAMESPACES,
    JobsCluster,
    named,
)
from tests.hvd_elastic.client.operations.test_deletion import labelled
from tests.hvd_elastic.client.operations.test_restart import launcher


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobsCluster]:
    served = JobsCluster()
    monkeypatch.setenv("KUBECONFIG", str(served.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.delenv(ENV_NAMESPACE, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(DESCRIPTION)
    yield served
    served.stop()


def verb(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def failure(*words: str) -> HvdElasticError:
    error = verb(*words).exception
    assert isinstance(error, HvdElasticError)
    return error


def test_submit_says_what_it_did(cluster: JobsCluster) -> None:
    first, again = verb("submit", "job.yaml"), verb("submit", "job.yaml")
    assert first.stdout.splitlines()[0].split() == ["OBJECT", "CHANGE"]
    assert "mpijob/bert                     created" in first.stdout
    assert {line.split()[1] for line in again.stdout.splitlines()[1:]} == {"unchanged"}
    assert "mpijob.kubeflow.org/bert" in verb("submit", "job.yaml", "-o", "name").stdout.splitlines()
    assert json.loads(verb("submit", "job.yaml", "-o", "json").stdout)["items"][-1]["kind"] == "MPIJob"
    assert len(list(yaml.safe_load_all(verb("submit", "job.yaml", "-o", "yaml").stdout))) == 7


def test_dry_run_of_the_client_needs_no_cluster(cluster: JobsCluster) -> None:
    shown = verb("submit", "job.yaml", "--dry-run", "client")
    assert [one["kind"] for one in yaml.safe_load_all(shown.stdout)][-1] == "MPIJob"
    assert cluster.requests == []


def test_dry_run_of_the_server_writes_nothing(cluster: JobsCluster) -> None:
    shown = verb("submit", "job.yaml", "--dry-run", "server")
    assert "created" in shown.stdout
    assert "nothing was written" in shown.stderr
    assert cluster.written() == []


def test_diff_ends_as_kubectls_does(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    same = verb("submit", "job.yaml", "--diff")
    assert (same.exit_code, same.stdout) == (0, "")
    other = verb("submit", "job.yaml", "--diff", "--image", "train:2")
    assert other.exit_code == 1
    assert "+            image: train:2" in other.stdout
    cluster.stop()
    error = failure("submit", "job.yaml", "--diff")
    assert isinstance(error, ClusterError)
    assert error.exit_code == 2


def test_what_patches_change_is_told_beside_the_result(cluster: JobsCluster) -> None:
    patch = "{target: {kind: MPIJob}, patch: {spec: {runPolicy: {backoffLimit: 9}}}}"
    Path("job.yaml").write_text(f"{DESCRIPTION}patches: [{patch}, {patch}]\n")
    for words in (["generate"], ["submit", "--dry-run", "client"], ["submit"], ["submit", "--diff"]):
        ran = verb(*words, "job.yaml")
        assert ran.stderr.splitlines()[0] == "patches[0] changes MPIJob/bert"
        assert ran.stderr.splitlines()[1].startswith("patches[1] changes nothing in MPIJob/bert")
        assert "patches[" not in ran.stdout.replace("hvd-elastic.dev/job", "")
    assert cluster.job()["spec"]["runPolicy"]["backoffLimit"] == 9


def test_an_overlay_in_place_of_a_file(cluster: JobsCluster, monkeypatch: pytest.MonkeyPatch, kustomize: Path) -> None:
    monkeypatch.setenv("PATH", str(kustomize.parent))
    verb("generate", "job.yaml", "--output-dir", "base")
    Path("prod").mkdir()
    overlay = {
        "resources": ["../base"],
        "images": [{"name": "train", "newTag": "2"}],
        "labels": [{"pairs": {"a": "b"}}],
    }
    Path("prod/kustomization.yaml").write_text(yaml.safe_dump(overlay))
    different = verb("submit", "-k", "prod", "--diff")
    assert different.exit_code == 1
    assert "+            image: train:2" in different.stdout
    assert different.stderr.startswith("prod changes ServiceAccount/bert-discovery, Role/")
    assert cluster.written() == []
    printed = list(yaml.safe_load_all(verb("submit", "-k", "prod", "--dry-run", "client").stdout))
    verb("submit", "-k", "prod")
    assert cluster.job()["metadata"]["labels"]["a"] == "b"
    assert cluster.job()["spec"] == printed[-1]["spec"]
    assert (verb("submit", "-k", "prod", "--diff").exit_code, cluster.job()["kind"]) == (0, "MPIJob")
    assert "namespace: 'default': is not 'team'" in str(failure("submit", "-k", "prod", "-n", "team"))


@pytest.mark.parametrize("more", [["job.yaml"], ["--image", "train:2"], ["--", "python", "other.py"]])
def test_an_overlays_job_is_that_of_its_base(cluster: JobsCluster, more: list[str]) -> None:
    Path("prod").mkdir()
    refused = verb("submit", "-k", "prod", *more)
    assert (refused.exit_code, cluster.requests) == (2, [])
    assert "-k takes neither FILE nor keys of the job" in refused.stderr


def test_the_namespace_is_one(cluster: JobsCluster) -> None:
    assert "namespace: 'team': is not 'default'" in str(
        failure("submit", "job.yaml", "--namespace", "team", "-n", "default")
    )
    cluster.put(NAMESPACES, named("team"))
    path = JOBS.replace("default", "team")
    for kind in list(cluster.objects):
        cluster.objects.setdefault(kind.replace("/default/", "/team/"), {})
    verb("submit", "job.yaml", "-n", "team")
    assert list(cluster.objects[path]) == ["bert"]


def test_a_change_of_a_job_that_has_run_is_told_to_count_later(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    cluster.change_job(status={"startTime": "2026-01-01T00:00:00Z"})
    assert "hvd-elastic delete bert, and submit it again" in verb("submit", "job.yaml", "--image", "train:2").stderr


def test_waiting_ends_with_the_first_step(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    cluster.annotate(status=LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, step=1).to_json())
    done = verb("submit", "job.yaml", "--wait")
    assert done.exit_code == 0
    assert "bert trains" in done.stderr


def test_whoever_stops_waiting_leaves_the_job_alone(cluster: JobsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_seen: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hvd_elastic.client.operations.first_step.progress_of", interrupt)
    stopped = verb("submit", "job.yaml", "--wait")
    assert stopped.exit_code == 130
    assert "no longer waiting; bert goes on" in stopped.stderr
    assert "bert" in cluster.objects[JOBS]


def test_delete_says_what_goes_and_needs_a_yes(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    cluster.put(CLAIMS, labelled("bert-output", namespace="default"))
    refused = verb("delete", "bert")
    assert refused.exit_code == 2
    assert "say --yes" in refused.stderr
    assert "goes: mpijob/bert, serviceaccount/bert-discovery" in refused.stderr
    assert "stays (--volumes deletes it): persistentvolumeclaim/bert-output" in refused.stderr
    assert "bert" in cluster.objects[JOBS]
    done = verb("delete", "bert", "--yes")
    assert "mpijob/bert" in done.stdout.splitlines()
    assert not cluster.objects[JOBS]
    assert list(cluster.objects[CLAIMS]) == ["bert-output"]


def test_delete_deletes_nothing_if_one_name_is_wrong(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    assert "did you mean bert?" in str(failure("delete", "bert", "bret", "--yes"))
    assert "bert" in cluster.objects[JOBS]
    assert not any(request.method == "DELETE" for request in cluster.requests)


def test_suspend_resume_and_scale(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    cluster.annotate(begun="true")
    cluster.change_job(status={"startTime": "2026-01-01T00:00:00Z"})
    suspended = verb("suspend", "bert").stderr
    assert "bert is suspended\n" in suspended
    assert "begin with its first step" in suspended
    assert verb("scale", "bert", "2").stderr.splitlines() == [
        "bert: from 4 to 2 workers",
        "it is suspended, so this counts when it is resumed",
    ]
    assert "bert is resumed; its pods come next: hvd-elastic status bert" in verb("resume", "bert").stderr
    assert verb("resume", "bert").stderr == "bert is not suspended\n"


def with_pods(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    cluster.change_job(status={"startTime": "2026-01-01T00:00:00Z"})
    for index, phase in enumerate(("Running", "Running", "Succeeded")):
        one = pod(index, job="bert", phase=phase)
        one["spec"]["terminationGracePeriodSeconds"] = 60 + index
        cluster.put(PODS, one)


def test_what_ends_pods_says_how_many_and_how_long_they_may_take(cluster: JobsCluster) -> None:
    with_pods(cluster)
    assert verb("suspend", "bert").stderr == "bert is suspended; 2 pods, each with 61 s to end\n"
    assert "bert: waiting for 2 pods, each with 61 s to end\n" in verb("delete", "bert", "--yes").stderr


RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def with_operator(cluster: JobsCluster, *, may_resume: bool) -> None:
    cluster.objects.update({"/apis/apps/v1/deployments": {}, f"{RBAC}/clusterrolebindings": {}})
    rules = [
        {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs/status"], "verbs": ["update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
    ]
    cluster.put(f"{RBAC}/clusterroles", named("operator", rules=rules))
    subject = {"kind": "ServiceAccount", "namespace": "mpi-operator", "name": "driver"}
    cluster.put(f"{RBAC}/clusterrolebindings", named("b", roleRef={"name": "operator"}, subjects=[subject]))
    cluster.answers[REVIEWS] = lambda _request: {"status": {"allowed": may_resume}}


def test_resume_warns_of_a_right_only_if_it_is_lacking(cluster: JobsCluster) -> None:
    with_pods(cluster)

    def resumed() -> str:
        verb("suspend", "bert")
        return verb("resume", "bert").stderr

    with_operator(cluster, may_resume=True)
    assert "operator-role" not in resumed()
    with_operator(cluster, may_resume=False)
    lacking = resumed()
    assert "mpi-operator/driver may not update jobs/status" in lacking
    assert "hvd-elastic operator-role -n mpi-operator --service-account driver" in lacking

    def fault(request: Request) -> None:
        if request.path == REVIEWS:
            raise Status(403)

    cluster.fault = fault
    assert "if workers run and no launcher comes" in resumed()
    cluster.fault = lambda request: None
    cluster.answers["/version"] = lambda _request: {"gitVersion": "v1.36.5"}
    assert "operator-role" not in resumed()


def test_scale_asks_where_kueue_would_restart_the_job(cluster: JobsCluster) -> None:
    Path("queued.yaml").write_text(
        f"{DESCRIPTION}queue: {{system: kueue, name: gpus, whole: true}}\ncheckpoint: s3://b/jobs\n"
    )
    verb("submit", "queued.yaml")
    refused = verb("scale", "bert", "2")
    assert refused.exit_code == 2
    assert "in the queue gpus: Kueue stops all of it" in refused.stderr
    assert "say --yes" in refused.stderr
    assert "hvd-elastic.dev/wanted-workers" not in cluster.job()["metadata"]["annotations"]
    assert verb("scale", "bert", "2", "--yes").stderr == "bert: from 4 to 2 workers\n"
    assert cluster.job()["metadata"]["annotations"]["hvd-elastic.dev/wanted-workers"] == "2"


def test_restart_asks_only_if_training_is_lost(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    cluster.annotate(begun="true")
    cluster.put(PODS, launcher("bert-launcher-a"))
    refused = verb("restart", "bert")
    assert refused.exit_code == 2
    assert "loses all training since the job's start" in refused.stderr
    assert cluster.objects[PODS]
    assert "gets a new launcher" in verb("restart", "bert", "--yes").stderr
    assert not cluster.objects[PODS]


@pytest.mark.parametrize(
    "words", [["suspend"], ["resume"], ["scale", "2"], ["restart"], ["delete"]], ids=lambda words: words[0]
)
def test_a_job_that_is_not_there(cluster: JobsCluster, words: list[str]) -> None:
    verb("submit", "job.yaml")
    error = failure(words[0], "bret", *words[1:])
    assert "did you mean bert?" in str(error)
    assert error.exit_code == 2


def test_as_somebody_else(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml", "--as", "ann")

    def who(request: Request) -> str:
        return request.headers["Impersonate-User"]

    assert {who(request) for request in cluster.requests} == {"ann"}
    assert cluster.objects[ACCOUNTS]


def test_tensorboard_says_how_to_reach_it_and_removes_it(cluster: JobsCluster) -> None:
    cluster.put(CLAIMS, named("results", spec={"accessModes": ["ReadWriteOnce"]}))
    verb("submit", "job.yaml", "--output", "results")
    assert [one["kind"] for one in yaml.safe_load_all(verb("tensorboard", "bert", "--dry-run", "client").stdout)] == [
        "NetworkPolicy",
        "Deployment",
    ]
    assert "only checked" in verb("tensorboard", "bert", "--dry-run", "server").stderr
    assert not cluster.objects[DEPLOYMENTS]
    made = verb("tensorboard", "bert", "--port", "7007", "--context", "c")
    assert made.stdout.splitlines() == [
        "kubectl --context c port-forward -n default deployment/bert-tensorboard 7007:6006",
        "http://localhost:7007",
    ]
    assert "deployment/bert-tensorboard created" in made.stderr
    assert "results is ReadWriteOnce" in made.stderr
    names = ["networkpolicy.networking.k8s.io/bert.tensorboard", "deployment.apps/bert-tensorboard"]
    assert verb("tensorboard", "bert", "-o", "name").stdout.splitlines() == names
    assert json.loads(verb("tensorboard", "bert", "-o", "json").stdout)["items"][-1]["kind"] == "Deployment"
    assert "would go" in verb("tensorboard", "bert", "--delete", "--dry-run", "client").stdout
    assert verb("tensorboard", "bert", "--delete", "-o", "name").stdout.splitlines() == names[::-1]
    again = verb("tensorboard", "bert", "--delete")
    assert (again.stdout, again.exit_code) == ("", 0)
    assert "bert has no TensorBoard" in again.stderr


def test_tensorboard_of_a_job_without_output_is_an_error(cluster: JobsCluster) -> None:
    verb("submit", "job.yaml")
    assert failure("tensorboard", "bert").exit_code == 2
    assert verb("tensorboard", "bert", "--delete", "--image", "board:2").exit_code == 2
