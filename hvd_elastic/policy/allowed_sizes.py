"""The numbers of workers that a job may train with, where its description names some (`workers.sizes`)."""

from collections.abc import Iterable

from hvd_elastic.system.untrusted_values import decimal_count


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read `1,2,4`. Raises ValueError."""
    sizes = tuple(size for one in text.split(",") if (size := decimal_count(one)))
    if len(sizes) != text.count(",") + 1:
        raise ValueError(f"is not a list of sizes: {text[:80]}")
    return sizes


def largest_size(sizes: Iterable[int], available: int) -> int:
    """The largest of `sizes` for which so many workers (or slots) are enough. Without sizes, or below the smallest, as
    many as there are: with too few, training waits.
    """
    return max((size for size in sizes if size <= available), default=available)
