"""The next resize, until it happens: its causes so far, and when the pause began."""

from hvd_elastic.launcher.core.actions import WorldResized
from hvd_elastic.launcher.core.resize_causes import ResizeCause


class PendingResize:
    """Collects what has happened since the current world began to run."""

    def __init__(self) -> None:
        self._causes: dict[ResizeCause, None] = {}
        self._size_before = 0
        self._pause_began: float | None = None

    @property
    def causes(self) -> tuple[ResizeCause, ...]:
        """Each cause once, in the order of their first appearance."""
        return tuple(self._causes)

    def add(self, *causes: ResizeCause) -> None:
        """Add causes of the next world."""
        self._causes.update(dict.fromkeys(causes))

    def begin_pause(self, now: float) -> None:
        """A member was notified, has died, or asks for a place. The first of these begins the pause."""
        if self._pause_began is None:
            self._pause_began = now

    def end_pause(self, generation: int, size: int, now: float) -> WorldResized:
        """The next world runs. What comes from here on counts towards the one after it."""
        resized = WorldResized(
            generation=generation,
            before=self._size_before,
            after=size,
            causes=self.causes,
            pause_seconds=None if self._pause_began is None else now - self._pause_began,
        )
        self._causes, self._size_before, self._pause_began = {}, size, None
        return resized
