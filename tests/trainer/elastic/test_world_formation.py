"""What a world waits for while it forms and ends: the other processes, and no clock."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.trainer.elastic.bare_world import WORKER, ends, world

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

LIBRARY = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/epoll.h>

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    int (*stock)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, "epoll_wait");
    if (timeout == 10) { %s; }
    return stock(epoll, events, most, timeout);
}
"""
"""In which Gloo's time-out of 10 ms (`loop.cc`) does something else."""


def formed_under(folder: Path, instead: str) -> list[tuple[int | None, str]]:
    """How three processes that form a world have ended. `instead`: C, in place of Gloo's time-out."""
    source, library = folder / "tick.c", folder / "tick.so"
    source.write_text(LIBRARY % instead)
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    preload = f"{library}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")
    python = [sys.executable]  # the dynamic linker reads LD_PRELOAD when a program starts, not when one forks
    with world([str(WORKER), "form"], 3, python=python, LD_PRELOAD=preload) as processes:
        return [ends(process) for process in processes]


@pytest.mark.needs_patch("gloo-loop-wake")
def test_no_tick_of_gloos_loop_is_waited_for(tmp_path: Path) -> None:
    assert formed_under(tmp_path, "timeout = 3600 * 1000") == [(0, "")] * 3


@pytest.mark.needs_patch("idle-loop")
def test_gloos_loop_has_no_clock(tmp_path: Path) -> None:
    assert formed_under(tmp_path, "abort()") == [(0, "")] * 3
