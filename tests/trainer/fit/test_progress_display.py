"""A bar on a terminal, lines elsewhere."""

import io
import logging
import os
import pty
import sys

import pytest
from rich.console import Console

from hvd_elastic.trainer.fit.progress_display import (
    BAR_SECONDS,
    LINE_SECONDS,
    ProgressBar,
    ProgressLines,
    progress_display,
)


def test_lines_come_at_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    lines = ProgressLines(clock=lambda: now)
    lines.count(30)
    assert not lines.due()
    now = LINE_SECONDS
    assert lines.due()
    with caplog.at_level(logging.INFO):
        lines.show(where="epoch 1 of 2, step 9", part=0.5, size=3, values={"loss": 0.5})
    assert caplog.messages == ["epoch 1 of 2, step 9: loss 0.5, samples_per_second 3, world_size 3"]
    assert not lines.due()


def test_a_script_that_logs_nothing_gets_lines_on_stderr(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        ProgressLines(clock=lambda: 0.0).show(where="step 9", part=None, size=1, values={})
    assert capsys.readouterr().err == "hvd-elastic: step 9: world_size 1\n"


def test_the_bar_shows_the_part_of_the_epoch() -> None:
    now, screen = 0.0, io.StringIO()
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=120), clock=lambda: now)
    now = BAR_SECONDS
    assert bar.due()
    bar.show(where="epoch 1 of 2, step 9", part=0.25, size=3, values={"loss": 0.5})
    bar.show(where="epoch 2 of 2, step 12", part=0.75, size=3, values={"loss": 0.25})
    bar.close()
    last = screen.getvalue().rpartition("epoch 2 of 2, step 12")[2]
    assert "75%" in last
    assert "loss 0.25, world_size 3" in last
    assert screen.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"


def test_which_display_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(progress_display(enabled=True), ProgressLines)
    assert not progress_display(enabled=False).due()
    master, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        assert isinstance(progress_display(enabled=True), ProgressBar)
    os.close(master)
