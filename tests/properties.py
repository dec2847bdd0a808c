"""How often hypothesis tries a property: seldom in `make test`, as often as it is worth in `make test-process`."""

from typing import Final

from hypothesis import HealthCheck, settings

QUICK: Final = "quick"
FULL: Final = "ci"

_QUICK_EXAMPLES: Final = 25
"""Of each property in `make test`: a mistake that shows in one of ten examples is still found nearly always."""


def register() -> None:
    """Make both profiles known, and take the quick one unless `--hypothesis-profile` says another.

    No test measures time: a machine under load must not fail them.
    """
    slow_is_fine = [HealthCheck.too_slow]
    settings.register_profile(QUICK, deadline=None, suppress_health_check=slow_is_fine, max_examples=_QUICK_EXAMPLES)
    settings.register_profile(FULL, deadline=None, suppress_health_check=slow_is_fine, max_examples=100)
    settings.load_profile(QUICK)


def examples(number: int) -> int:
    """Return how often to try a property that is worth `number` tries: at most a few of them in the quick profile."""
    return min(number, _QUICK_EXAMPLES) if settings.get_current_profile_name() == QUICK else number
