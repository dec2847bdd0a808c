"""A name that is not there leads to what was meant."""

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient, ForbiddenError
from hvd_elastic.client.job_lookup import ForeignJobError, NoOperatorError, UnknownJobError, find_job, list_jobs
from testbed.kube_api import JOBS, KubeApi, Request, Status
from tests.hvd_elastic.client.report.objects import ALL_JOBS, mpijob


def test_a_job_is_found(served: KubeApi, cluster: ClusterClient) -> None:
    served.put(JOBS, mpijob("train"))
    found = find_job(cluster, "train", "default")
    assert found.job["metadata"]["name"] == "train"


def test_a_misspelt_name_leads_to_the_nearest_ones(served: KubeApi, cluster: ClusterClient) -> None:
    for name in ("train-a", "train-b", "other"):
        served.put(JOBS, mpijob(name))
    with pytest.raises(UnknownJobError, match=r"no job trian-a in namespace default: did you mean train-a"):
        find_job(cluster, "trian-a", "default")


def test_a_job_of_another_namespace_is_named(served: KubeApi, cluster: ClusterClient) -> None:
    elsewhere = mpijob("train")
    elsewhere["metadata"]["namespace"] = "team"
    served.put(ALL_JOBS, elsewhere)
    with pytest.raises(UnknownJobError, match="in namespace default, but in team: choose it with -n"):
        find_job(cluster, "train", "default")


def test_who_may_not_look_elsewhere_is_still_told(served: KubeApi, cluster: ClusterClient) -> None:
    def only_here(request: Request) -> None:
        if request.path == ALL_JOBS:
            raise Status(403)

    served.fault = only_here
    with pytest.raises(UnknownJobError, match="list -A shows all jobs"):
        find_job(cluster, "train", "default")


def test_somebody_elses_mpijob_is_not_a_job(served: KubeApi, cluster: ClusterClient) -> None:
    served.put(JOBS, mpijob("theirs", ours=False))
    with pytest.raises(ForeignJobError, match="not a job of hvd-elastic"):
        find_job(cluster, "theirs", "default")
    assert list(list_jobs(cluster, "default")) == []


def remove_mpijobs(served: KubeApi) -> None:
    for path in [path for path in served.objects if path.startswith("/apis/kubeflow.org/")]:
        del served.objects[path]


def test_a_cluster_without_the_operator(served: KubeApi, cluster: ClusterClient) -> None:
    remove_mpijobs(served)
    with pytest.raises(NoOperatorError, match=r"does not serve kubeflow.org\): install the MPI Operator"):
        find_job(cluster, "train", "default")


def test_mpijobs_of_a_version_that_cannot_be_read_are_not_denied(served: KubeApi, cluster: ClusterClient) -> None:
    remove_mpijobs(served)
    served.objects[JOBS.replace("v2beta1", "v3")] = {}
    with pytest.raises(
        NoOperatorError, match=r"no MPIJobs that can be read \(.*serves kubeflow.org as v3, .*reads v2beta1, v1\)"
    ):
        list(list_jobs(cluster, "default"))


def test_who_may_not_read_jobs_is_told_so(served: KubeApi, cluster: ClusterClient) -> None:
    def refuse(_request: Request) -> None:
        raise Status(403)

    served.fault = refuse
    with pytest.raises(ForbiddenError):
        find_job(cluster, "train", "default")
