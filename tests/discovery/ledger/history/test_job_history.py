"""The ledger tells each step of each worker once and in order, whatever happens, and whoever goes on with it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed
from hvd_elastic.discovery.ledger.account import fold
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    WantedChanged,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
)
from hvd_elastic.discovery.ledger.history.departures import Surroundings, departure
from hvd_elastic.discovery.ledger.history.job_history import JobHistory
from hvd_elastic.discovery.ledger.launcher_view import LauncherView, ends_job
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.rules.cluster_views import JobView, NodeView, PodView, WorkerView
from hvd_elastic.mpijob.contract import Exit, WorkerState
from testbed.kube_api import OWNER

Kind = TypeVar("Kind")
JOB = JobView(uid=OWNER, replicas=4, gpus=2)
NODES = Listed((NodeView(name="n", spot=True, machine="p3.2xlarge"),))


def worker(index: int, uid: str = "", bound: float | None = 1.0, **known: object) -> PodView:
    given = {"owner_uid": OWNER, "node": "n", "bound_at": bound, "ip": f"10.0.0.{index}", **known}
    return PodView(name=f"job-worker-{index}", uid=uid or f"uid-{index}", **given)  # type: ignore[arg-type]


def launcher(uid: str = "l1", **known: object) -> LauncherView:
    return LauncherView(pod=f"job-launcher-{uid}", uid=uid, **known)  # type: ignore[arg-type]


@dataclass
class Ledger:
    """What one sidecar after the other has written."""

    entries: list[Entry] = field(default_factory=list)
    pods: dict[str, PodView] = field(default_factory=dict)
    now: float = 100.0
    history: JobHistory = field(init=False)

    def begin(self, uid: str = "l1", job: JobView = JOB) -> "Ledger":
        self.history = JobHistory(min_workers=1, max_workers=8, slots=1)
        self.write(self.history.take_job(job, self.now))
        self.history.take_nodes(NODES)
        self.write(self.history.take_pods(Listed(tuple(self.pods.values())), self.now))
        self.write(self.history.begin(tuple(self.entries), launcher(uid), {}, self.now))
        return self

    def write(self, entries: Iterator[Entry]) -> list[Entry]:
        fresh = list(entries)
        self.entries += fresh
        return fresh

    def see(self, pod: PodView, *, unseen: bool = False) -> list[Entry]:
        self.pods[pod.uid] = pod
        return [] if unseen else self.write(self.history.take_pods(Changed(pod), self.now))

    def remove(self, uid: str, *, unseen: bool = False) -> list[Entry]:
        pod = self.pods.pop(uid, None)
        return [] if unseen or pod is None else self.write(self.history.take_pods(Deleted(pod), self.now))

    def relist(self) -> list[Entry]:
        return self.write(self.history.take_pods(Listed(tuple(self.pods.values())), self.now))

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [entry for entry in self.entries if isinstance(entry, kind)]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger().begin()


def test_a_worker_from_its_binding_to_its_end(ledger: Ledger) -> None:
    assert ledger.see(worker(0, bound=None, node="")) == []
    assert ledger.see(worker(0, bound=110.0)) == [
        WorkerBound(unix=110.0, pod="job-worker-0", uid="uid-0", node="n", gpus=2, machine="p3.2xlarge", spot=True)
    ]
    assert ledger.see(worker(0, bound=110.0, ready=False)) == []
    ledger.now = 120.0
    (leaving,) = ledger.see(worker(0, bound=110.0, disruption="PreemptionByScheduler"))
    assert leaving == WorkerLeaving(unix=120.0, pod="job-worker-0", uid="uid-0", why=Departure.PREEMPTED)
    assert ledger.see(worker(0, bound=110.0, disruption="PreemptionByScheduler", deleting_at=150.0)) == []
    ended = worker(0, bound=110.0, disruption="PreemptionByScheduler", phase="Succeeded", ended_at=121.0)
    assert ledger.see(ended) == [WorkerGone(unix=121.0, pod="job-worker-0", uid="uid-0")]
    assert ledger.remove("uid-0") == []


def test_pods_of_others_are_not_in_the_ledger(ledger: Ledger) -> None:
    assert ledger.see(worker(0, owner_uid="another")) == []
    assert ledger.remove("uid-0") == []


@pytest.mark.parametrize(
    ("known", "around", "why"),
    [
        ({"disruption": "PreemptionByScheduler"}, {}, "preempted"),
        ({"disruption": "TerminationByKubelet", "reason": "Preempting"}, {}, "preempted"),
        ({"disruption": "TerminationByKubelet", "reason": "Evicted"}, {}, "evicted"),
        ({"disruption": "TerminationByKubelet", "reason": "Terminated"}, {}, "drained"),
        ({"disruption": "EvictionByEvictionAPI"}, {}, "evicted"),
        ({"disruption": "EvictionByEvictionAPI"}, {"node": NodeView(name="n", at_risk="cordoned")}, "drained"),
        ({"disruption": "DeletionByPodGC"}, {}, "node-lost"),
        ({"disruption": "DeletionByTaintManager"}, {"nodes_known": True}, "node-lost"),
        ({"disruption": "DeletionByTaintManager", "ready_withdrawn": True}, {}, "node-lost"),
        ({"disruption": "DeletionByTaintManager"}, {}, "drained"),
        ({"deleting_at": 9.0}, {}, "deleted"),
        ({"deleting_at": 9.0}, {"victim": True}, "scaled-down"),
        ({"deleting_at": 9.0}, {"job_over": True, "victim": True}, "suspended"),
        ({"deleting_at": 9.0}, {"node": NodeView(name="n", draining="karpenter.sh/disrupted")}, "drained"),
        ({"deleting_at": 9.0}, {"node": NodeView(name="n", at_risk="cordoned")}, "deleted"),
        ({"deleting_at": 9.0, "ready_withdrawn": True}, {}, "node-lost"),
        ({"deleting_at": 9.0}, {"node": NodeView(name="n", ready=False), "nodes_known": True}, "node-lost"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "evicted"),
        ({"phase": "Failed", "last_state": "worker: Error, exit code 1"}, {}, "failed"),
    ],
)
def test_why_a_worker_goes(known: dict[str, object], around: dict[str, object], why: str) -> None:
    found, _ = departure(worker(0, **known), Surroundings(**around))  # type: ignore[arg-type]
    assert found == why


def test_a_smaller_job_scales_down_and_a_suspended_one_suspends(ledger: Ledger) -> None:
    for index in range(4):
        ledger.see(worker(index))
    smaller = replace(JOB, replicas=2, wanted="2")
    assert ledger.write(ledger.history.take_job(smaller, 101.0)) == [WantedChanged(unix=101.0, workers=2)]
    (scaled,) = ledger.see(worker(3, deleting_at=130.0))
    assert isinstance(scaled, WorkerLeaving)
    assert scaled.why is Departure.SCALED_DOWN
    ledger.write(ledger.history.take_job(replace(smaller, suspended=True), 102.0))
    (suspended,) = ledger.see(worker(0, deleting_at=130.0))
    assert isinstance(suspended, WorkerLeaving)
    assert suspended.why is Departure.SUSPENDED


def test_a_sidecar_that_starts_again_tells_nothing_twice(ledger: Ledger) -> None:
    ledger.see(worker(0))
    ledger.see(worker(1, phase="Failed", ended_at=100.0))
    before = list(ledger.entries)
    ledger.begin()
    assert ledger.entries == before


def test_the_next_launcher_tells_the_end_of_the_one_before(ledger: Ledger) -> None:
    ledger.see(worker(0))
    ledger.history.take_answers({"uid-0": WorkerView(state=WorkerState.TRAINING)}, 100.0)
    ledger.history.world.has_registered = True
    ledger.write(ledger.history.world.pass_time(101.0))
    ledger.write(ledger.history.world.pass_time(110.0))
    assert fold(ledger.entries, 110.0).workers == ("job-worker-0",)
    ledger.remove("uid-0", unseen=True)
    ledger.now = 200.0
    ledger.begin("l2")
    assert [entry.uid for entry in ledger.of(LauncherEnded)] == ["l1"]
    assert [entry.uid for entry in ledger.of(LauncherStarted)] == ["l1", "l2"]
    assert ledger.of(WorkerGone) == [WorkerGone(unix=200.0, pod="job-worker-0", uid="uid-0")]
    assert fold(ledger.entries, 200.0).workers == ()


def test_a_worker_that_went_with_a_suspended_job_does_not_hold_its_gpus_until_the_job_resumes(ledger: Ledger) -> None:
    ledger.see(worker(0))
    ledger.write(ledger.history.take_job(replace(JOB, suspended=True), 105.0))
    ledger.write(ledger.history.end(launcher(is_over=True, ended=110.0), for_good=False, now=110.0))
    ledger.remove("uid-0", unseen=True)
    ledger.now = 90_000.0
    ledger.begin("l2")
    assert ledger.of(WorkerGone) == [WorkerGone(unix=140.0, pod="job-worker-0", uid="uid-0")]


def test_a_launcher_that_goes_with_a_suspended_job_was_suspended(ledger: Ledger) -> None:
    ledger.write(ledger.history.take_job(replace(JOB, suspended=True), 105.0))
    gone = launcher(is_over=True, ended=110.0, reason="deleted")
    ledger.write(ledger.history.end(gone, for_good=False, now=110.0))
    assert [entry.reason for entry in ledger.of(LauncherEnded)] == ["suspended"]


def test_the_end_of_a_job(ledger: Ledger) -> None:
    ledger.see(worker(0))
    ledger.write(ledger.history.end(launcher(is_over=True, exit_code=0, ended=110.0), for_good=True, now=111.0))
    ended, over = ledger.entries[-3], ledger.entries[-1]
    assert ended == LauncherEnded(unix=110.0, pod="job-launcher-l1", uid="l1", exit_code=0)
    assert over == JobEnded(unix=110.0, succeeded=True, exit_code=0)
    assert fold(ledger.entries, 1000.0).held_gpus == 0


def test_only_the_last_failure_ends_a_job() -> None:
    failed = launcher(is_over=True, exit_code=1)
    assert ends_job(launcher(exit_code=0), [], restarts=0)
    assert not ends_job(failed, [], restarts=1)
    assert ends_job(failed, [failed], restarts=1)
    assert not ends_job(failed, [launcher(is_over=True)], restarts=1), "one that was taken away costs nothing"
    assert not ends_job(launcher(is_over=True), [failed], restarts=0)


@pytest.mark.parametrize("code", [Exit.RESET_LIMIT, Exit.SCRIPT_MISTAKE])
def test_no_launcher_follows_where_trying_again_is_pointless(code: Exit) -> None:
    assert ends_job(launcher(is_over=True, exit_code=code), [], restarts=6)


def test_how_a_launcher_ended() -> None:
    pod: dict[str, Any] = {
        "metadata": {"name": "job-launcher-x", "uid": "l1"},
        "status": {
            "phase": "Failed",
            "containerStatuses": [
                {
                    "name": "launcher",
                    "state": {"terminated": {"exitCode": 72, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }
    read = LauncherView.from_json(pod)
    assert (read.exit_code, read.is_over, read.reason, read.ended) == (72, True, "", 1767225600.0)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert LauncherView.from_json(pod).exit_code is None


def test_every_worker_is_asked_for_figures_sooner_or_later(ledger: Ledger) -> None:
    for index in range(5):
        ledger.see(worker(index, ready_since=float(index)))
    training = {f"uid-{index}": WorkerView(state=WorkerState.TRAINING) for index in range(5)}
    ledger.history.take_answers(training, 100.0)
    asked = [[pod.index for pod in ledger.history.likely_rank0(2)] for _ in range(3)]
    assert asked == [[0, 1], [2, 3], [4, 0]]
    list(ledger.history.world.take_figures("uid-3", TrainingFigures(unix=100.0, step=1), 100.0))
    assert next(pod.index for pod in ledger.history.likely_rank0(2)) == 3


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["bind", "disrupt", "delete", "end", "remove", "relist", "restart", "launcher"]),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=40,
)


@given(STEPS)
def test_each_step_of_each_worker_once_and_in_order(steps: list[tuple[str, int, bool]]) -> None:  # noqa: C901 - a schedule
    """Whatever is seen or missed. Where nothing was missed the GPU-seconds are those of the pods' lifetimes."""
    ledger = Ledger().begin()
    lives: dict[str, list[float]] = {}
    present: dict[int, str] = {}
    missed = False
    for number, (step, index, unseen) in enumerate(steps):
        ledger.now += 1.0
        uid = present.get(index, "")
        pod = ledger.pods.get(uid)
        missed |= unseen and step in {"bind", "disrupt", "delete", "end", "remove"}
        match step:
            case "bind" if pod is None:
                uid = present[index] = f"uid-{number}"
                lives[uid] = [ledger.now]
                ledger.see(worker(index, uid, bound=ledger.now), unseen=unseen)
            case "disrupt" if pod and not pod.has_ended:
                ledger.see(replace(pod, disruption="PreemptionByScheduler"), unseen=unseen)
            case "delete" if pod:
                ledger.see(replace(pod, deleting_at=ledger.now + 30), unseen=unseen)
            case "end" if pod and not pod.has_ended:
                lives[uid].append(ledger.now)
                ledger.see(replace(pod, phase="Failed", ended_at=ledger.now), unseen=unseen)
            case "remove" if pod:
                lives[uid].append(ledger.now)
                ledger.remove(uid, unseen=unseen)
                del present[index]
            case "relist":
                ledger.relist()
            case "restart":
                ledger.begin()
            case "launcher":
                ledger.begin(f"l-{number}")
    ledger.relist()
    told: dict[str, list[type]] = {}
    for entry in ledger.entries:
        if isinstance(entry, WorkerBound | WorkerLeaving | WorkerGone):
            told.setdefault(entry.uid, []).append(type(entry))
    order = [WorkerBound, WorkerLeaving, WorkerGone]
    assert all(kinds == order[: len(kinds)] for kinds in told.values())
    over = {uid for uid, kinds in told.items() if kinds == order}
    assert over == told.keys() - {uid for uid, pod in ledger.pods.items() if not pod.has_ended}
    assert {pod.uid for pod in ledger.pods.values()} <= told.keys()
    if not missed:
        held = sum(2 * ((ends or [ledger.now])[0] - begin) for begin, *ends in lives.values())
        assert fold(ledger.entries, ledger.now).held_gpu_seconds == held
