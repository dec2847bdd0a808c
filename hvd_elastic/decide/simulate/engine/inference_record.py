"""How long pods of inference waited."""

from collections.abc import Sequence

from hvd_elastic.decide.simulate.outcome import InferenceWaiting


def inference_waiting(seconds: Sequence[float], never: int) -> InferenceWaiting:
    """Of the pods that ran; `never`: those that had no room at the end of the day."""
    ordered = sorted(seconds)
    return InferenceWaiting(
        pods=len(ordered) + never,
        p50=_quantile(ordered, 0.5),
        p99=_quantile(ordered, 0.99),
        max=ordered[-1] if ordered else 0.0,
        never=never,
    )


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Between the two nearest values, in proportion. 0 if there are none."""
    if not ordered:
        return 0.0
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
