"""The processes of a job: by number, by place, and which of them are the members of the present world."""

from collections.abc import Iterator

from hvd_elastic.launcher.core.process import Process, ProcessPhase
from hvd_elastic.launcher.core.slot_placement import Key, Slot


class Roster:
    """Every process that was started and has not ended.

    Of those with the same place at most one is *present*; the others were told to leave, and are only waited for.
    """

    def __init__(self) -> None:
        self.slots: tuple[Slot, ...] = ()
        """The present world; empty before the first one and when all of its processes are gone."""
        self.generation = 0
        """How many worlds there were, with the present one."""
        self.newcomers_join = False
        """Whether a newcomer has asked at the barrier, as those of this project do and stock ones never do."""
        self._processes: dict[int, Process] = {}
        self._present: dict[Key, Process] = {}
        self._members: dict[Key, int] = {}
        self._count = 0

    def __iter__(self) -> Iterator[Process]:
        """All, in the order of their starts; safe against changes meanwhile."""
        return iter(list(self._processes.values()))

    def present(self) -> list[Process]:
        """Those that were not told to leave."""
        return list(self._present.values())

    def at(self, key: Key) -> Process | None:
        """Who is present in a place."""
        return self._present.get(key)

    def start(self, slot: Slot, *, told: int, phase: ProcessPhase, now: float) -> Process:
        """A new process in a place that nobody is present in."""
        self._count += 1
        process = Process(number=self._count, slot=slot, told=told, phase=phase, since=now)
        self._processes[process.number] = self._present[slot.key] = process
        return process

    def ended(self, number: int) -> Process | None:
        """The process has ended; None if it is not known."""
        return self._processes.pop(number, None)

    def dismiss(self, process: Process) -> None:
        """It is not present any more."""
        if self._present.get(process.key) is process:
            del self._present[process.key]

    def form(self, slots: tuple[Slot, ...]) -> None:
        """From now on those who are present in these places are the world."""
        self.generation += 1
        self.slots = slots
        self._members = {slot.key: self._present[slot.key].number for slot in slots}

    def dissolve(self) -> None:
        """There is no world any more."""
        self.slots, self._members = (), {}

    def is_member(self, process: Process) -> bool:
        """Whether it is part of the present world."""
        return self._members.get(process.key) == process.number

    def slot_of(self, member: Process) -> Slot:
        """A member's place in the present world; it may not have been told yet."""
        return next(slot for slot in self.slots if slot.key == member.key)

    def alive(self) -> list[Process]:
        """The members that are present, by rank."""
        there = (self._present.get(slot.key) for slot in self.slots)
        return [process for process in there if process and self.is_member(process)]

    def is_whole(self) -> bool:
        """Whether all members are present."""
        return len(self.alive()) == len(self.slots)

    def leaving(self) -> set[Key]:
        """The places in which a process has been told to leave and is still there."""
        return {process.key for process in self._processes.values() if process.phase is ProcessPhase.LEAVING}

    def ending(self) -> set[str]:
        """The hosts on which there are only processes that were told to leave."""
        return {alias for alias, _ in self.leaving()} - {process.alias for process in self._present.values()}
