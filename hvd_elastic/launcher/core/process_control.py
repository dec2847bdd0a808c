"""What is done to single processes: they are started, answered, told a place and ended."""

import math

from hvd_elastic.launcher.core.actions import Agenda, AnswerPlace, Break, End, Start, Ticket, Warn
from hvd_elastic.launcher.core.blacklist import Blacklist
from hvd_elastic.launcher.core.exit_codes import ExitVerdict, explain
from hvd_elastic.launcher.core.process import Process, ProcessPhase, WorldLimits
from hvd_elastic.launcher.core.resize_causes import ResizeCauses
from hvd_elastic.launcher.core.roster import Roster
from hvd_elastic.launcher.core.slot_placement import REMOVED_RESPONSE, Slot
from hvd_elastic.mpijob.contract import JoinAnswer


class ProcessControl:
    """Notes in the roster what is done, and puts on the agenda what the driver has to do for it."""

    def __init__(
        self,
        rules: WorldLimits,
        roster: Roster,
        agenda: Agenda,
        change: ResizeCauses,
        *,
        blacklist: Blacklist,
        holds: Blacklist,
    ) -> None:
        self._rules = rules
        self._roster = roster
        self._agenda = agenda
        self._change = change
        self._blacklist = blacklist
        self._holds = holds

    def start(self, slot: Slot, *, told: int, phase: ProcessPhase, now: float) -> None:
        """Start a process in a place that nobody is present in."""
        process = self._roster.start(slot, told=told, phase=phase, now=now)
        self._agenda.add(Start(number=process.number, slot=slot))

    # --- Requests ----------------------------------------------------------------------------------------------------

    def keep_open(self, process: Process, ticket: Ticket, *, join: bool, now: float) -> None:
        """Hold its request until there is an answer: see `reply`."""
        # A client that asks again has given up its earlier request.
        self.reply(process, JoinAnswer.WAIT if process.ticket_is_join else REMOVED_RESPONSE)
        process.ticket, process.ticket_is_join, process.ticket_at = ticket, join, now

    def reply(self, process: Process, text: str) -> None:
        """Answer its open request, if it has one."""
        if process.ticket is not None:
            self._agenda.add(AnswerPlace(ticket=process.ticket, text=text))
            process.ticket = None

    def tell(self, process: Process, slot: Slot, generation: int, now: float) -> None:
        """Answer its question with its place in this generation."""
        process.slot, process.told, process.newborn = slot, generation, False
        self.reply(process, slot.response())
        # A stock worker goes from here straight into hvd.init().
        process.enter(ProcessPhase.ASSIGNED if process.joins else ProcessPhase.ARRIVED, now)

    def admit(self, process: Process, slot: Slot, generation: int, now: float) -> None:
        """It has this place in the new world: tell it, or have it ask; if it can do neither, end it."""
        if process.ticket is not None and not process.ticket_is_join:
            self.tell(process, slot, generation, now)
        elif process.newborn and process.slot.signature == slot.signature:
            process.told, process.slot = generation, slot
            # It may have died at the barrier a moment ago: that it asks once more shows that it is there.
            self.reply(process, JoinAnswer.WAIT)
            process.enter(ProcessPhase.ASSIGNED, now)
        elif process.joins or self._roster.newcomers_join:
            self.reply(process, JoinAnswer.AGAIN)
            process.enter(ProcessPhase.ASSIGNED, now)
        else:
            # A stock newcomer enters hvd.init() with the place in its environment, which is not its place any more.
            self._holds.add(process.alias, now)
            self.end(process, "its place has changed before it came", at_once=False)

    # --- Leaving -----------------------------------------------------------------------------------------------------

    def let_go(self, process: Process, now: float) -> None:
        """There is no place for it any more: who asks is told so and leaves, any other one is ended."""
        if process.phase is ProcessPhase.ASKING:
            self.reply(process, REMOVED_RESPONSE)
            self._roster.dismiss(process)
            process.enter(ProcessPhase.LEAVING, now)
        else:
            self.end(process, "no place in the new world", at_once=False)

    def end(self, process: Process, why: str, *, at_once: bool) -> None:
        """Have it ended; `at_once`: do not ask it."""
        self.reply(process, JoinAnswer.AGAIN if process.ticket_is_join else REMOVED_RESPONSE)
        self._roster.dismiss(process)
        process.phase = ProcessPhase.LEAVING
        process.since = math.inf
        self._agenda.add(End(number=process.number, at_once=at_once, why=why))

    def wait_for(self, process: Process, deadline: float, why: str, now: float) -> bool:
        """Give it until then and write it off after that, for this reason; whether it still has time."""
        if now >= deadline:
            self._write_off(process, why, now)
            return False
        self._agenda.wake(deadline)
        return True

    def lose(self, process: Process, code: int, verdict: ExitVerdict, message: str, now: float) -> None:
        """It has ended although nobody told it to; the job goes on without it and its host."""
        if self._roster.is_member(process):
            self._agenda.add(Break(generation=self._roster.generation))
        if verdict in {ExitVerdict.DEATH, ExitVerdict.SCRIPT_ERROR}:
            self._change.causes.append(f"{process.name} lost: {explain(code)}")
            self._blacklist.add(process.alias, now)
            self._agenda.add(Warn(text=f"{process.name} lost: {explain(code)}\n{message}".rstrip()))
        else:
            self._change.causes.append(f"{process.name} left: {explain(code)}")
            self._holds.add(process.alias, now)
        self._clear_host(process.alias, "another process of its host has ended")

    def _write_off(self, process: Process, why: str, now: float) -> None:
        if self._roster.is_member(process):
            self._change.causes.append(f"{process.slot.host.label} written off: {why}")
            self._agenda.add(Break(generation=self._roster.generation))
        self._agenda.add(Warn(text=f"{process.name} is written off: {why}"))
        self._blacklist.add(process.alias, now)
        self.end(process, why, at_once=True)
        self._clear_host(process.alias, "another process of its host was written off")

    def _clear_host(self, alias: str, why: str) -> None:
        for process in self._roster.present():
            if process.alias == alias:
                self.end(process, why, at_once=False)

    def tidy(self, now: float) -> None:
        """Answer those at the barrier before their connections time out; end those that do not leave by themselves."""
        for process in self._roster:
            if process.ticket is not None and process.ticket_is_join:
                if now >= process.ticket_at + self._rules.join_hold:
                    self.reply(process, JoinAnswer.WAIT)
                else:
                    self._agenda.wake(process.ticket_at + self._rules.join_hold)
            if process.phase is ProcessPhase.LEAVING:
                if now >= process.since + self._rules.leave_patience:
                    process.since = math.inf
                    why = "it was told to leave and did not"
                    self._agenda.add(End(number=process.number, at_once=True, why=why))
                self._agenda.wake(process.since + self._rules.leave_patience)
