"""The members whose next request the last decision waits for."""

from hvd_elastic.launcher.core.processes.process import Process, ProcessPhase
from hvd_elastic.launcher.core.processes.process_table import ProcessTable

_EXPECTED = {
    ProcessPhase.ASKING: frozenset({ProcessPhase.ASKING, ProcessPhase.WAITING}),
    ProcessPhase.ARRIVED: frozenset({ProcessPhase.ARRIVED, ProcessPhase.ASSIGNED, ProcessPhase.WAITING}),
}
"""Into which phases processes go without consequence while others are awaited: a newcomer waits for the next world."""


class AwaitedMembers:
    """Tells which of the requests that come can change what is decided.

    A decision looks at all processes. Of N members that come to the barrier, or that ask for a place, only the last one
    changes it: if the world decided after each of them, N processes would cost N times N looks.
    """

    def __init__(self, processes: ProcessTable) -> None:
        self._processes = processes
        self._phase = ProcessPhase.ASKING
        """What they are to do: ask for a place, or arrive at the barrier."""
        self._numbers: set[int] = set()

    def find(self, *, at_barrier: bool) -> None:
        """The world has decided: find the members for whom it waits now.

        Once a member asks, the world is left when all others have asked too; until then none of the others matters.
        `at_barrier`: the world forms, and runs when all of its members have arrived.
        """
        members = self._processes.alive()
        asked = any(process.phase is ProcessPhase.ASKING for process in members)
        self._phase = ProcessPhase.ASKING if asked else ProcessPhase.ARRIVED
        self._numbers.clear()
        if asked:
            self._numbers.update(p.number for p in members if p.phase is not ProcessPhase.ASKING and not p.is_cold)
        elif at_barrier:
            self._numbers.update(p.number for p in members if p.phase is not ProcessPhase.ARRIVED)

    def others_are_missing(self, process: Process) -> bool:
        """Note what a process has done. Whether the decision still waits for others, so that nothing follows."""
        if process.phase is self._phase:
            self._numbers.discard(process.number)
        return bool(self._numbers) and process.phase in _EXPECTED[self._phase]

    def forget(self) -> None:
        """Something else has changed: whatever comes next, the world decides."""
        self._numbers.clear()
