"""The pause that a person reads is the one that events, `status` and the bill have."""

from types import SimpleNamespace

import pytest

from hvd_elastic.trainer.elastic.reset_timer import ResetTimer
from hvd_elastic.trainer.telemetry import events
from testbed.thread_world import Meeting, ThreadTrainingWorld


@pytest.mark.parametrize("workers", ["1 worker", "2 workers"])
@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (events.PauseCause.HOSTS, "hosts were added or removed"),
        (events.PauseCause.FAILURE, "a process was lost"),
    ],
)
def test_the_sentence_has_the_seconds_of_the_event(
    cause: events.PauseCause, why: str, workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world = ThreadTrainingWorld(Meeting(3), 0)
    seen: list[events.Event] = []
    events.subscribe(seen.append)
    times = iter([0.0, 1.0, 11.0, 12.23456])
    timer = ResetTimer(SimpleNamespace(step_count=41), clock=lambda: next(times), world=world)
    timer.resumed()
    assert capsys.readouterr().err == "", "nothing stood still before the first world"
    timer.interrupted(cause)
    world.enter(Meeting(int(workers[0])), 0)
    timer.resumed()
    assert seen[-1]["seconds"] == pytest.approx(1.2346)
    assert (seen[-1]["from"], seen[-1]["size"]) == (3, int(workers[0]))
    assert capsys.readouterr().err == (
        f"hvd-elastic: training goes on with {workers} after step 41; it stood still for 1.23 s: {why}\n"
    )
