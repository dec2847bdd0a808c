"""When the coordinator (rank 0) of the running world is notified that another world is wanted."""

import math
from collections.abc import Sequence

from hvd_elastic.launcher.core.actions import NotifyCoordinator
from hvd_elastic.launcher.core.processes.process import ProcessPhase
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey
from hvd_elastic.launcher.core.world_state import WorldState


class HostUpdateNotices:
    """Level-triggered: the coordinator is notified again and again while the running world is not the wanted one."""

    def __init__(self, state: WorldState) -> None:
        self._state = state
        self._next = -math.inf
        """No notice before this time, unless the wanted world changes."""
        self._announced: tuple[tuple[SlotKey, str], ...] | None = None
        """The world that was wanted when the last notice was sent."""

    def restart(self, now: float) -> None:
        """A new world runs: notices to the last one do not count."""
        self._next, self._announced = now, None

    def postpone(self, now: float) -> None:
        """The members are about to notice by themselves."""
        self._next = now + self._state.limits.notify_again

    def not_delivered(self, now: float) -> None:
        """The last notice did not reach the coordinator."""
        self._next = now + self._state.limits.notify_retry

    def send(self, slots: Sequence[Slot], now: float) -> bool:
        """Notify the coordinator if the wanted `slots` are not the running world and a notice is due.

        Args:
            slots: the wanted world; empty if the running world cannot stay and there are too few slots for another.
            now: seconds.

        Returns:
            Whether a notice is sent.
        """
        wanted = tuple(slot.signature for slot in slots)
        coordinator = self._state.processes.at(self._state.processes.slots[0].key)
        whole = self._state.processes.is_whole()
        is_there = whole and wanted == tuple(slot.signature for slot in self._state.processes.slots)
        if is_there or not coordinator or not coordinator.registered:
            self._announced = None
            return False
        if whole and self._is_worth_waiting(slots, now):
            return False
        due = now >= self._next or (wanted != self._announced and whole)
        if due:
            self._announced, self._next = wanted, now + self._state.limits.notify_again
            self._state.actions.add(NotifyCoordinator(key=coordinator.key))
        self._state.actions.wake_by(self._next)
        return due

    def _is_worth_waiting(self, slots: Sequence[Slot], now: float) -> bool:
        """Whether to wait for newcomers that were started, because the wanted world only adds to the running one."""
        if not {slot.key for slot in self._state.processes.slots} <= {slot.key for slot in slots}:
            return False
        present = self._state.processes.present()
        first = min((p.phase_since for p in present if p.phase is ProcessPhase.WAITING), default=-math.inf)
        deadline = first + self._state.limits.gather
        if now >= deadline or not any(p.phase is ProcessPhase.STARTED for p in present):
            return False
        self._state.actions.wake_by(deadline)
        return True
