"""Least squares in which no unknown is negative, for a handful of unknowns.

The solution is the plain least-squares solution over the unknowns that are not zero in it. So with few unknowns it is
found by solving for each set of them, and keeping the best solution without a negative value (Lawson and Hanson,
"Solving Least Squares Problems", 1974, chapter 23, whose algorithm only visits fewer of the sets).
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

_SINGULAR: Final = 1e-9
"""A column that keeps less than this of its squared length beside the columns before it depends on them."""

Row = Sequence[float]


def nonnegative_least_squares(rows: Sequence[Row], targets: Sequence[float]) -> tuple[float, ...]:
    """The values that are not negative and whose weighted sums come closest to the targets.

    Where several do equally well, those with the fewest values above zero, and of these the first columns.

    Args:
        rows: one for each target, with one factor for each unknown. At most eight unknowns: each set of them is tried.
        targets: what each row should come to.
    """
    count = len(rows[0])
    gram = [[sum(row[i] * row[j] for row in rows) for j in range(count)] for i in range(count)]
    moments = [sum(row[i] * target for row, target in zip(rows, targets, strict=True)) for i in range(count)]
    power = sum(target * target for target in targets)
    best, least = (0.0,) * count, power
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            values = _solved([[gram[i][j] for j in chosen] for i in chosen], [moments[i] for i in chosen])
            if values is None or min(values) < 0:
                continue
            rest = power - sum(value * moments[i] for value, i in zip(values, chosen, strict=True))
            if rest < least - _SINGULAR * power:
                full = dict(zip(chosen, values, strict=True))
                best, least = tuple(full.get(i, 0.0) for i in range(count)), rest
    return best


def _solved(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Solve a symmetric system by Cholesky's decomposition, scaled to a diagonal of ones; None if it is singular."""
    count = len(right)
    scales = [matrix[i][i] ** 0.5 for i in range(count)]
    if min(scales) <= 0:
        return None
    lower = [[0.0] * count for _ in range(count)]
    for i in range(count):
        for j in range(i + 1):
            rest = matrix[i][j] / (scales[i] * scales[j]) - sum(lower[i][k] * lower[j][k] for k in range(j))
            if i == j and rest <= _SINGULAR:
                return None
            lower[i][j] = rest**0.5 if i == j else rest / lower[j][j]
    forward: list[float] = []
    for i in range(count):
        done = sum(lower[i][k] * forward[k] for k in range(i))
        forward.append((right[i] / scales[i] - done) / lower[i][i])
    backward = [0.0] * count
    for i in reversed(range(count)):
        done = sum(lower[k][i] * backward[k] for k in range(i + 1, count))
        backward[i] = (forward[i] - done) / lower[i][i]
    return [value / scale for value, scale in zip(backward, scales, strict=True)]
