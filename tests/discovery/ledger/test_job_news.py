"""What `kubectl describe mpijob` says: one sentence for a burst, with its causes."""

from dataclasses import replace

from hvd_elastic.discovery.ledger.entries import (
    Departure,
    JobEnded,
    LauncherEnded,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
)
from hvd_elastic.discovery.ledger.job_news import GAP_SECONDS, MAX_CAUSES, JobNews, News, SaveNews
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures

WORLD = ("w-0", "w-1", "w-2")


def news() -> JobNews:
    told = JobNews(min_workers=1, max_workers=8)
    told.take([WorldChanged(unix=1.0, workers=WORLD)])
    assert told.due(1.0) == News(reason="Resized", message="trains with 3 of [1..8] workers")
    return told


def leaving(pod: str, why: Departure = Departure.PREEMPTED, **known: str) -> WorkerLeaving:
    return WorkerLeaving(unix=2.0, pod=pod, uid=pod, why=why, **known)


def test_a_burst_is_one_event_with_all_causes() -> None:
    told = news()
    told.take(
        [leaving("w-1", by="inference/web-1"), leaving("stranger"), WorldChanged(unix=2.0, workers=("w-0", "w-2"))]
    )
    assert told.due(2.0) is None
    told.take([leaving("w-2", Departure.DRAINED, detail="karpenter.sh/disrupted")])
    told.take([WorldChanged(unix=3.0, workers=("w-0", "w-3"), pause_seconds=2.04)])
    heard = told.due(1.0 + GAP_SECONDS)
    assert heard is not None
    sentence, _, causes = heard.message.partition(": ")
    assert sentence == "trains with 2 of [1..8] workers after a pause of 2.0 s"
    assert causes.split(", ") == [
        "w-1 was preempted by inference/web-1",
        "w-2 left a node that is emptied (karpenter.sh/disrupted)",
        "w-3 joined",
    ]
    assert told.due(1000.0) is None


def test_many_causes_are_counted() -> None:
    told = news()
    told.take(WorkerProcessLost(unix=2.0, pod=f"w-{number}", uid="u") for number in range(MAX_CAUSES + 2))
    told.take([WorldChanged(unix=3.0, workers=WORLD)])
    heard = told.due(100.0)
    assert heard is not None
    assert heard.message.endswith("a process of w-4 ended, and 2 more")


def test_nobody_trains() -> None:
    told = news()
    told.take([WorldChanged(unix=2.0, workers=(), step=7), LauncherEnded(unix=2.0, pod="l", uid="l", exit_code=72)])
    expected = "nobody trains after step 7: the launcher ended with exit code 72"
    assert told.due(100.0) == News(reason="Waiting", message=expected, is_warning=True)


def test_the_end_is_told_at_once() -> None:
    told = news()
    told.take([WorldChanged(unix=2.0, workers=()), JobEnded(unix=2.0, succeeded=False, exit_code=1, step=9)])
    expected = "the job has ended after step 9, with exit code 1"
    assert told.due(2.0) == News(reason="Failed", message=expected, is_warning=True)


def test_the_reset_limit_is_a_reason_of_its_own() -> None:
    told = news()
    told.take([JobEnded(unix=2.0, succeeded=False, exit_code=71, step=9)])
    expected = "the job has ended after step 9: its reset limit is reached"
    assert told.due(2.0) == News(reason="ResetLimitReached", message=expected, is_warning=True)


def test_saves_that_fail_are_told_once_and_so_is_the_next_that_does_not() -> None:
    told = SaveNews()
    fine = TrainingFigures(unix=1.0, durable_step=40, durable=100.0)
    failing = replace(fine, save_error="/checkpoints: Read-only file system")
    assert told.take(fine) is None
    assert told.take(failing) == News(
        reason="CheckpointFailed",
        message="no checkpoint gets durable: /checkpoints: Read-only file system; the newest is of step 40. "
        "Where it lasts, the alert HvdElasticCheckpointLate fires",
        is_warning=True,
    )
    assert told.take(replace(failing, save_error="another")) is None
    assert told.take(fine) is None, "a new rank 0 that has not saved yet says nothing"
    assert told.take(failing) is None
    again = told.take(replace(fine, durable_step=90, durable=200.0))
    assert again == News(reason="CheckpointDurable", message="checkpoints get durable again: that of step 90 is")
    assert told.take(failing) is not None


def test_a_checkpoint_that_is_not_used_is_told_once() -> None:
    told = SaveNews()
    began = TrainingFigures(unix=1.0, began_step=40, rejected="manifests/a-step-50.json: is cut off")
    expected = "a checkpoint is not used, and training went on after step 40: manifests/a-step-50.json: is cut off"
    assert told.take(began) == News(reason="CheckpointRejected", message=expected, is_warning=True)
    assert told.take(replace(began, unix=2.0, step=60)) is None
    nothing = TrainingFigures(unix=3.0, rejected="manifests/b-step-9.json: is of another job")
    assert "training went on from its beginning: " in (told.take(nothing) or News(reason="", message="")).message
