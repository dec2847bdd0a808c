"""What a notebook does with a cluster, without the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic import Cluster
from hvd_elastic.client.sweep.sweep_table import Best
from hvd_elastic.mpijob.contract import ENV_NAMESPACE
from hvd_elastic.mpijob.job_reader import read_job
from testbed.kube_api import JOBS
from tests.hvd_elastic.client.operations.jobs_cluster import DESCRIPTION, MAPS
from tests.hvd_elastic.client.report.objects import ALL_JOBS, CONFIG_MAPS, NOW, condition, ledger_map, live, mpijob
from tests.hvd_elastic.client.sweep.sweeps import SweepCluster


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepCluster]:
    api = SweepCluster()
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.delenv(ENV_NAMESPACE, raising=False)
    yield api
    api.stop()


def test_a_sweep_from_its_submission_to_its_end(served: SweepCluster) -> None:
    cluster = Cluster()
    grid: dict[str, list[float]] = {"lr": [0.1, 0.01], "batch.global": [256, 512]}
    assert len(cluster.sweep(DESCRIPTION, grid, at_once=2, dry_run=True).created) == 4
    assert not served.jobs
    created = cluster.sweep(DESCRIPTION, grid, at_once=2).created
    assert created == set(served.jobs)
    again = cluster.sweep(read_job(DESCRIPTION), _points(grid), at_once=2)
    assert again.created == frozenset()
    status = cluster.sweep_status("bert", metric="accuracy", best=Best.MAX)
    assert [row.point for row in status.rows] == _points(grid)
    assert (status.at_once, status.stopped) == (2, False)
    cluster.stop_sweep("bert")
    assert cluster.sweep_status("bert").stopped
    assert cluster.resume_sweep("bert").runner
    gone: list[str] = []
    cluster.delete_sweep("bert", report=gone.append)
    assert not served.jobs
    assert gone[-1] == "configmap/bert-sweep"


def _points(grid: dict[str, list[float]]) -> list[dict[str, str]]:
    first, second = grid.values()
    return [{"lr": str(lr), "batch.global": str(batch)} for lr in first for batch in second]


def test_what_jobs_cost(served: SweepCluster) -> None:
    served.objects[ALL_JOBS] = {}
    job = mpijob(status=live(), conditions=[condition("Succeeded")], ended=NOW - 50)
    for path in (JOBS, ALL_JOBS):
        served.put(path, job)
    served.put(CONFIG_MAPS, ledger_map())
    cluster = Cluster()
    bill = cluster.cost("train")
    assert bill is not None
    assert bill.gpu_seconds > 0
    assert bill.currency == "USD"
    assert [one.name for one in cluster.costs(all_namespaces=True)] == ["train"]
    del served.objects[MAPS]["train-ledger"]
    told = cluster.cost("train")
    assert told is not None
    assert told.told is not None
    served.put(JOBS, mpijob())
    assert cluster.cost("train") is None
    assert cluster.costs() == []
