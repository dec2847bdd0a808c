"""Newcomers: processes that are started while the others train, and join in the next resize."""

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.hosts.next_hosts import oldest_first
from hvd_elastic.launcher.core.process_control import ProcessControl
from hvd_elastic.launcher.core.processes.process import LATE, Deadline, ProcessPhase
from hvd_elastic.launcher.core.world_state import WorldState


class Newcomers:
    """Starts processes ahead of need and ends those that cannot join any more."""

    def __init__(self, state: WorldState, control: ProcessControl) -> None:
        self._state, self._control = state, control

    def end_useless(self, eligible: tuple[Host, ...], now: float) -> None:
        """End newcomers whose host has gone, and write off those that take too long to start."""
        aliases = {host.alias for host in eligible}
        for process in self._state.processes.present():
            if not self._state.processes.is_member(process) and process.alias not in aliases:
                self._control.end(process, "its host has gone", at_once=False)
            elif process.phase is ProcessPhase.STARTED:
                # Without a deadline its host would stay unused for good.
                at = process.phase_since + self._state.limits.first_start_timeout
                self._control.write_off_late([(process, Deadline(at=at, reason=LATE))], now)

    def start(self, eligible: tuple[Host, ...], now: float) -> None:
        """Start a process in every free slot. Only for workers that use the barrier: others would not wait there."""
        if not self._state.processes.newcomers_join:
            return
        leaving = self._state.processes.leaving()
        for slot in self._state.place(oldest_first(eligible, self._state.processes.slots)):
            if self._state.processes.at(slot.key) is None and slot.key not in leaving:
                self._control.start(slot, generation=-1, phase=ProcessPhase.STARTED, now=now)
