"""The live status is what the ledger and the workers say now."""

from collections.abc import Iterable

from hvd_elastic.discovery.kube.watch import Listed
from hvd_elastic.discovery.ledger.entries import Entry, JobEnded
from hvd_elastic.discovery.ledger.history.job_history import JobHistory
from hvd_elastic.discovery.ledger.launcher_view import LauncherView
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.ledger.present_status import STALLED_SECONDS, PresentStatus
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.rules.cluster_views import JobView, PodView, WorkerView
from hvd_elastic.mpijob.contract import WorkerState


class Watched:
    """A job with one worker of two GPUs, and its status as time goes on."""

    def __init__(self) -> None:
        self.history = JobHistory(min_workers=1, max_workers=4, slots=1)
        self.entries: list[Entry] = []
        self.present = PresentStatus(())
        pod = PodView(name="job-worker-0", uid="u", owner_uid="job", node="n", bound_at=100.0)
        self.write(self.history.take_job(JobView(uid="job", replicas=4, gpus=2), 100.0))
        self.write(self.history.take_pods(Listed((pod,)), 100.0))
        self.write(self.history.begin((), LauncherView(pod="l", uid="l"), {}, 100.0))

    def write(self, entries: Iterable[Entry]) -> None:
        self.entries += entries

    def at(self, now: float) -> LiveStatus:
        self.write(self.history.world.pass_time(now))
        return self.present.status(self.history, self.entries, now)

    def step(self, now: float, step: int, **known: object) -> None:
        figures = TrainingFigures(unix=now, step=step, size=1, **known)  # type: ignore[arg-type]
        self.write(self.history.world.take_figures("u", figures, now))


def test_from_start_to_end() -> None:
    job = Watched()
    status = job.at(110.0)
    assert (status.activity, status.since, status.wanted, status.gpu_seconds) == (Activity.STARTING, 110.0, 4, 20.0)
    job.history.take_answers({"u": WorkerView(state=WorkerState.TRAINING)}, 120.0)
    job.step(
        121.0,
        5,
        steps_per_second=2.0,
        loss=0.25,
        durable_step=4,
        durable=120.5,
        metrics={"accuracy": 0.5},
        samples="once",
    )
    status = job.at(130.0)
    assert (status.activity, status.since, status.workers, status.launchers) == (Activity.TRAINING, 130.0, 1, 1)
    assert (status.step, status.steps_per_second, status.loss, status.stepped) == (5, 2.0, 0.25, 121.0)
    assert (status.durable_step, status.durable, status.training_seconds) == (4, 120.5, 9.0)
    assert status.metrics == {"accuracy": 0.5}
    assert status.samples == "once"
    assert LiveStatus.from_json(status.to_json()) == status
    job.history.take_answers({"u": WorkerView(generation=1)}, 140.0)
    job.at(140.0)
    status = job.at(150.0)
    assert (status.activity, status.since, status.workers, status.steps_per_second) == (
        Activity.WAITING, 150.0, 0, None,
    )  # fmt: skip
    assert status.exit_code is None
    job.write([JobEnded(unix=160.0, succeeded=False, exit_code=70, step=9)])
    status = job.at(200.0)
    assert (status.activity, status.step, status.gpu_seconds, status.exit_code) == (Activity.ENDED, 9, 120.0, 70)
    assert LiveStatus.from_json(status.to_json()) == status


def test_training_that_does_no_step_is_stalled() -> None:
    job = Watched()
    job.history.take_answers({"u": WorkerView(state=WorkerState.TRAINING)}, 100.0)
    job.step(100.0, 5, steps_per_second=0.1)
    assert job.at(100.0 + 2 * STALLED_SECONDS).activity is Activity.TRAINING, "a step takes 10 s here"
    assert job.at(301.0).activity is Activity.STALLED
    job.step(302.0, 6, steps_per_second=0.1)
    assert job.at(303.0).activity is Activity.TRAINING
