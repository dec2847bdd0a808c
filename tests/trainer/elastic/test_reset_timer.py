"""The pause that a person reads is the one that events, `status` and the bill have."""

from types import SimpleNamespace

import pytest

from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.reset_timer import ResetTimer
from hvd_elastic.trainer.telemetry import events


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (events.PauseCause.HOSTS, "hosts were added or removed"),
        (events.PauseCause.FAILURE, "a process was lost"),
    ],
)
def test_the_sentence_has_the_seconds_of_the_event(
    cause: events.PauseCause, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    horovod_patches.init()
    seen: list[events.Event] = []
    events.subscribe(seen.append)
    times = iter([0.0, 1.0, 11.0, 12.23456])
    timer = ResetTimer(SimpleNamespace(step_count=41), clock=lambda: next(times))
    timer.resumed()
    assert capsys.readouterr().err == "", "nothing stood still before the first world"
    timer.interrupted(cause)
    timer.resumed()
    assert seen[-1]["seconds"] == pytest.approx(1.2346)
    assert capsys.readouterr().err == (
        f"hvd-elastic: training goes on with 1 worker after step 41; it stood still for 1.23 s: {why}\n"
    )
