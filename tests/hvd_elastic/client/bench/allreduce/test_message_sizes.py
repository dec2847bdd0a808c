import pytest

from hvd_elastic.client.bench.allreduce.message_sizes import binary, message_sizes
from hvd_elastic.mpijob.problems import InvalidInputError


def test_powers_of_two_from_the_smallest_to_the_largest() -> None:
    sizes = message_sizes("1Ki", "1Gi")
    assert sizes[:2] == (1024, 2048)
    assert sizes[-1] == 2**30
    assert len(sizes) == 21
    assert message_sizes("4096", "4Ki") == (4096,)
    assert message_sizes("12", "100") == (12, 24, 48, 96)


def test_every_problem_is_said_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        message_sizes("3", "lots")
    first, second = caught.value.problems
    assert (first.path, first.value) == ("--min-bytes", "3")
    assert (second.path, second.value) == ("--max-bytes", "lots")
    assert "64Ki" in str(caught.value)


@pytest.mark.parametrize(("low", "high"), [("2Ki", "1Ki"), ("0", "1Ki"), ("1Ki", "1Ti"), ("1.5", "8")])
def test_what_cannot_be(low: str, high: str) -> None:
    with pytest.raises(InvalidInputError):
        message_sizes(low, high)


@pytest.mark.parametrize(("size", "text"), [(1024, "1Ki"), (2**26, "64Mi"), (2**30, "1Gi"), (1536, "1536")])
def test_sizes_as_people_write_them(size: int, text: str) -> None:
    assert binary(size) == text
