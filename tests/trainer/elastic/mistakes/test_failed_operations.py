"""When worlds that end by refused operations are a mistake in the script."""

import pytest

from hvd_elastic.trainer.elastic.mistakes.failed_operations import WORLDS, FailedOperations, failure_words, is_refused

REFUSED = "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [1], but another rank sent [2]."
LOST = "Horovod has been shut down. This was caused by an exception on one of the ranks"


def test_the_same_step_again_and_again_is_a_mistake() -> None:
    failed = FailedOperations()
    assert [failed.note(REFUSED, 4) for _ in range(WORLDS - 1)] == [None] * (WORLDS - 1)
    mistake = failed.note(REFUSED, 4)
    assert mistake is not None
    assert REFUSED in mistake
    assert "after step 4" in mistake


def test_a_commit_between_them_is_progress() -> None:
    failed = FailedOperations()
    assert [failed.note(REFUSED, step) for step in range(10)] == [None] * 10


def test_a_lost_process_between_them_may_be_the_cause() -> None:
    failed = FailedOperations()
    assert [failed.note(error, 4) for error in (REFUSED, REFUSED, LOST, REFUSED, REFUSED)] == [None] * 5


@pytest.mark.parametrize("error", [LOST, "[/gloo/transport/tcp/pair.cc:446] Connection closed by peer", ""])
def test_an_error_of_a_lost_rank_is_no_refusal(error: str) -> None:
    assert not is_refused(error)


@pytest.mark.parametrize(
    "error",
    [
        "Mismatched data types: One rank had type float32, but another rank had type float64.",
        "Mismatched operations: One rank did an ALLREDUCE, but another rank did an BROADCAST.",
        "Rank zero tried to ALLGATHER a rank-zero tensor.",
        "Broadcast is not supported with Join at this time.",
    ],
)
def test_what_the_coordinator_refuses(error: str) -> None:
    assert is_refused(error)


def test_what_the_log_says_of_a_lost_process() -> None:
    lost = "a process was lost, back to the last commit: the launcher says which, and why"
    assert failure_words("Horovod has been shut down. This was caused by an exception on one of the ranks ...") == lost
    gloo = "[/build/gloo/transport/tcp/pair.cc:589] Read error [127.0.0.1]:30083: Connection reset by peer"
    assert failure_words(gloo) == f"{lost} (Read error [127.0.0.1]:30083: Connection reset by peer)"
    assert failure_words("Mismatched shapes").startswith("an operation has failed")
