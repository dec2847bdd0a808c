"""The barrier before `hvd.init()`: no member of a new world passes before all of them are there."""

import math

from hvd_elastic.launcher.core.process_control import ProcessControl
from hvd_elastic.launcher.core.processes.process import LATE, Deadline, Process, ProcessPhase
from hvd_elastic.launcher.core.world_state import WorldState
from hvd_elastic.mpijob.contract import JoinAnswer


class JoinBarrier:
    """Works on the members of the world that is forming."""

    def __init__(self, state: WorldState, control: ProcessControl) -> None:
        self._state, self._control = state, control
        self._waits_in = -1
        """The generation in which the members that have arrived wait for the others."""
        self._last_request = -math.inf
        """When any process has asked for something."""

    def is_waiting(self) -> bool:
        """Whether, as of the last check, all that keeps the current world from running is that members are late."""
        return self._waits_in == self._state.processes.generation

    def check(self, now: float) -> bool:
        """Whether all members have arrived. If one of them will not come, those that wait are sent back."""
        members = self._state.processes.alive()
        recall = not self._state.processes.is_whole() or any(p.phase is ProcessPhase.ASKING for p in members)
        if not recall and all(p.phase is ProcessPhase.ARRIVED for p in members):
            return True
        # While a world forms, a RUNNING process is one that was sent back and has not asked again.
        late = [p for p in members if p.phase in {ProcessPhase.ASSIGNED, ProcessPhase.RUNNING}]
        has_state = any(p.holds_state for p in members)
        others_wait = any(p.ticket is not None for p in members)
        self._state.signs.start_pinging(now)
        self._state.signs.ping(members, now)
        deadlines = ((p, self._deadline(p, has_state=has_state, others_wait=others_wait)) for p in late)
        recall |= self._control.write_off_late(deadlines, now) < len(late)
        recall |= any(
            p.never_asked and p.phase is ProcessPhase.ASSIGNED and self._state.hosts.has_left(p.alias) for p in late
        )
        self._waits_in = -1 if recall else self._state.processes.generation
        if recall:
            self._send_back(members, now)
        return False

    def request_came(self, now: float) -> None:
        """A process has asked for something: those that were sent back together are still coming."""
        self._last_request = now

    def expect(self, process: Process, now: float) -> None:
        """A late member asks for its place, or was sent back for another one: its time to arrive counts from here."""
        process.phase_since = now
        self._control.write_off_late([(process, self._deadline(process, has_state=True))], now)

    def release(self, now: float) -> None:
        """Let all members into `hvd.init()`."""
        self._state.signs.stop_pinging()
        for process in self._state.processes.alive():
            self._control.release(process, now)
            # Workers that never report their first sync count as holders from here on.
            process.holds_state |= self._state.processes.state_exists and not self._state.processes.reports_sync

    def _send_back(self, members: list[Process], now: float) -> None:
        for process in members:
            if process.phase is ProcessPhase.ARRIVED and process.uses_barrier:
                self._control.reply(process, JoinAnswer.AGAIN)
                process.enter(ProcessPhase.RUNNING, now)
                self.expect(process, now)
            elif process.phase is ProcessPhase.ARRIVED and process.ticket is not None:
                process.enter(ProcessPhase.ASKING, now)

    def _deadline(self, process: Process, *, has_state: bool, others_wait: bool = False) -> Deadline:
        """Until when the members wait for this one.

        Args:
            process: a late member.
            has_state: whether one of the members trains.
            others_wait: whether one of them has a request open.
        """
        limits, since = self._state.limits, process.phase_since
        if process.never_asked and process.phase is ProcessPhase.ASSIGNED and not process.uses_barrier:
            patience = limits.start_timeout if has_state else limits.first_start_timeout
        elif process.registered:
            patience = limits.hang_timeout
        else:
            # It waits at the barrier, and comes back from there at once. Thousands come one after the other: while
            # some do, time alone says nothing of those that have not yet.
            patience = min(limits.silence, limits.hang_timeout)
            since = min(max(since, self._last_request), since + limits.hang_timeout - patience)
        silent = self._state.signs.deadline(process, others_wait=others_wait)
        return silent or Deadline(at=since + patience, reason=LATE)
