"""The processes of a job: by number, by place, and which of them are the members of the current world."""

from collections.abc import Iterator

from hvd_elastic.launcher.core.processes.process import Process, ProcessPhase
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey


class ProcessTable:
    """Every process that was started and has not ended.

    At most one process in each place is *present*. The others there were told to leave and have not ended yet.
    """

    def __init__(self) -> None:
        self.slots: tuple[Slot, ...] = ()
        """The current world; empty before the first one and when all of its processes are gone."""
        self.generation = 0
        """How many worlds there have been, the current one included."""
        self.newcomers_join = False
        """Whether a newcomer has asked at the barrier, as this project's workers do and stock ones never do."""
        self.state_exists = False
        """Whether a process has held the training state since the job, or its last begin from a checkpoint, began."""
        self.state_is_dispensable = False
        """Whether a holder of the state has left by itself since the last world was formed. Only a process does whose
        last commit is durable, or that knows of no worker that could take it over; and all members wait for their next
        world with the same commit."""
        self.reports_sync = False
        """Whether workers report their first sync, as this project's do and stock ones never do."""
        self._processes: dict[int, Process] = {}
        self._present: dict[SlotKey, Process] = {}
        self._by_host: dict[str, dict[int, Process]] = {}
        """Those that are present, by alias and number."""
        self._members: dict[SlotKey, int] = {}
        self._places: dict[SlotKey, Slot] = {}
        self._count = 0

    def __iter__(self) -> Iterator[Process]:
        """All processes in the order in which they were started; safe while the table changes."""
        return iter(list(self._processes.values()))

    def present(self) -> list[Process]:
        """The processes that were not told to leave."""
        return list(self._present.values())

    def at(self, key: SlotKey) -> Process | None:
        """The process that is present in a place."""
        return self._present.get(key)

    def on_host(self, alias: str) -> list[Process]:
        return list(self._by_host.get(alias, {}).values())

    def start(self, slot: Slot, *, generation: int, phase: ProcessPhase, now: float) -> Process:
        """Add a process in a place where no process is present."""
        self._count += 1
        process = Process(number=self._count, slot=slot, slot_generation=generation, phase=phase, phase_since=now)
        self._processes[process.number] = self._present[slot.key] = process
        self._by_host.setdefault(process.alias, {})[process.number] = process
        return process

    def ended(self, number: int) -> Process | None:
        """Remove a process that has ended; None if it is not known."""
        return self._processes.pop(number, None)

    def dismiss(self, process: Process) -> None:
        """The process was told to leave, or has ended: it is not present any more."""
        if self._present.get(process.key) is process:
            del self._present[process.key]
            there = self._by_host[process.alias]
            del there[process.number]
            if not there:
                del self._by_host[process.alias]

    def form(self, slots: tuple[Slot, ...]) -> None:
        """Make the processes that are present in these places the members of a new world."""
        self.generation += 1
        self.slots = slots
        self._places = {slot.key: slot for slot in slots}
        self._members = {key: self._present[key].number for key in self._places}

    def dissolve(self) -> None:
        """There is no world any more."""
        self.slots, self._places, self._members = (), {}, {}

    def gains_state(self, process: Process) -> None:
        """The process holds the training state from now on."""
        process.holds_state = self.state_exists = True

    def forget_state(self) -> None:
        """No process holds the training state any more. The next world begins from the durable checkpoint."""
        self.state_exists = False

    def is_member(self, process: Process) -> bool:
        """Whether the process is part of the current world."""
        return self._members.get(process.key) == process.number

    def slot_of(self, member: Process) -> Slot:
        """A member's place in the current world; it may not know that place yet."""
        return self._places[member.key]

    def alive(self) -> list[Process]:
        """The members that are present, by rank."""
        there = ((self._present.get(key), number) for key, number in self._members.items())
        return [process for process, number in there if process and process.number == number]

    def is_whole(self) -> bool:
        """Whether all members are present."""
        return len(self.alive()) == len(self.slots)

    def leaving(self) -> set[SlotKey]:
        """The places in which a process was told to leave and has not ended yet."""
        return {process.key for process in self._processes.values() if process.phase is ProcessPhase.LEAVING}

    def ending(self) -> set[str]:
        """The aliases of hosts on which every process was told to leave."""
        return {alias for alias, _ in self.leaving()} - self._by_host.keys()
