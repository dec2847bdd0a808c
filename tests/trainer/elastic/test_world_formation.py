"""What a world waits for while it forms and ends: the other processes, and no clock."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.trainer.elastic.bare_world import WORKER, ends, world

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

LONG_TICK = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/epoll.h>

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    int (*stock)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, "epoll_wait");
    return stock(epoll, events, most, timeout == 10 ? 3600 * 1000 : timeout);
}
"""
"""A library in which Gloo's time-out of 10 ms (`loop.cc`) is an hour."""


@pytest.fixture
def long_tick(tmp_path: Path) -> Path:
    source, library = tmp_path / "long_tick.c", tmp_path / "long_tick.so"
    source.write_text(LONG_TICK)
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.needs_patch("gloo-loop-wake")
def test_no_tick_of_gloos_loop_is_waited_for(long_tick: Path) -> None:
    preload = f"{long_tick}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")
    python = [sys.executable]  # the dynamic linker reads LD_PRELOAD when a program starts, not when one forks
    with world([str(WORKER), "form"], 3, python=python, LD_PRELOAD=preload) as processes:
        assert [ends(process) for process in processes] == [(0, "")] * 3
