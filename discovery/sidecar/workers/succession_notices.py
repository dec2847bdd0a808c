"""Tells workers that leave that no other worker can take their state over, as long as that is so."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""Between two looks. What the workers are told holds for NO_SUCCESSOR_SECONDS."""


class SuccessionNotices:
    """Repeats the word from look to look. Not thread-safe."""

    def __init__(self, announce: Callable[[Sequence[str]], int]) -> None:
        """`announce` sends the word to these addresses, and returns how many received it."""
        self._announce = announce
        self._before: frozenset[str] = frozenset()
        self._has_told = False

    def take(self, leaving: Mapping[str, str]) -> None:
        """Send the word to those of whom the rule has said so twice in a row.

        The operator makes a pod again that is gone, and the scheduler may have a place for it. Until the new one is
        seen, a moment later, there is neither of them.

        Args:
            leaving: UID to address of the workers that leave and have no successor now (`succession`).
        """
        told = [address for uid, address in leaving.items() if uid in self._before]
        self._before = frozenset(leaving)
        if told:
            received = self._announce(told)
            if not self._has_told:
                log.warning("all workers leave, and no other can take over: %d of %d were told", received, len(told))
        self._has_told = bool(told)
