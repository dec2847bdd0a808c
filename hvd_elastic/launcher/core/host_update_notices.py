"""When the coordinator of the running world is notified that another one is wanted."""

import math
from collections.abc import Sequence

from hvd_elastic.launcher.core.actions import Agenda, Notify
from hvd_elastic.launcher.core.process import ProcessPhase, WorldLimits
from hvd_elastic.launcher.core.roster import Roster
from hvd_elastic.launcher.core.slot_placement import Key, Slot


class HostUpdateNotices:
    """Level-triggered: as long as the running world is not the wanted one, say so."""

    def __init__(self, rules: WorldLimits, roster: Roster, agenda: Agenda) -> None:
        self._rules = rules
        self._roster = roster
        self._agenda = agenda
        self._next = -math.inf
        self._told: tuple[tuple[Key, str], ...] | None = None
        """What was wanted when the last notice was sent."""

    def renew(self, now: float) -> None:
        """A world begins to run: what was said to the last one does not count."""
        self._next, self._told = now, None

    def postpone(self, now: float) -> None:
        """The members are about to notice by themselves."""
        self._next = now + self._rules.notify_again

    def failed(self, now: float) -> None:
        """The last one was not delivered."""
        self._next, self._told = now + self._rules.notify_retry, None

    def send(self, slots: Sequence[Slot], now: float) -> bool:
        """Have the coordinator notified, if these wanted slots are not the running world and it is time; whether it is.

        No slots at all: the running world cannot stay, and there are too few for another one.
        """
        wanted = tuple(slot.signature for slot in slots)
        coordinator = self._roster.at(self._roster.slots[0].key)
        whole = self._roster.is_whole()
        is_there = whole and wanted == tuple(slot.signature for slot in self._roster.slots)
        if is_there or not coordinator or not coordinator.registered:
            self._told = None
            return False
        if whole and self._is_worth_waiting(slots, now):
            return False
        due = now >= self._next or (wanted != self._told and whole)
        if due:
            self._told, self._next = wanted, now + self._rules.notify_again
            self._agenda.add(Notify(key=coordinator.key))
        self._agenda.wake(self._next)
        return due

    def _is_worth_waiting(self, slots: Sequence[Slot], now: float) -> bool:
        """Whether more newcomers are on their way while all that those who wait would do is add to the world."""
        if not {slot.key for slot in self._roster.slots} <= {slot.key for slot in slots}:
            return False
        present = self._roster.present()
        first = min((p.since for p in present if p.phase is ProcessPhase.WAITING), default=-math.inf)
        deadline = first + self._rules.gather
        if now >= deadline or not any(p.phase is ProcessPhase.STARTED for p in present):
            return False
        self._agenda.wake(deadline)
        return True
