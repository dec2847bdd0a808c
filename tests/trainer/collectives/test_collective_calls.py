"""What is noted of Horovod's operations, and that Horovod still has the functions that are wrapped."""

import inspect
from types import SimpleNamespace

import pytest

from hvd_elastic.trainer.collectives import collective_calls
from hvd_elastic.trainer.collectives.collective_calls import CollectiveCalls, Occupation


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


ALL = SimpleNamespace(process_set_id=0)
SOME = SimpleNamespace(process_set_id=2)


def begin(tensor: object, output: object, name: str | None, process_set: object, handle: int) -> int:
    return handle


def test_an_operation_is_known_by_its_name_while_it_is_waited_for() -> None:
    clock, seen = Clock(), list[Occupation]()
    calls = CollectiveCalls(clock=clock)

    def wait(handle: int) -> None:
        clock.now += 5.0
        seen.append(calls.occupation())

    waits, begins, joins = calls.watched(wait), calls.named(begin, "allreduce"), calls.unnamed(lambda: 4, "join")
    begins("t", "o", "grad.w", ALL, 1)
    begins("t", "o", None, process_set=ALL, handle=2)
    begins("t", "o", name="loss", process_set=ALL, handle=3)
    joins()
    assert calls.occupation().operation == "", "it was begun, and nobody waits for it"
    for handle in (1, 2, 3, 4, 5):
        waits(handle)
    assert [each.operation for each in seen] == [
        "allreduce grad.w", "allreduce noname.2", "allreduce loss", "join", "an operation",
    ]  # fmt: skip
    assert [each.since for each in seen] == [0.0, 5.0, 10.0, 15.0, 20.0]
    now = calls.occupation()
    assert (now.operation, now.since) == ("", 25.0)
    assert len({each.number for each in (*seen, now)}) == 6


def test_one_that_fails_is_over() -> None:
    calls = CollectiveCalls(clock=Clock())

    def fails(handle: int) -> None:
        raise RuntimeError("a peer died")

    with pytest.raises(RuntimeError):
        calls.watched(fails)(calls.named(begin, "allreduce")("t", "o", "w", ALL, 1))
    assert calls.occupation().operation == ""


def test_what_was_begun_is_known_until_it_is_done() -> None:
    calls = CollectiveCalls(clock=Clock())
    begins, barriers = calls.named(begin, "allreduce"), calls.unnamed(lambda members: 4, "barrier")
    begins("t", "o", "grad.w", ALL, 1)
    begins("t", "o", None, SOME, 2)
    barriers(2)
    assert calls.begun() == {
        "allreduce grad.w", "allreduce of process set 2: noname.2", "barrier of process set 2:",
    }  # fmt: skip
    calls.watched(lambda _: None)(2)
    barriers(0)
    assert calls.begun() == {"allreduce grad.w", "barrier"}
    calls.restart()
    assert not calls.begun()


def test_a_commit_begins_a_new_spell() -> None:
    clock = Clock()
    calls = CollectiveCalls(clock=clock)
    before, clock.now = calls.occupation(), 7.0
    calls.mark()
    assert calls.occupation().since == 7.0
    assert calls.occupation().number != before.number


def test_horovod_has_what_is_wrapped() -> None:
    from horovod.torch import mpi_ops

    for function in collective_calls.NAMED:
        assert {"name", "process_set"} <= set(inspect.signature(getattr(mpi_ops, function)).parameters), function
    for function in (*collective_calls._UNNAMED, "horovod_torch_wait_and_clear"):
        assert callable(getattr(mpi_ops.mpi_lib, function))
