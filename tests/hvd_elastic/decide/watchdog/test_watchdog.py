"""When the MPI Operator is restarted, and when it is let be: the decision, and the loop over an API server."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.decide.watchdog.restart_decision import PATIENCE_SECONDS, REST_SECONDS, WaitingJob, to_restart_for
from hvd_elastic.decide.watchdog.watchdog import RESTARTED, Watchdog
from testbed.kube_api import EVENTS, JOBS, PODS, KubeApi, mpijob, pod
from tests.hvd_elastic.client.report.objects import event

LATE: Final = WaitingJob(name="team/job", uid="1", wait_seconds=PATIENCE_SECONDS, work="3 workers are too many")
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/mpi-operator/deployments"
NOW: Final = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("job", "tried", "since_restart", "restarts"),
    [
        (LATE, (), REST_SECONDS, True),
        (replace(LATE, wait_seconds=PATIENCE_SECONDS - 1), (), REST_SECONDS, False),
        (replace(LATE, is_refused=True), (), REST_SECONDS, False),
        (LATE, ("1",), REST_SECONDS, False),
        (LATE, ("2",), REST_SECONDS, True),
        (LATE, (), REST_SECONDS - 1, False),
    ],
)
def test_a_restart_has_a_reason_and_is_not_repeated(
    job: WaitingJob, tried: tuple[str, ...], since_restart: float, restarts: bool
) -> None:
    assert to_restart_for([job], tried=tried, since_restart=since_restart) == ((job,) if restarts else ())


class Watched:
    """A watchdog whose time a test moves, an operator, and a job with a worker too many."""

    def __init__(self, api: KubeApi) -> None:
        self.api, self.seconds = api, 0.0
        api.objects[DEPLOYMENTS] = {}
        template = {"metadata": {"labels": {"app": "mpi-operator"}}, "spec": {}}
        operator = {"metadata": {"name": "mpi-operator"}, "spec": {"template": template}}
        api.put(DEPLOYMENTS, {**operator, "status": {"availableReplicas": 1}})
        self.ask(1)
        for index in range(2):
            api.put(PODS, pod(index))
        self.watchdog = Watchdog(
            ClusterClient(Session(Login(server=f"http://127.0.0.1:{api.port}"))),
            namespace="mpi-operator",
            deployment="mpi-operator",
            clock=lambda: self.seconds,
            wall=lambda: NOW + timedelta(seconds=self.seconds),
        )

    def ask(self, replicas: int) -> None:
        job = mpijob(replicas=replicas)
        job["metadata"]["namespace"] = "default"
        self.api.put(JOBS, job)

    def turns(self, until: float) -> list[float]:
        """Take one each 20 s; when the operator was restarted."""
        restarts = []
        while self.seconds < until:
            self.seconds += 20
            if self.watchdog.turn():
                restarts.append(self.seconds)
        return restarts

    @property
    def restarted(self) -> str:
        found: dict[str, Any] = self.api.objects[DEPLOYMENTS]["mpi-operator"]["spec"]["template"]["metadata"]
        return str((found.get("annotations") or {}).get(RESTARTED, ""))


@pytest.fixture
def watched() -> Iterator[Watched]:
    api = KubeApi()
    yield Watched(api)
    api.stop()


def test_it_is_restarted_once_for_a_job_that_is_left_alone(watched: Watched) -> None:
    assert watched.turns(until=3 * REST_SECONDS) == [80.0]
    assert watched.restarted == "2026-11-28T12:01:20+00:00"


def test_another_time_has_to_pass_before_it_is_restarted_for_another_reason(watched: Watched) -> None:
    assert watched.turns(until=100) == [80.0]
    watched.ask(2)
    watched.turns(until=120)
    watched.ask(1)
    assert watched.turns(until=2 * REST_SECONDS) == [80.0 + REST_SECONDS]


def test_an_operator_that_works_is_let_be(watched: Watched) -> None:
    for index in range(2, 9):
        watched.api.put(PODS, pod(index))
    for index in reversed(range(1, 9)):
        assert watched.turns(until=watched.seconds + 40) == []
        watched.api.remove(PODS, f"job-worker-{index}")
    assert watched.turns(until=watched.seconds + 200) == []


def test_an_operator_that_is_refused_or_away_is_let_be(watched: Watched) -> None:
    watched.ask(3)
    said = event("job", "MPIJobFailed", "worker pod created failed: exceeded quota", unix=NOW.timestamp())
    watched.api.put(EVENTS, said)
    assert watched.turns(until=600) == []
    watched.api.remove(EVENTS, said["metadata"]["name"])
    away = {**watched.api.objects[DEPLOYMENTS]["mpi-operator"], "status": {}}
    watched.api.put(DEPLOYMENTS, away)
    assert watched.turns(until=1000) == []
    watched.api.put(DEPLOYMENTS, {**away, "status": {"availableReplicas": 1}})
    assert watched.turns(until=1100) == [1020.0]


def test_what_somebody_wrote_in_the_place_of_a_time_does_not_stop_it(watched: Watched) -> None:
    found = watched.api.objects[DEPLOYMENTS]["mpi-operator"]
    found["spec"]["template"]["metadata"]["annotations"] = {RESTARTED: "yesterday"}
    watched.api.put(DEPLOYMENTS, found)
    assert watched.turns(until=100) == [80.0]


def test_an_object_that_cannot_be_read_is_left_out(watched: Watched) -> None:
    """Whoever may make one would stop the watchdog for all."""
    odd = mpijob() | {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": "many"}}}}
    odd["metadata"] |= {"name": "odd", "namespace": "evil", "uid": "odd"}
    watched.api.put(JOBS, odd)
    watched.api.put(PODS, pod(7) | {"status": {"conditions": [{"status": "True"}]}})
    assert watched.turns(until=100) == [80.0]


@pytest.mark.parametrize("year", ["0000", "10000"])
def test_an_event_of_a_year_that_no_clock_shows_does_not_stop_it(watched: Watched, year: str) -> None:
    said = event("job", "MPIJobFailed", "odd", unix=NOW.timestamp())
    watched.api.put(EVENTS, said | {"lastTimestamp": f"{year}-01-01T00:00:00Z"})
    assert watched.turns(until=100) == [80.0]
