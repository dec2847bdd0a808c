"""Verbs that style what they show: the styles are theirs, and a stranger's words add none."""

import contextlib
import io
import re
import sys
from collections.abc import Callable

import pytest
from rich.table import Table
from rich.text import Text

from hvd_elastic.cli.clean_console import CleanConsole
from hvd_elastic.cli.standard_streams import guarded_streams, lossy
from testbed.terminal import HOSTILE, steering


@pytest.mark.parametrize("guard", [guarded_streams, contextlib.nullcontext])
def test_a_terminal_gets_styles_and_harmless_words(
    guard: Callable[[], contextlib.AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", screen := io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    with guard():
        CleanConsole(lossy(sys.stdout)).print(Text(HOSTILE, style="bold"), table, HOSTILE)
    screen.seek(0)
    shown = screen.read()
    assert "\x1b[1m" in shown
    assert shown.count("owned") == 4
    assert not steering(re.sub(r"\x1b\[[0-9;]*m", "", shown))
