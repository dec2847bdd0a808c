"""Who is best, and what is said of those that cannot be compared."""

from collections.abc import Callable

import pytest

from hvd_elastic.client.sweep.sweep_control import stop_sweep
from hvd_elastic.client.sweep.sweep_submission import submit_sweep
from hvd_elastic.client.sweep.sweep_table import Best, sweep_status
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from testbed.kube_api import JOBS
from tests.hvd_elastic.client.sweep.sweeps import SweepCluster, sweep


@pytest.fixture
def tell(cluster: SweepCluster) -> Callable[..., None]:
    submit_sweep(cluster.client(), sweep(at_once=3))
    names = cluster.jobs

    def status(place: int, loss: float | None, **metrics: float) -> None:
        live = LiveStatus(unix=1.0, activity=Activity.ENDED, since=1.0, step=10 * place, loss=loss, metrics=metrics)
        cluster.change_job(names[place], metadata={"annotations": {"hvd-elastic.dev/status": live.to_json()}})

    return status


def order(cluster: SweepCluster, metric: str, best: Best) -> list[str]:
    rows = sweep_status(cluster.client(), "bert", metric=metric, best=best).rows
    return [f"{row.point['lr']} {row.point['batch.global']}" for row in rows]


def test_the_best_is_first_and_who_has_no_value_last(cluster: SweepCluster, tell: Callable[..., None]) -> None:
    tell(0, 0.5, accuracy=0.25)
    tell(1, None, accuracy=0.75)
    tell(2, 0.25)
    assert order(cluster, "loss", Best.MIN) == ["0.01 256", "0.1 256", "0.1 512", "0.01 512"]
    assert order(cluster, "accuracy", Best.MAX) == ["0.1 512", "0.1 256", "0.01 256", "0.01 512"]


def test_states(cluster: SweepCluster, tell: Callable[..., None]) -> None:
    names = cluster.jobs
    cluster.end(names[0])
    cluster.remove(JOBS, names[1])
    cluster.change_job(names[2], spec={"runPolicy": {"suspend": True}})
    rows = {row.job: row for row in sweep_status(cluster.client(), "bert").rows}
    assert [rows[name].state for name in names] == ["succeeded", "gone", "suspended", "queued"]


def test_a_sweep_that_was_stopped_says_so(cluster: SweepCluster, tell: Callable[..., None]) -> None:
    assert not sweep_status(cluster.client(), "bert").stopped
    stop_sweep(cluster.client(), "bert", sleep=lambda _seconds: None)
    found = sweep_status(cluster.client(), "bert")
    assert (found.stopped, found.at_once) == (True, 3)
    assert {row.state for row in found.rows} == {"queued"}
