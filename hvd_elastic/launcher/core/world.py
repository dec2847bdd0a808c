"""The world of a job and how it changes: a state machine without clock, threads, sockets or processes.

A *world* (Horovod: rendezvous) is the set of slots that train together; each has a generation. What its processes go
through is drawn in `process`. Promises:

1. A new world is formed as soon as every member of the last one asks or is gone. A member that neither asks nor ends
   while the others stand still is written off: after `removed_patience` when its host is gone, else `hang_timeout`.
2. Rank 0 of a new world holds the training state, as long as any process does. When every host that holds it is to
   leave at once, one of them stays for one world more, to hand it over.
3. Between two worlds nobody is released into `hvd.init()` before all members are at its door; a death until then costs
   those who wait one more question and nothing else. Who has waited there since before the world was formed asks once
   more: a process that was killed is known to be dead only some 50 ms later.
4. A newcomer is part of a world only once it waits at the barrier (if its kind ever asks there: stock scripts do not).
5. As long as the running world is not the wanted one, its coordinator is notified again and again.
6. It ends by itself only for one of: success, a script's own error, too few slots for too long, the reset limit, no
   process left that holds the state.
"""

import math
from collections.abc import Iterable

from hvd_elastic.launcher.core.actions import Agenda, AnswerPlace, Finish, Form, Ticket
from hvd_elastic.launcher.core.blacklist import Blacklist
from hvd_elastic.launcher.core.exit_codes import ExitVerdict, explain, judge
from hvd_elastic.launcher.core.host_update_notices import HostUpdateNotices
from hvd_elastic.launcher.core.hosts import Host, describe
from hvd_elastic.launcher.core.next_hosts import holders_first, in_order, next_hosts
from hvd_elastic.launcher.core.process import Process, ProcessPhase, WorldLimits
from hvd_elastic.launcher.core.process_control import ProcessControl
from hvd_elastic.launcher.core.resize_causes import ResizeCauses, differences
from hvd_elastic.launcher.core.roster import Roster
from hvd_elastic.launcher.core.slot_placement import REMOVED_RESPONSE, Key, Slot, place
from hvd_elastic.mpijob.contract import Exit, JoinAnswer


class World:
    """See the module.

    Every method that takes `now` may add to `agenda`. The caller carries out what is on it, and calls `decide` again no
    later than its `wake_at`.
    """

    def __init__(self, rules: WorldLimits, blacklist: Blacklist, holds: Blacklist) -> None:
        self.agenda = Agenda()
        self.roster = Roster()
        self.resets = 0
        self.finished = False
        self.forming = False
        """Whether the current world waits for members."""
        self._rules = rules
        self._blacklist = blacklist
        self._holds = holds
        self._change = ResizeCauses()
        self._crew = ProcessControl(rules, self.roster, self.agenda, self._change, blacklist=blacklist, holds=holds)
        self._notices = HostUpdateNotices(rules, self.roster, self.agenda)
        self._hosts: tuple[Host, ...] = ()
        self._hosts_since = -math.inf
        self._short_since: float | None = None
        self._ever_state = False
        self._sync_is_told = False
        self._succeeded = False

    # --- What happens ------------------------------------------------------------------------------------------------

    def hosts_seen(self, hosts: tuple[Host, ...], now: float) -> None:
        """The source reports these hosts."""
        if hosts != self._hosts:
            self._hosts, self._hosts_since = hosts, now
        self.decide(now)

    def asked(self, key: Key, ticket: Ticket, now: float) -> None:
        """GET rank_and_size: the process has left its world, or was told AGAIN."""
        process = self.roster.at(key)
        if process is None:
            self.agenda.add(AnswerPlace(ticket=ticket, text=REMOVED_RESPONSE))
            return
        self._crew.keep_open(process, ticket, join=False, now=now)
        process.released = False
        if self.roster.is_member(process) and process.told < self.roster.generation and self.forming:
            self._crew.tell(process, self.roster.slot_of(process), self.roster.generation, now)
        elif self.roster.is_member(process):
            process.enter(ProcessPhase.ASKING, now)
            self._change.disturb(now)
        else:
            process.enter(ProcessPhase.WAITING, now)
        self.decide(now)

    def joining(self, key: Key, ticket: Ticket, now: float) -> None:
        """GET join: the process stands before `hvd.init()`."""
        process = self.roster.at(key)
        if process is None:
            self.agenda.add(AnswerPlace(ticket=ticket, text=JoinAnswer.AGAIN))
            return
        process.joins = True
        is_told = process.told == self.roster.generation
        self.roster.newcomers_join |= process.newborn
        if process.released and is_told:
            process.released = False
            self.agenda.add(AnswerPlace(ticket=ticket, text=JoinAnswer.GO))
        elif not self.roster.is_member(process):
            self._crew.keep_open(process, ticket, join=True, now=now)
            process.enter(ProcessPhase.WAITING, now)
        elif self.forming and is_told and process.phase in {ProcessPhase.ASSIGNED, ProcessPhase.ARRIVED}:
            self._crew.keep_open(process, ticket, join=True, now=now)
            process.enter(ProcessPhase.ARRIVED, now)
        else:
            self.agenda.add(AnswerPlace(ticket=ticket, text=JoinAnswer.AGAIN))
        self.decide(now)

    def initialising(self, rank: int, now: float) -> None:
        """Rank `rank` of the forming world is inside `hvd.init()`: how a stock worker shows that it is there."""
        if self.forming and 0 <= rank < len(self.roster.slots):
            process = self.roster.at(self.roster.slots[rank].key)
            if (
                process
                and not process.joins
                and self.roster.is_member(process)
                and process.phase is ProcessPhase.ASSIGNED
            ):
                process.enter(ProcessPhase.ARRIVED, now)
        self.decide(now)

    def registered(self, key: Key, now: float) -> None:
        """The process has entered `elastic.run` and can be notified."""
        process = self.roster.at(key)
        if process:
            process.registered = True
            if self.roster.is_member(process):
                if process.phase is ProcessPhase.ASSIGNED and not process.joins:
                    process.enter(ProcessPhase.ARRIVED, now)
                if not self._sync_is_told:
                    process.holds_state = self._ever_state = True
        self.decide(now)

    def synced(self, key: Key, now: float) -> None:
        """The process has the job's state. Workers that never say so hold it from their release on."""
        process = self.roster.at(key)
        if process and self.roster.is_member(process):
            process.holds_state = self._ever_state = self._sync_is_told = True
        self.decide(now)

    def exited(self, number: int, code: int, now: float, message: str = "") -> None:
        """The process has ended; `message`: the last lines of its error output."""
        process = self.roster.ended(number)
        if process is None or self.finished:
            return
        if process.phase is not ProcessPhase.LEAVING:
            self.roster.dismiss(process)
            self._bury(process, code, message, now)
        self.decide(now)

    def notified(self, *, delivered: bool, now: float) -> None:
        """The outcome of the last Notify."""
        if not delivered:
            self._notices.failed(now)
        self.decide(now)

    def stop(self, exit_code: int, reason: str) -> None:
        """A signal, or an error of the launcher itself."""
        self._finish(exit_code, reason)

    # --- What follows ------------------------------------------------------------------------------------------------

    def decide(self, now: float) -> None:
        """Draw every consequence of what is known; idempotent."""
        self.agenda.wake_at = math.inf
        if self.finished:
            return
        if not self.roster.slots:
            self._begin(now)
        else:
            if self.forming:
                self._attend(now)
            self._reform(now)
        self._follow_up(now)

    def _follow_up(self, now: float) -> None:
        if self.finished:
            return
        if self.roster.slots:
            self._start_ahead(now)
            self._notify(now)
        self._crew.tidy(now)
        self.agenda.wake(self._blacklist.next_return(now))
        self.agenda.wake(self._holds.next_return(now))

    def wanted_size(self, now: float) -> int:
        """The size of the world that the hosts would allow."""
        return len(place(self._eligible(now), self._rules.maximum))

    def blacklisted(self, now: float) -> tuple[str, ...]:
        """Aliases that are left out because a process died there."""
        return self._blacklist.blocked(now)

    # --- Forming a world ---------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        """No process holds state: wait for enough hosts, then start them all."""
        slots = place(self._eligible(now), self._rules.maximum)
        needed = self._rules.start if self.roster.generation == 0 else self._rules.minimum
        if len(slots) < needed:
            self._wait_for_slots(len(slots), needed, now)
            return
        settled = self._hosts_since + self._rules.settle
        if now < settled and len(slots) != self._rules.maximum:
            self.agenda.wake(settled)
            return
        self._form(slots, now)

    def _attend(self, now: float) -> None:
        """The barrier: release all, or send those who wait back because one will not come."""
        members = self.roster.alive()
        recall = not self.roster.is_whole() or any(p.phase is ProcessPhase.ASKING for p in members)
        if not recall and all(p.phase is ProcessPhase.ARRIVED for p in members):
            self._release(members, now)
            return
        # While a world forms, RUNNING is who was sent back and has not asked again.
        late = [p for p in members if p.phase in {ProcessPhase.ASSIGNED, ProcessPhase.RUNNING}]
        recall |= sum(not self._is_awaited_at_barrier(process, members, now) for process in late) > 0
        recall |= any(p.newborn and p.phase is ProcessPhase.ASSIGNED and self._is_gone(p.alias) for p in late)
        if recall:
            for process in members:
                if process.phase is ProcessPhase.ARRIVED and process.joins:
                    self._crew.reply(process, JoinAnswer.AGAIN)
                    process.enter(ProcessPhase.RUNNING, now)

    def _release(self, members: list[Process], now: float) -> None:
        for process in members:
            # Without a request of its own it has not asked yet, or is a stock worker that never will.
            process.released = process.ticket is None
            self._crew.reply(process, JoinAnswer.GO)
            process.enter(ProcessPhase.RUNNING, now)
            process.holds_state |= self._ever_state and not self._sync_is_told
        self.agenda.add(self._change.end(self.roster.generation, len(self.roster.slots), now))
        self.forming = False
        self._notices.renew(now)

    def _reform(self, now: float) -> None:
        """Leave the current world once all its members ask or are gone."""
        alive = self.roster.alive()
        asking = [p for p in alive if p.phase is ProcessPhase.ASKING]
        if alive and not asking:
            return
        blocking = [
            p
            for p in alive
            if p.phase is not ProcessPhase.ASKING and not (p.phase is ProcessPhase.ASSIGNED and p.newborn)
        ]
        if self._succeeded:
            if not blocking:
                self._finish(Exit.OK, "the script has ended")
            return
        if sum(self._is_awaited_by(process, asking, now) for process in blocking):
            return
        alive = self.roster.alive()
        holders = [p for p in alive if p.holds_state]
        if self._ever_state and not holders:
            self._finish(Exit.ALL_WORKERS_LOST, f"no process is left that holds the state ({self._why()})")
        elif not alive:
            self.roster.dissolve()
            self.forming = False
            self._begin(now)
        elif self._rules.reset_limit is not None and self.resets >= self._rules.reset_limit:
            self._finish(Exit.RESET_LIMIT, f"the limit of {self._rules.reset_limit} resets is reached ({self._why()})")
        else:
            self._form_next(holders, now)

    def _form_next(self, holders: list[Process], now: float) -> None:
        hosts, handover = holders_first(next_hosts(self._eligible(now), self.roster), holders)
        maximum = self._rules.maximum
        slots = place(hosts, None if maximum is None else maximum + handover)
        if len(slots) - handover < self._rules.minimum:
            self._keep_only(hosts, now)
            self._wait_for_slots(len(slots) - handover, self._rules.minimum, now)
        else:
            self._form(slots, now)

    def _form(self, slots: tuple[Slot, ...], now: float) -> None:
        causes = self._change.causes
        causes += differences(self.roster.slots, slots, causes)
        if not causes:
            causes.append(self._who_asked())
        generation = self.roster.generation + 1
        self.resets += generation > 1
        self.forming, self._short_since = True, None
        self.agenda.add(Form(generation=generation, slots=slots))
        places = {slot.key: slot for slot in slots}
        for process in self.roster.present():
            if process.key in places:
                self._crew.admit(process, places[process.key], generation, now)
            elif self.roster.is_member(process):
                self._crew.let_go(process, now)
        for slot in slots:
            if self.roster.at(slot.key) is None:
                self._crew.start(slot, told=generation, phase=ProcessPhase.ASSIGNED, now=now)
        self.roster.form(slots)

    def _keep_only(self, hosts: Iterable[Host], now: float) -> None:
        """Too few slots: those that will not be needed need not wait for the others to come."""
        staying = {host.alias for host in hosts}
        if any(p.holds_state and p.alias in staying for p in self.roster.alive()):
            for process in self.roster.alive():
                if process.alias not in staying and process.phase is ProcessPhase.ASKING:
                    self._change.causes.append(f"{process.slot.host.label} removed")
                    self._crew.let_go(process, now)

    def _wait_for_slots(self, have: int, need: int, now: float) -> None:
        if self._short_since is None:
            self._short_since = now
        deadline = self._short_since + self._rules.elastic_timeout
        if now >= deadline:
            self._finish(
                Exit.MIN_WORKERS_TIMEOUT,
                f"{have} of {need} needed slots for {self._rules.elastic_timeout:g} s ({self._why()})",
            )
        self.agenda.wake(deadline)

    # --- While a world runs ------------------------------------------------------------------------------------------

    def _start_ahead(self, now: float) -> None:
        """Start newcomers while the others train, and end those whose host has gone."""
        eligible = self._eligible(now)
        aliases = {host.alias for host in eligible}
        for process in self.roster.present():
            if not self.roster.is_member(process) and process.alias not in aliases:
                self._crew.end(process, "its host has gone", at_once=False)
            elif process.phase is ProcessPhase.STARTED:
                # Its host would stay unused for ever.
                deadline = process.since + self._rules.first_start_timeout
                self._crew.wait_for(process, deadline, "did not reach hvd.init() in time", now)
        if self.roster.newcomers_join and not self._succeeded:
            for slot in place(in_order(eligible, self.roster.slots), self._rules.maximum):
                if self.roster.at(slot.key) is None and slot.key not in self.roster.leaving():
                    self._crew.start(slot, told=-1, phase=ProcessPhase.STARTED, now=now)

    def _notify(self, now: float) -> None:
        if self.forming or self._succeeded or any(p.phase is ProcessPhase.ASKING for p in self.roster.alive()):
            return
        slots = place(next_hosts(self._eligible(now), self.roster), self._rules.maximum)
        if self._notices.send(slots if len(slots) >= self._rules.minimum else (), now):
            self._change.disturb(now)

    # --- Who does not come, and who has ended ------------------------------------------------------------------------

    def _is_awaited_at_barrier(self, process: Process, members: list[Process], now: float) -> bool:
        """Whether the members go on waiting for it at the barrier; else it is written off."""
        patience = self._rules.hang_timeout
        if process.newborn and process.phase is ProcessPhase.ASSIGNED and not process.joins:
            has_state = any(p.holds_state for p in members)
            patience = self._rules.start_timeout if has_state else self._rules.first_start_timeout
        return self._crew.wait_for(process, process.since + patience, "did not reach hvd.init() in time", now)

    def _is_awaited_by(self, process: Process, asking: list[Process], now: float) -> bool:
        """Whether those who stand still go on waiting for it; else it is written off."""
        patience = self._rules.removed_patience if self._is_gone(process.alias) else self._rules.hang_timeout
        deadline = max(process.since, *(p.since for p in asking)) + patience
        return self._crew.wait_for(process, deadline, f"does not answer ({patience:g} s)", now)

    def _bury(self, process: Process, code: int, message: str, now: float) -> None:
        """Draw the consequences of a process's end that nobody asked for."""
        verdict = judge(code, restart_errors=self._rules.restart_errors)
        expendable = process.phase in {ProcessPhase.STARTED, ProcessPhase.WAITING} or (
            process.newborn and process.phase is ProcessPhase.ASSIGNED and self._ever_state
        )
        if verdict is ExitVerdict.SUCCESS and not expendable:
            self._succeeded = True
            return
        if verdict is ExitVerdict.MISTAKE or (verdict is ExitVerdict.SCRIPT_ERROR and not expendable):
            reason = f"rank {process.slot.rank} on {process.name} failed: {explain(code)}\n{message}"
            self._finish(code, reason.rstrip())
            return
        if self.roster.is_member(process):
            self._change.disturb(now)
            # The survivors learn of it from their broken connections; a notice on top would make them reset twice.
            self._notices.postpone(now)
        self._crew.lose(process, code, verdict, message, now)

    def _finish(self, exit_code: int, reason: str) -> None:
        if not self.finished:
            self.finished = True
            self.agenda.add(Finish(exit_code=int(exit_code), reason=reason))

    # --- Small questions ---------------------------------------------------------------------------------------------

    def _eligible(self, now: float) -> tuple[Host, ...]:
        """The hosts that may be used, in the source's order."""
        ending = self.roster.ending()
        return tuple(host for host in self._hosts if host.alias not in ending and not self._is_barred(host.alias, now))

    def _is_barred(self, alias: str, now: float) -> bool:
        return self._blacklist.blocks(alias, now) or self._holds.blocks(alias, now)

    def _is_gone(self, alias: str) -> bool:
        return alias not in {host.alias for host in self._hosts}

    def _who_asked(self) -> str:
        first = min((p.since, p.slot.rank) for p in self.roster.alive() if p.phase is ProcessPhase.ASKING)
        return f"asked for by rank {first[1]}"

    def _why(self) -> str:
        return self._change.words() or f"hosts: {describe(self._hosts)}"
