"""How often a rank that waits looks whether its operation is done."""

from collections.abc import Callable

from hvd_elastic.trainer.collectives.eased_wait import SHORT_SECONDS, eased

LOOK_SECONDS = 1e-6


class Operation:
    """One that takes a while. Its clock goes on with each look, and as long as somebody sleeps."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds
        self.slept: list[float] = []
        self.waited_for: list[int] = []

    def is_done(self, handle: int) -> int:
        self.now += LOOK_SECONDS
        return int(self.now >= self.seconds)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def wait(self, handle: int) -> None:
        assert self.now >= self.seconds, "this would keep the core"
        self.waited_for.append(handle)

    @property
    def waits(self) -> Callable[[int], None]:
        return eased(self.wait, self.is_done, clock=lambda: self.now, sleep=self.sleep)


def test_a_short_wait_never_sleeps() -> None:
    operation = Operation(SHORT_SECONDS * 0.9)
    operation.waits(7)
    assert operation.waited_for == [7]
    assert not operation.slept


def test_a_long_wait_sleeps_and_lasts_hardly_longer() -> None:
    for seconds in (0.005, 0.1, 10.0):
        operation = Operation(seconds)
        operation.waits(7)
        assert operation.waited_for == [7]
        assert sum(operation.slept) > 0.99 * (seconds - SHORT_SECONDS)
        assert operation.now < seconds * 1.03
        assert max(operation.slept) <= 0.001


def test_what_is_done_already_is_not_waited_for() -> None:
    operation = Operation(0.0)
    operation.waits(7)
    assert operation.now == LOOK_SECONDS


def test_horovod_has_what_is_replaced() -> None:
    from horovod.torch import mpi_ops

    for function in ("horovod_torch_wait_and_clear", "horovod_torch_poll"):
        assert callable(getattr(mpi_ops.mpi_lib, function))
