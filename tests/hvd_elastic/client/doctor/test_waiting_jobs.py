"""Jobs that the MPI Operator leaves alone, as `doctor` reads them: two looks, where there is something to do."""

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.doctor.fact_reader import FactReader
from hvd_elastic.discovery.rules.operator_lag import LATE_SECONDS, OperatorWork
from testbed.kube_api import JOBS, PODS, KubeApi
from tests.hvd_elastic.client.report.objects import mpijob, pod


@pytest.mark.parametrize(("left", "waits"), [(3, {}), (4, {"train": OperatorWork(surplus=3)})])
def test_a_job_at_which_nothing_moves_waits(
    served: KubeApi, cluster: ClusterClient, left: int, waits: dict[str, OperatorWork]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        for index in range(left, 4):
            served.remove(PODS, f"train-worker-{index}")

    served.put(JOBS, mpijob(replicas=1))
    served.put(JOBS, mpijob("other", replicas=1))
    for index in range(4):
        served.put(PODS, pod(f"train-worker-{index}"))
    served.put(PODS, pod("other-worker-0"))
    assert FactReader(cluster, "default", sleep=sleep).read_waiting_jobs() == waits
    assert slept == [LATE_SECONDS]


def test_where_nothing_is_to_be_done_nobody_waits(served: KubeApi, cluster: ClusterClient) -> None:
    served.put(JOBS, mpijob(replicas=1))
    served.put(PODS, pod("train-worker-0"))
    assert FactReader(cluster, "default", sleep=lambda _: pytest.fail("it waits")).read_waiting_jobs() == {}
