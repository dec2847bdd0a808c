"""The barrier before `hvd.init()`: no member of a new world passes before all of them are there."""

from hvd_elastic.launcher.core.hosts.host_pool import HostPool
from hvd_elastic.launcher.core.processes.process import Process, ProcessPhase
from hvd_elastic.launcher.core.processes.process_control import LATE, Deadline, ProcessControl
from hvd_elastic.launcher.core.processes.process_table import ProcessTable
from hvd_elastic.launcher.core.signs_of_life import SignsOfLife
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.mpijob.contract import JoinAnswer


class JoinBarrier:
    """Works on the members of the world that is forming."""

    def __init__(
        self,
        limits: WorldLimits,
        processes: ProcessTable,
        *,
        control: ProcessControl,
        hosts: HostPool,
        signs: SignsOfLife,
    ) -> None:
        self._limits = limits
        self._signs = signs
        self._processes = processes
        self._control = control
        self._hosts = hosts

    def check(self, now: float) -> bool:
        """Whether all members have arrived. If one of them will not come, those that wait are sent back."""
        members = self._processes.alive()
        recall = not self._processes.is_whole() or any(p.phase is ProcessPhase.ASKING for p in members)
        if not recall and all(p.phase is ProcessPhase.ARRIVED for p in members):
            return True
        # While a world forms, a RUNNING process is one that was sent back and has not asked again.
        late = [p for p in members if p.phase in {ProcessPhase.ASSIGNED, ProcessPhase.RUNNING}]
        self._signs.doubt(now)
        self._signs.ping(members, now)
        in_time = [self._is_in_time(process, members, now) for process in late]
        recall |= not all(in_time)
        recall |= any(
            p.never_asked and p.phase is ProcessPhase.ASSIGNED and self._hosts.has_left(p.alias) for p in late
        )
        if recall:
            self._send_back(members, now)
        return False

    def release(self, now: float) -> None:
        """Let all members into `hvd.init()`."""
        self._signs.trust()
        for process in self._processes.alive():
            self._control.release(process, now)
            # Workers that never report their first sync count as holders from here on.
            process.holds_state |= self._processes.state_exists and not self._processes.reports_sync

    def _send_back(self, members: list[Process], now: float) -> None:
        for process in members:
            if process.phase is ProcessPhase.ARRIVED and process.uses_barrier:
                self._control.reply(process, JoinAnswer.AGAIN)
                process.enter(ProcessPhase.RUNNING, now)
            elif process.phase is ProcessPhase.ARRIVED and process.ticket is not None:
                process.enter(ProcessPhase.ASKING, now)

    def _is_in_time(self, process: Process, members: list[Process], now: float) -> bool:
        """Whether the members still wait for this one; if not, it is written off."""
        limits = self._limits
        if process.never_asked and process.phase is ProcessPhase.ASSIGNED and not process.uses_barrier:
            has_state = any(p.holds_state for p in members)
            patience = limits.start_timeout if has_state else limits.first_start_timeout
        elif process.registered:
            patience = limits.hang_timeout
        else:
            # It waits at the barrier, and comes back from there at once.
            patience = min(limits.silence, limits.hang_timeout)
        deadline = Deadline(at=process.phase_since + patience, reason=LATE)
        others_wait = any(member.ticket is not None for member in members)
        return self._control.check_deadline(
            process, self._signs.deadline(process, others_wait=others_wait) or deadline, now
        )
