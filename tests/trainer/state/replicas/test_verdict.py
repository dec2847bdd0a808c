from collections.abc import Sequence

import pytest

from hvd_elastic.trainer.state.replicas.verdict import NEVER, Comparison, RankReport, Remedy


def report(held: int, *, rates: int = 0, alike_at: int = 4, went_back_from: int = NEVER) -> RankReport:
    return RankReport(tensors=held, rates=rates, alike_at=alike_at, went_back_from=went_back_from)


new = NEVER


@pytest.mark.parametrize(
    ("reports", "is_rounding", "remedy"),
    [
        pytest.param([report(1)] * 3, False, Remedy.NONE, id="alike"),
        pytest.param([report(1), report(2)], True, Remedy.MEND, id="by rounding"),
        pytest.param([report(1, alike_at=new), report(2, alike_at=new)], True, Remedy.MEND, id="from the first step"),
        pytest.param([report(1, alike_at=new), report(2, alike_at=new)], False, Remedy.STOP, id="since the beginning"),
        pytest.param([report(1), report(1), report(2, alike_at=new)], False, Remedy.STOP, id="since it joined"),
        pytest.param([report(1), report(2, alike_at=new)], False, Remedy.STOP, id="since one of two joined"),
        pytest.param([report(1, alike_at=new), report(2)], False, Remedy.STOP, id="rank 0 has joined"),
        pytest.param([report(1), report(1, alike_at=new), report(2)], False, Remedy.LEAVE_OUT, id="not the newcomer"),
        pytest.param([report(1), report(2), report(1)], False, Remedy.LEAVE_OUT, id="one of three"),
        pytest.param([report(2), report(1), report(1)], False, Remedy.LEAVE_OUT, id="rank 0 of three"),
        pytest.param([report(1), report(2)], False, Remedy.GO_BACK, id="one of two"),
        pytest.param([report(1), report(2), report(3)], False, Remedy.GO_BACK, id="each from each"),
        pytest.param([report(1)] * 3 + [report(2), report(3)], False, Remedy.GO_BACK, id="two at once"),
        pytest.param([report(1), report(2, went_back_from=9)], False, Remedy.STOP, id="again"),
        pytest.param([report(1), report(1), report(2, went_back_from=9)], False, Remedy.STOP, id="one of three, again"),
        pytest.param([report(1, rates=1), report(1, rates=2)], True, Remedy.STOP, id="learning rates"),
    ],
)
def test_what_is_done_about_workers_that_differ(
    reports: Sequence[RankReport], is_rounding: bool, remedy: Remedy
) -> None:
    assert Comparison(reports=reports).remedy(is_rounding=is_rounding) is remedy


def test_the_reference_is_one_of_most() -> None:
    comparison = Comparison(reports=[report(2), report(1), report(1), report(3)])
    assert (comparison.reference, comparison.differing) == (0, (1, 2, 3)), "no more than half hold the same"
    comparison = Comparison(reports=[report(2), report(1), report(1)])
    assert (comparison.reference, comparison.differing) == (1, (0,))
