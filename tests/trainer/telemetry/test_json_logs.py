import json
import logging
import math
from collections.abc import Iterator

import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT
from hvd_elastic.trainer.telemetry import events, json_logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    package = logging.getLogger("hvd_elastic")
    handlers, level, propagate = list(package.handlers), package.level, package.propagate
    yield
    package.handlers, package.level, package.propagate = handlers, level, propagate
    events.unsubscribe(json_logs._on_event)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("environ", [{}, {ENV_LOG_FORMAT: "text"}])
def test_nothing_is_changed_unless_the_job_asks(environ: dict[str, str]) -> None:
    before = list(logging.getLogger("hvd_elastic").handlers)
    assert not json_logs.configure(environ)
    assert logging.getLogger("hvd_elastic").handlers == before


def test_every_event_is_a_line_with_step_rank_and_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert json_logs.configure({ENV_LOG_FORMAT: "json"})
    assert json_logs.configure({ENV_LOG_FORMAT: "json"})
    events.emit(events.Kind.STEP, rank=1, size=3, step=7, epoch=0, loss=torch.tensor(0.5), perplexity=math.inf)
    (line,) = lines(capsys)
    assert str(line.pop("time")).endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "hvd_elastic.trainer.telemetry.events",
        "message": "step",
        "rank": 1,
        "size": 3,
        "step": 7,
        "epoch": 0,
        "loss": 0.5,
        "perplexity": None,
    }


def test_other_records_carry_the_world_of_the_event_before(capsys: pytest.CaptureFixture[str]) -> None:
    json_logs.configure({ENV_LOG_FORMAT: "json"})
    log = logging.getLogger("hvd_elastic.trainer.elastic.run")
    log.warning("early")
    events.emit(events.Kind.RESET, rank=0, size=2, step=9, cause="hosts", seconds=0.2)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("failed %d", 3)
    early, _, late = lines(capsys)
    assert "rank" not in early
    assert (late["message"], late["rank"], late["size"], late["step"]) == ("failed 3", 0, 2, 9)
    assert "cause" not in late
    assert "two\nlines" in str(late["exception"])
