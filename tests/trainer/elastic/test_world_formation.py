"""What a world waits for while it forms and ends: the other processes, and no clock."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.trainer.elastic.bare_world import WORKER, ends, world
from tests.trainer.elastic.met_world import met_world

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

NO_WAKE_BEFORE_CLOSE = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static __thread int removed = -1;

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    int (*stock)(int, int, int, struct epoll_event *) = dlsym(RTLD_NEXT, "epoll_ctl");
    removed = operation == EPOLL_CTL_DEL ? fd : -1;
    return stock(epoll, operation, fd, event);
}

int close(int fd) {
    int (*stock)(int) = dlsym(RTLD_NEXT, "close");
    if (fd == removed) { removed = -1; }
    return stock(fd);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    ssize_t (*stock)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (removed != -1 && count == 1) { abort(); }
    return stock(fd, bytes, count);
}
"""
"""In which a process dies that wakes Gloo's loop, by a byte, between the end of a connection's events and its close."""


def preloaded(folder: Path, text: str) -> str:
    """LD_PRELOAD with a library in C. The dynamic linker reads it when a program starts, not when one forks."""
    source, library = folder / "tick.c", folder / "tick.so"
    source.write_text(text)
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return f"{library}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")


def formed_under(folder: Path, instead: str) -> list[tuple[int | None, str]]:
    """How three processes that form a world have ended. `instead`: C, in place of Gloo's time-out."""
    preload = preloaded(folder, LIBRARY % instead)
    with world([str(WORKER), "form"], 3, python=[sys.executable], LD_PRELOAD=preload) as processes:
        return [ends(process) for process in processes]


@pytest.mark.needs_patch("gloo-loop-wake")
def test_no_tick_of_gloos_loop_is_waited_for(tmp_path: Path) -> None:
    assert formed_under(tmp_path, "timeout = 3600 * 1000") == [(0, "")] * 3


@pytest.mark.needs_patch("idle-loop")
def test_gloos_loop_has_no_clock(tmp_path: Path) -> None:
    assert formed_under(tmp_path, "abort()") == [(0, "")] * 3


@pytest.mark.needs_patch("closing-tick")
def test_no_connection_waits_for_a_tick_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", preloaded(tmp_path, NO_WAKE_BEFORE_CLOSE))
    with met_world("form", [1, 1], forked=False) as met:
        assert [ends(process)[0] for process in met.processes] == [0, 0]
