"""What follows when a slot's process ends, for every phase, code and past."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.worker.slot_phase import FAILED_STARTS_LIMIT, Next, SlotHistory, SlotPhase, after_end

codes = st.integers(0, 255)
records = st.builds(SlotHistory, failed_starts=st.integers(0, 3), lost_standbys=st.integers(0, 50), cold=st.booleans())


def end(
    phase: SlotPhase, code: int = 1, record: SlotHistory | None = None, *, delivered: bool = True, claimed: bool = False
) -> Next:
    return after_end(phase, code, record or SlotHistory(), delivered=delivered, claimed=claimed)


@given(codes, records, st.booleans(), st.booleans())
def test_a_slot_is_done_only_after_a_success_that_the_launcher_knows(
    code: int, record: SlotHistory, delivered: bool, claimed: bool
) -> None:
    for phase in (SlotPhase.WARMING, SlotPhase.WAITING, SlotPhase.TRAINING):
        coming = after_end(phase, code, record, delivered=delivered, claimed=claimed)
        done = phase is SlotPhase.TRAINING and code == 0 and delivered and not claimed
        assert (coming.phase is SlotPhase.DONE) == done
        assert 0 <= coming.delay_seconds <= 30


@given(codes, records)
def test_a_training_process_is_followed_by_a_standby_at_once(code: int, record: SlotHistory) -> None:
    coming = end(SlotPhase.TRAINING, code, record, delivered=False)
    assert (coming.phase, coming.delay_seconds) == (SlotPhase.RESTING, 0.0)


def test_two_failed_starts_leave_the_script_to_the_launcher() -> None:
    record = SlotHistory()
    for attempt in range(1, FAILED_STARTS_LIMIT + 1):
        coming = end(SlotPhase.WARMING, 1, record)
        record = coming.record
        assert (coming.phase is SlotPhase.COLD) == (attempt == FAILED_STARTS_LIMIT)


def test_after_a_cold_run_one_failed_start_is_enough() -> None:
    cold = end(SlotPhase.WARMING, 1, SlotHistory(failed_starts=1)).record
    again = end(SlotPhase.TRAINING, 1, cold)
    assert again.phase is SlotPhase.RESTING
    assert end(SlotPhase.WARMING, 1, again.record).phase is SlotPhase.COLD


def test_a_script_that_ends_well_before_init_is_not_run_ahead_again() -> None:
    assert end(SlotPhase.WARMING, 0).phase is SlotPhase.COLD


def test_standbys_that_are_killed_again_and_again_come_back_later_and_later() -> None:
    record, delays = SlotHistory(), []
    for _ in range(8):
        coming = end(SlotPhase.WAITING, 137, record)
        record = coming.record
        delays.append(coming.delay_seconds)
    assert delays == [0, 1, 2, 4, 8, 16, 30, 30]
    assert end(SlotPhase.TRAINING, 1, record).record.lost_standbys == 0
