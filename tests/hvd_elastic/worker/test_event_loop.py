"""The select loop: order of timers, signals as calls, and descriptors that change hands within one turn."""

import functools
import logging
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.worker.event_loop import EventLoop


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=20))
def test_timers_are_called_in_order_unless_cancelled(plan: list[tuple[float, bool]]) -> None:
    clock = Clock()
    called: list[int] = []
    loop = EventLoop(clock=clock)
    timers = [loop.after(due, functools.partial(called.append, index)) for index, (due, _) in enumerate(plan)]
    for timer, (_, cancelled) in zip(timers, plan, strict=True):
        if cancelled:
            timer.cancel()
    clock.now = 100.0
    if any(not cancelled for _, cancelled in plan):
        loop.turn()
    expected = [index for index, (_, cancelled) in enumerate(plan) if not cancelled]
    assert called == sorted(expected, key=lambda index: plan[index][0])
    loop.close()


def test_a_descriptor_that_changed_hands_within_a_turn_is_not_mistaken_for_its_predecessor() -> None:
    loop = EventLoop()
    called: list[str] = []
    (first_read, first_write), (second_read, second_write) = os.pipe(), os.pipe()
    heir_read, heir_write = os.pipe()
    taken = {}

    def close_the_other(own: int, other: int) -> None:
        called.append("original")
        loop.forget(other)
        os.dup2(heir_read, other)
        loop.watch(other, lambda: called.append("heir"))
        taken["own"] = own

    loop.watch(first_read, lambda: close_the_other(first_read, second_read))
    loop.watch(second_read, lambda: close_the_other(second_read, first_read))
    os.write(first_write, b"x")
    os.write(second_write, b"x")
    loop.turn()
    assert called == ["original"]
    loop.forget(taken["own"])
    os.write(heir_write, b"x")
    loop.turn()
    assert called == ["original", "heir"]
    for descriptor in (first_read, first_write, second_read, second_write, heir_read, heir_write):
        os.close(descriptor)
    loop.close()


def test_an_action_that_raises_is_logged_and_its_descriptor_dropped(caplog: pytest.LogCaptureFixture) -> None:
    loop = EventLoop()
    read, write = os.pipe()
    os.write(write, b"x")
    loop.watch(read, lambda: 1 // 0)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        loop.turn()
    assert "ZeroDivisionError" in caplog.text
    done: list[bool] = []
    loop.after(0, lambda: done.append(True))
    loop.turn()
    assert done == [True]
    os.close(read)
    os.close(write)
    loop.close()


def test_a_signal_is_a_call_in_the_loop() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    loop = EventLoop()
    came: list[int] = []
    try:
        loop.on_signal(signal.SIGUSR1, lambda: came.append(1))
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.turn()
        assert came == [1]
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, before)
        loop.close()
