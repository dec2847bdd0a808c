"""Which samples a job has trained with, as its processes have told."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

Taken = dict[int, list[dict[str, Any]]]
"""By step: what each rank has told of it."""


def taken(told: Iterable[dict[str, Any]]) -> tuple[Taken, dict[int, Counter[int]]]:
    """Return the steps that were not undone, and how often each epoch has had each sample in them."""
    steps: Taken = {}
    for event in sorted(told, key=lambda each: float(each["time"])):
        ranks = steps.setdefault(event["step"], [])
        if ranks and ranks[0]["size"] != event["size"]:  # it was undone, and is taken again
            ranks.clear()
        ranks.append(event)
    seen: dict[int, Counter[int]] = {}
    for ranks in steps.values():
        for event in ranks:
            seen.setdefault(event["epoch"], Counter()).update(event["samples"])
    return steps, seen
