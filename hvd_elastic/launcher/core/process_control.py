"""What is done to single processes: starting them, answering them, assigning places, ending them."""

import math
from collections.abc import Iterable

from hvd_elastic.launcher.core.actions import (
    AnswerRequest,
    EndProcess,
    FailFormation,
    LogWarning,
    StartProcess,
    Ticket,
)
from hvd_elastic.launcher.core.processes.exit_codes import ExitVerdict, explain
from hvd_elastic.launcher.core.processes.process import Deadline, Process, ProcessPhase
from hvd_elastic.launcher.core.resize_causes import CauseKind, ResizeCause
from hvd_elastic.launcher.core.slot_placement import REMOVED_RESPONSE, Slot
from hvd_elastic.launcher.core.world_state import WorldState
from hvd_elastic.mpijob.contract import JoinAnswer


class ProcessControl:
    """Each method changes the process table and adds the actions that follow from the change."""

    def __init__(self, state: WorldState) -> None:
        self._state = state

    def start(self, slot: Slot, *, generation: int, phase: ProcessPhase, now: float) -> None:
        """Start a process in a place where no process is present."""
        process = self._state.processes.start(slot, generation=generation, phase=phase, now=now)
        self._state.actions.add(StartProcess(number=process.number, slot=slot))

    # --- Requests ----------------------------------------------------------------------------------------------------

    def hold_request(self, process: Process, ticket: Ticket, *, join: bool, now: float) -> None:
        """Keep its request open until `reply` answers it."""
        # A client that asks again has given up its earlier request.
        self.close_request(process, JoinAnswer.WAIT)
        process.ticket, process.ticket_is_join, process.ticket_since = ticket, join, now
        if join:
            self._state.actions.wake_by(now + self._state.limits.join_hold)

    def reply(self, process: Process, text: str) -> None:
        """Answer its open request, if it has one."""
        if process.ticket is not None:
            self._state.actions.add(AnswerRequest(ticket=process.ticket, text=text))
            process.ticket = None

    def close_request(self, process: Process, at_barrier: JoinAnswer = JoinAnswer.AGAIN) -> None:
        """Answer its open request, if it has one, though nothing is decided for it: unanswered it holds a thread."""
        self.reply(process, at_barrier if process.ticket_is_join else REMOVED_RESPONSE)

    def assign(self, process: Process, slot: Slot, generation: int, now: float) -> None:
        """Give it its slot in this generation: it has asked for a place."""
        process.slot, process.slot_generation, process.never_asked = slot, generation, False
        if process.uses_barrier:
            self.reply(process, slot.response())
            process.enter(ProcessPhase.ASSIGNED, now)
        else:
            # From the answer a stock worker goes straight into hvd.init(), where it waits for the others no longer
            # than Gloo's time-out. It gets its answer when they are there.
            process.enter(ProcessPhase.ARRIVED, now)

    def hold_in_init(self, process: Process, ticket: Ticket, now: float) -> None:
        """A stock worker has entered `hvd.init()`: keep it there until the others come."""
        self.release_from_init(process)
        process.init_ticket = ticket
        process.enter(ProcessPhase.ARRIVED, now)

    def release_from_init(self, process: Process) -> None:
        """Let it go on in `hvd.init()`, if it is held there."""
        if process.init_ticket is not None:
            self._state.actions.add(AnswerRequest(ticket=process.init_ticket, text=""))
            process.init_ticket = None

    def release(self, process: Process, now: float) -> None:
        """All members are there: let it into `hvd.init()`, or go on in it."""
        # A member without an open request has not asked yet, or is a stock worker that never will.
        process.go_is_due = process.ticket is None
        self.reply(process, JoinAnswer.GO if process.ticket_is_join else process.slot.response())
        self.release_from_init(process)
        process.enter(ProcessPhase.RUNNING, now)

    def admit(self, process: Process, slot: Slot, generation: int, now: float) -> None:
        """Take it into the new world: assign the slot, or have it ask. A process that can do neither is ended."""
        if process.ticket is not None and not process.ticket_is_join:
            self.assign(process, slot, generation, now)
        elif process.never_asked and process.slot.signature == slot.signature:
            process.slot_generation, process.slot = generation, slot
            # It may have died at the barrier a moment ago. If it asks once more, it is alive.
            self.reply(process, JoinAnswer.WAIT)
            process.enter(ProcessPhase.ASSIGNED if process.init_ticket is None else ProcessPhase.ARRIVED, now)
        elif process.uses_barrier or self._state.processes.newcomers_join:
            self.reply(process, JoinAnswer.AGAIN)
            process.enter(ProcessPhase.ASSIGNED, now)
        else:
            # A stock newcomer enters hvd.init() with the place in its environment, which has changed since.
            self._state.hosts.hold(process.alias, now)
            self.end(process, "its place has changed before it came", at_once=False)

    # --- Leaving -----------------------------------------------------------------------------------------------------

    def let_go(self, process: Process, now: float) -> None:
        """There is no place for it any more. If it asks for one it is told to leave; otherwise it is ended."""
        if process.phase is ProcessPhase.ASKING:
            self.reply(process, REMOVED_RESPONSE)
            self._state.processes.dismiss(process)
            process.enter(ProcessPhase.LEAVING, now)
        else:
            self.end(process, "no place in the new world", at_once=False)

    def end(self, process: Process, reason: str, *, at_once: bool) -> None:
        """End it; `at_once`: kill it without asking."""
        self.close_request(process)
        self.release_from_init(process)
        self._state.processes.dismiss(process)
        process.phase = ProcessPhase.LEAVING
        process.phase_since = math.inf
        self._state.actions.add(EndProcess(number=process.number, at_once=at_once, reason=reason))

    def write_off_late(self, deadlines: Iterable[tuple[Process, Deadline]], now: float) -> int:
        """Write off the processes whose deadlines have passed. Returns how many still have time.

        Each deadline is asked for when its turn has come: whoever is written off takes along what shares its host.
        """
        in_time = 0
        for process, deadline in deadlines:
            if now >= deadline.at:
                self._write_off(process, deadline, now)
            else:
                in_time += 1
                self._state.actions.wake_by(deadline.at)
        return in_time

    def lose(self, process: Process, code: int, verdict: ExitVerdict, message: str, now: float) -> None:
        """It has ended unasked: the job goes on without it and its host."""
        if self._state.processes.is_member(process):
            self._state.actions.add(FailFormation(generation=self._state.processes.generation))
        self._state.processes.state_is_dispensable |= verdict is ExitVerdict.REMOVED and process.holds_state
        failed = verdict in {ExitVerdict.DEATH, ExitVerdict.SCRIPT_ERROR, ExitVerdict.FAULT}
        cause = ResizeCause(
            kind=CauseKind.LOST if failed else CauseKind.LEFT,
            host=process.slot.host.label,
            local_rank=process.slot.local_rank,
            detail=explain(code),
        )
        self._state.resize.add(cause)
        if failed:
            self._state.hosts.blacklist(process.alias, now, for_good=verdict is ExitVerdict.FAULT)
            self._state.actions.add(LogWarning(text=f"{cause}\n{message}".rstrip()))
        else:
            self._state.hosts.hold(process.alias, now, failed=verdict is ExitVerdict.HOST_CHANGE)
        self._clear_host(process.alias, "another process of its host has ended")

    def _write_off(self, process: Process, deadline: Deadline, now: float) -> None:
        reason = deadline.reason
        if self._state.processes.is_member(process):
            self._state.resize.add(ResizeCause(kind=CauseKind.HUNG, host=process.slot.host.label, detail=reason))
            self._state.actions.add(FailFormation(generation=self._state.processes.generation))
        self._state.actions.add(LogWarning(text=f"{process.name} is written off: {reason}"))
        self._state.hosts.blacklist(process.alias, now, failed=deadline.is_failure)
        self.end(process, reason, at_once=True)
        self._clear_host(process.alias, "another process of its host was written off")

    def _clear_host(self, alias: str, reason: str) -> None:
        for process in self._state.processes.on_host(alias):
            self.end(process, reason, at_once=False)

    def _renew_joins(self, now: float) -> None:
        """Once one request is due, answer most of them: each alone would take a decision, as many as processes."""
        hold = self._state.limits.join_hold
        held = [process for process in self._state.processes if process.ticket is not None and process.ticket_is_join]
        if any(now >= process.ticket_since + hold for process in held):
            for process in held:
                if now >= process.ticket_since + hold / 2:
                    self.reply(process, JoinAnswer.WAIT)
        for process in held:
            if process.ticket is not None:
                self._state.actions.wake_by(process.ticket_since + hold)

    def enforce_deadlines(self, now: float) -> None:
        """Answer requests at the barrier before their connections time out; kill processes that do not leave."""
        self._renew_joins(now)
        for process in self._state.processes:
            if process.phase is ProcessPhase.LEAVING:
                if now >= process.phase_since + self._state.limits.leave_patience:
                    process.phase_since = math.inf
                    reason = "it was told to leave and did not"
                    self._state.actions.add(EndProcess(number=process.number, at_once=True, reason=reason))
                self._state.actions.wake_by(process.phase_since + self._state.limits.leave_patience)
