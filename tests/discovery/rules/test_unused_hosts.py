"""Workers that the stock driver does not use are offered again, and no others are disturbed."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.discovery.rules.unused_hosts import (
    MOST_PATIENCE_SECONDS,
    PATIENCE_SECONDS,
    WITHDRAWN_SECONDS,
    UnusedHosts,
)
from hvd_elastic.mpijob.contract import WorkerState

WAITS = WorkerView(state=WorkerState.WAITING)


def trains(step: int) -> WorkerView:
    return WorkerView(state=WorkerState.TRAINING, step=step)


def withdrawals(
    seconds: int, *, steps_per_second: float = 10.0, workers: dict[str, WorkerView] | None = None
) -> list[int]:
    """The seconds at which `b` and `c` are withdrawn, of a job in which `a` trains."""
    hosts, found, before = UnusedHosts(), [], frozenset[str]()
    for second in range(seconds):
        usable = {"a": trains(int(second * steps_per_second)), **(workers or {"b": WAITS, "c": WAITS})}
        withdrawn = hosts.look(usable, float(second))
        if withdrawn and not before:
            assert withdrawn == {"b", "c"}
            found.append(second)
        before = withdrawn
    return found


def test_who_waits_beside_training_is_offered_again_less_and_less_often() -> None:
    found = withdrawals(2000)
    assert found[0] == PATIENCE_SECONDS
    gaps = [after - before for before, after in pairwise(found)]
    assert gaps == sorted(gaps)
    assert MOST_PATIENCE_SECONDS < gaps[-1] <= MOST_PATIENCE_SECONDS + WITHDRAWN_SECONDS + 1


def test_nobody_is_withdrawn_while_training_makes_no_step() -> None:
    """A change is acted on between two steps: the driver's word may still be on its way."""
    assert withdrawals(600, steps_per_second=0.0) == []


def test_those_that_train_are_left_alone() -> None:
    assert withdrawals(600, workers={"b": trains(1), "c": trains(1)}) == []


def test_a_worker_that_comes_is_a_change_of_its_own() -> None:
    hosts = UnusedHosts()
    for second in range(9):
        assert not hosts.look({"a": trains(second), "b": WAITS}, float(second))
    for second in range(9, 19):
        assert not hosts.look({"a": trains(second), "b": WAITS, "c": WAITS}, float(second))
    assert hosts.look({"a": trains(19), "b": WAITS, "c": WAITS}, 19.0) == {"b", "c"}


def test_one_that_is_taken_after_all_is_offered_at_once() -> None:
    hosts = UnusedHosts()
    for second in range(10):
        hosts.look({"a": trains(second), "b": WAITS, "c": WAITS}, float(second))
    assert hosts.look({"a": trains(10), "b": WAITS, "c": WAITS}, 10.0) == {"b", "c"}
    assert hosts.look({"a": trains(11), "b": trains(11), "c": WAITS}, 11.0) == {"c"}
    assert hosts.look({"a": trains(12), "b": trains(12), "c": trains(12)}, 12.0) == frozenset()


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abcd"), st.tuples(st.sampled_from(WorkerState), st.integers(-1, 50)), max_size=4
        ),
        max_size=60,
    )
)
def test_only_who_waits_is_ever_withdrawn_and_never_for_long(looks: list[dict[str, tuple[WorkerState, int]]]) -> None:
    hosts, since = UnusedHosts(), dict[str, int]()
    for second, look in enumerate(looks):
        usable = {uid: WorkerView(state=state, step=step) for uid, (state, step) in look.items()}
        withdrawn = hosts.look(usable, float(second))
        assert withdrawn <= {uid for uid, worker in usable.items() if worker.state is WorkerState.WAITING}
        since = {uid: since.get(uid, second) for uid in withdrawn}
        assert all(second - began < WITHDRAWN_SECONDS for began in since.values())
