"""A job is scaled to each size, and to the one that it had, whatever happens."""

from typing import TYPE_CHECKING

import pytest

from hvd_elastic.client.operations.first_step import JobFailedError
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.client.operations.suspension import suspend
from hvd_elastic.client.profile.size_visits import visit_sizes
from hvd_elastic.discovery.ledger.entries import WorldChanged, to_line
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import LEDGER_KEY
from tests.hvd_elastic.client.operations.jobs_cluster import MAPS, JobsCluster, spec

if TYPE_CHECKING:
    from collections.abc import Callable

WANTED = "hvd-elastic.dev/wanted-workers"


class Follower:
    """Does at each look what the sidecar does: the job takes the size that is wanted, and trains on."""

    def __init__(self, cluster: JobsCluster) -> None:
        self.cluster, self.step = cluster, 0
        self.sizes = [4]
        self.then: Callable[[], None] = lambda: None

    def look(self, _seconds: float = 0.0) -> None:
        wanted = int(self.cluster.job()["metadata"]["annotations"].get(WANTED, "4"))
        if wanted != self.sizes[-1]:
            self.sizes.append(wanted)
        self.step += 8
        status = LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, workers=wanted, step=self.step)
        self.cluster.annotate(status=status.to_json())
        self.cluster.change_job(spec={"mpiReplicaSpecs": {"Worker": {"replicas": wanted}}})
        self.then()


@pytest.fixture
def follower(cluster: JobsCluster) -> Follower:
    submit(cluster.client(), spec())
    made = Follower(cluster)
    made.look()
    return made


def visit(follower: Follower, *sizes: int) -> list[str]:
    told: list[str] = []
    visit_sizes(
        follower.cluster.client(),
        "bert",
        sizes,
        steps=20,
        report=lambda one: told.append(str(one)),
        sleep=follower.look,
    )
    return told


def test_each_size_in_turn_and_back(follower: Follower) -> None:
    told = visit(follower, 1, 2)
    assert follower.sizes == [4, 1, 2, 4]
    assert "0 of 20 steps with 1 worker" in told
    assert "24 of 20 steps with 2 workers" in told


def test_it_ends_when_the_ledger_has_the_former_size(follower: Follower) -> None:
    """The ledger is written up to some seconds after the status."""
    seen = [4, 4, 4]

    def write_late() -> None:
        seen.append(follower.sizes[-1])
        worlds = [WorldChanged(unix=1.0, workers=("w",) * size, step=1) for size in seen[:-2]]
        ledger = {LEDGER_KEY: "\n".join(map(to_line, worlds))}
        follower.cluster.put(MAPS, {"metadata": {"name": "bert-ledger"}, "data": ledger})

    follower.then = write_late
    visit(follower, 1)
    assert seen[:-2][-1] == 4
    assert seen.index(1) < len(seen) - 3, "the ledger had the other size before"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_the_former_size_comes_back_after_an_interruption(follower: Follower, error: type[BaseException]) -> None:
    def interrupt() -> None:
        if follower.sizes[-1] == 2:
            raise error

    follower.then = interrupt
    with pytest.raises(error):
        visit(follower, 1, 2, 3)
    assert follower.cluster.job()["metadata"]["annotations"][WANTED] == "4"


def test_a_job_that_ends_meanwhile(follower: Follower) -> None:
    def end() -> None:
        if follower.sizes[-1] == 2:
            follower.cluster.change_job(status={"completionTime": "2026-01-01T00:00:00Z"})

    follower.then = end
    with pytest.raises(JobFailedError, match="has failed before it did 20 steps with 2 workers"):
        visit(follower, 2)


def test_nothing_changes_if_one_size_is_outside(follower: Follower) -> None:
    with pytest.raises(JobStateError, match="so not 5"):
        visit(follower, 2, 5)
    assert WANTED not in follower.cluster.job()["metadata"]["annotations"]


def test_a_suspended_job_is_left_alone(follower: Follower) -> None:
    suspend(follower.cluster.client(), "bert")
    with pytest.raises(JobStateError, match="hvd-elastic resume bert"):
        visit(follower, 2)
    assert WANTED not in follower.cluster.job()["metadata"]["annotations"]


def test_a_job_that_kueue_would_restart_for_each_size(follower: Follower) -> None:
    follower.cluster.change_job(metadata={"labels": {"kueue.x-k8s.io/queue-name": "gpus"}})
    with pytest.raises(JobStateError, match="in the queue gpus, and Kueue restarts it for each size"):
        visit(follower, 2)
    assert WANTED not in follower.cluster.job()["metadata"]["annotations"]
