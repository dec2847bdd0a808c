"""What follows when a slot's process ends, for every phase, code and past."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.worker.slot_phase import FAILED_STARTS_LIMIT, NextPhase, SlotHistory, SlotPhase, after_end

codes = st.integers(0, 255)
histories = st.builds(
    SlotHistory, failed_starts=st.integers(0, 3), lost_standbys=st.integers(0, 50), is_cold=st.booleans()
)


def end(
    phase: SlotPhase,
    code: int = 1,
    history: SlotHistory | None = None,
    *,
    delivered: bool = True,
    replaced: bool = False,
) -> NextPhase:
    return after_end(phase, code, history or SlotHistory(), is_delivered=delivered, is_replaced=replaced)


@given(codes, histories, st.booleans(), st.booleans())
def test_a_slot_is_done_only_after_a_success_that_the_launcher_knows(
    code: int, history: SlotHistory, delivered: bool, replaced: bool
) -> None:
    for phase in (SlotPhase.WARMING, SlotPhase.WAITING, SlotPhase.TRAINING):
        following = after_end(phase, code, history, is_delivered=delivered, is_replaced=replaced)
        done = phase is SlotPhase.TRAINING and code == 0 and delivered and not replaced
        assert (following.phase is SlotPhase.DONE) == done
        assert 0 <= following.delay_seconds <= 30


@given(codes, histories)
def test_a_training_process_is_followed_by_a_standby_at_once(code: int, history: SlotHistory) -> None:
    following = end(SlotPhase.TRAINING, code, history, delivered=False)
    assert (following.phase, following.delay_seconds) == (SlotPhase.RESTING, 0.0)


def test_two_failed_starts_leave_the_script_to_the_launcher() -> None:
    history = SlotHistory()
    for attempt in range(1, FAILED_STARTS_LIMIT + 1):
        following = end(SlotPhase.WARMING, 1, history)
        history = following.history
        assert (following.phase is SlotPhase.COLD) == (attempt == FAILED_STARTS_LIMIT)


def test_after_a_cold_run_one_failed_start_is_enough() -> None:
    cold = end(SlotPhase.WARMING, 1, SlotHistory(failed_starts=1)).history
    again = end(SlotPhase.TRAINING, 1, cold)
    assert again.phase is SlotPhase.RESTING
    assert end(SlotPhase.WARMING, 1, again.history).phase is SlotPhase.COLD


def test_a_script_that_ends_well_before_init_is_not_run_ahead_again() -> None:
    assert end(SlotPhase.WARMING, 0).phase is SlotPhase.COLD


def test_standbys_that_are_killed_again_and_again_come_back_later_and_later() -> None:
    history, delays = SlotHistory(), []
    for _ in range(8):
        following = end(SlotPhase.WAITING, 137, history)
        history = following.history
        delays.append(following.delay_seconds)
    assert delays == [0, 1, 2, 4, 8, 16, 30, 30]
    assert end(SlotPhase.TRAINING, 1, history).history.lost_standbys == 0
