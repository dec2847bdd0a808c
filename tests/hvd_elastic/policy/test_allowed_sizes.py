"""Which numbers of workers train where only some are allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.policy.allowed_sizes import largest_size, parse_sizes

allowed = st.sets(st.integers(1, 64), max_size=6).map(sorted)


@given(allowed, st.integers(0, 70))
def test_nothing_larger_that_is_allowed_fits(sizes: list[int], available: int) -> None:
    size = largest_size(sizes, available)
    assert 0 <= size <= available
    if any(one <= available for one in sizes):
        assert size in sizes
        assert not [one for one in sizes if size < one <= available]
    else:
        assert size == available, "too few, or any number is allowed"


def test_a_list_of_sizes_is_read_whole_or_not_at_all() -> None:
    assert parse_sizes("1,2,8") == (1, 2, 8)
    for text in ("", "1,", "1,0", "1;2", "-1", "x", "1.5"):
        with pytest.raises(ValueError, match="is not a list of sizes"):
            parse_sizes(text)
