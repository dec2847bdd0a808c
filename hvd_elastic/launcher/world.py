"""The world of a job and how it changes: a state machine without clock, threads, sockets or processes.

A *world* (Horovod: rendezvous) is the set of slots that train together; each has a generation. Its
processes go through::

    STARTED ──(asks the barrier)──► WAITING ─┐                      a newcomer, warm, not yet part of a world
       └─(the first world)──────────────────►├─► ASSIGNED ─(barrier)─► ARRIVED ─(all are)─► RUNNING
                                             │        ▲                   │ a member died      │ error or notification
    ASKING ◄──(GET rank_and_size)────────────┼────────┴───────────────────┴───────────────────┘
       └──(all members ask or are gone)──────┘        └──(no place in the new world)──► LEAVING

Promises:

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

import dataclasses
import math
from collections.abc import Iterable

from hvd_elastic.launcher.blacklist import Blacklist
from hvd_elastic.launcher.causes import differences
from hvd_elastic.launcher.events import Action, Answer, Break, End, Finish, Form, Notify, Resized, Start, Ticket, Warn
from hvd_elastic.launcher.exits import Verdict, explain, judge
from hvd_elastic.launcher.hosts import Host, describe
from hvd_elastic.launcher.placement import REMOVED_RESPONSE, Key, Slot, place
from hvd_elastic.launcher.process import Phase, Process, Rules
from hvd_elastic.launcher.roster import Roster
from mpijob.contract import Exit, JoinAnswer


class World:
    """See the module.

    Every method that takes `now` may append to `actions`. The caller carries those out, clears them, and calls `decide`
    again no later than `wake_at`.
    """

    def __init__(self, rules: Rules, blacklist: Blacklist, holds: Blacklist) -> None:
        self.actions: list[Action] = []
        self.wake_at = math.inf
        self.generation = 0
        self.resets = 0
        self.roster = Roster()
        self.seen: tuple[Host, ...] = ()
        self.finished = False
        self._rules = rules
        self._blacklist = blacklist
        self._holds = holds
        self._forming = False
        self._newcomers_join = False
        self._ever_state = False
        self._sync_is_told = False
        self._succeeded = False
        self._seen_at = -math.inf
        self._short_since: float | None = None
        self._disturbed: float | None = None
        self._causes: list[str] = []
        self._next_notify = -math.inf
        self._notified: tuple[tuple[Key, str], ...] | None = None
        self._size_before = 0

    # --- What happens ------------------------------------------------------------------------------------------------

    def hosts_seen(self, hosts: tuple[Host, ...], now: float) -> None:
        """The source reports these hosts."""
        if hosts != self.seen:
            self.seen, self._seen_at = hosts, now
        self.decide(now)

    def asked(self, key: Key, ticket: Ticket, now: float) -> None:
        """GET rank_and_size: the process has left its world, or was told AGAIN."""
        process = self.roster.at(key)
        if process is None:
            self._answer(ticket, REMOVED_RESPONSE)
            return
        self._take_ticket(process, ticket, join=False, now=now)
        process.released = False
        if self.roster.is_member(process) and process.told < self.generation and self._forming:
            self._tell(process, self._slot_of(key), now)
        elif self.roster.is_member(process):
            self._enter(process, Phase.ASKING, now)
            self._disturbed = now if self._disturbed is None else self._disturbed
        else:
            self._enter(process, Phase.WAITING, now)
        self.decide(now)

    def joining(self, key: Key, ticket: Ticket, now: float) -> None:
        """GET join: the process stands before `hvd.init()`."""
        process = self.roster.at(key)
        if process is None:
            self._answer(ticket, JoinAnswer.AGAIN)
            return
        process.joins = True
        self._newcomers_join |= process.newborn
        if process.released and process.told == self.generation:
            process.released = False
            self._answer(ticket, JoinAnswer.GO)
        elif not self.roster.is_member(process):
            self._take_ticket(process, ticket, join=True, now=now)
            self._enter(process, Phase.WAITING, now)
        elif self._forming and process.told == self.generation and process.phase in {Phase.ASSIGNED, Phase.ARRIVED}:
            self._take_ticket(process, ticket, join=True, now=now)
            self._enter(process, Phase.ARRIVED, now)
        else:
            self._answer(ticket, JoinAnswer.AGAIN)
        self.decide(now)

    def initialising(self, rank: int, now: float) -> None:
        """Rank `rank` of the forming world is inside `hvd.init()`: how a stock worker shows that it is there."""
        if self._forming and 0 <= rank < len(self.roster.slots):
            process = self.roster.at(self.roster.slots[rank].key)
            if process and not process.joins and self.roster.is_member(process) and process.phase is Phase.ASSIGNED:
                self._enter(process, Phase.ARRIVED, now)
        self.decide(now)

    def registered(self, key: Key, now: float) -> None:
        """The process has entered `elastic.run` and can be notified."""
        process = self.roster.at(key)
        if process:
            process.registered = True
            if self.roster.is_member(process):
                if process.phase is Phase.ASSIGNED and not process.joins:
                    self._enter(process, Phase.ARRIVED, now)
                if not self._sync_is_told:
                    process.holds_state = self._ever_state = True
            self._next_notify = now
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
        if process.phase is not Phase.LEAVING:
            self.roster.dismiss(process)
            self._bury(process, code, message, now)
        self.decide(now)

    def notified(self, *, delivered: bool, now: float) -> None:
        """The outcome of the last Notify."""
        if not delivered:
            self._next_notify = now + self._rules.notify_retry
            self._notified = None
        self.decide(now)

    def stop(self, exit_code: int, reason: str) -> None:
        """A signal, or an error of the launcher itself."""
        self._finish(exit_code, reason)

    # --- What follows ------------------------------------------------------------------------------------------------

    def decide(self, now: float) -> None:
        """Draw every consequence of what is known; idempotent."""
        self.wake_at = math.inf
        if self.finished:
            return
        if not self.roster.slots:
            self._begin(now)
        else:
            if self._forming:
                self._attend(now)
            self._reform(now)
        self._follow_up(now)

    def _follow_up(self, now: float) -> None:
        if self.finished:
            return
        if self.roster.slots:
            self._start_ahead(now)
            self._notify(now)
        self._tidy(now)
        self._wake(self._blacklist.next_return(now))
        self._wake(self._holds.next_return(now))

    def eligible(self, now: float) -> tuple[Host, ...]:
        """The hosts that may be used, in the source's order."""
        ending = self.roster.ending()
        return tuple(host for host in self.seen if host.alias not in ending and not self._is_barred(host.alias, now))

    def wanted_size(self, now: float) -> int:
        """The size of the world that the hosts would allow."""
        return len(place(self.eligible(now), self._rules.maximum))

    def blacklisted(self, now: float) -> tuple[str, ...]:
        """Aliases that are left out because a process died there."""
        return self._blacklist.blocked(now)

    @property
    def forming(self) -> bool:
        """Whether the current world waits for members."""
        return self._forming

    # --- Forming a world ---------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        """No process holds state: wait for enough hosts, then start them all."""
        slots = place(self.eligible(now), self._rules.maximum)
        needed = self._rules.start if self.generation == 0 else self._rules.minimum
        if len(slots) < needed:
            self._wait_for_slots(len(slots), needed, now)
            return
        settled = self._seen_at + self._rules.settle
        if now < settled and len(slots) != self._rules.maximum:
            self._wake(settled)
            return
        self._form(slots, now)

    def _attend(self, now: float) -> None:
        """The barrier: release all, or send those who wait back because one will not come."""
        members = self.roster.alive()
        offered = {host.alias for host in self.seen}
        gone = len(members) < len(self.roster.slots)
        recall = gone or any(p.phase is Phase.ASKING for p in members)
        if not recall and all(p.phase is Phase.ARRIVED for p in members):
            self._release(members, now)
            return
        # While a world forms, RUNNING is who was sent back and has not asked again.
        late = [p for p in members if p.phase in {Phase.ASSIGNED, Phase.RUNNING}]
        recall |= sum(self._is_late(process, members, now) for process in late) > 0
        recall |= any(p.newborn and p.phase is Phase.ASSIGNED and p.alias not in offered for p in late)
        if recall:
            for process in members:
                if process.phase is Phase.ARRIVED and process.joins:
                    self._reply(process, JoinAnswer.AGAIN)
                    self._enter(process, Phase.RUNNING, now)

    def _is_late(self, process: Process, members: list[Process], now: float) -> bool:
        """Whether it has not come to the barrier in time; then it is written off."""
        rules = self._rules
        patience = rules.start_timeout if any(p.holds_state for p in members) else rules.first_start_timeout
        coming = process.newborn and process.phase is Phase.ASSIGNED and not process.joins
        deadline = process.since + (patience if coming else rules.hang_timeout)
        if now >= deadline:
            self._write_off(process, "did not reach hvd.init() in time", now)
            return True
        self._wake(deadline)
        return False

    def _release(self, members: list[Process], now: float) -> None:
        for process in members:
            # Without a request of its own it has not asked yet, or is a stock worker that never will.
            process.released = process.ticket is None
            self._reply(process, JoinAnswer.GO)
            self._enter(process, Phase.RUNNING, now)
            process.holds_state |= self._ever_state and not self._sync_is_told
        pause = None if self._disturbed is None else now - self._disturbed
        self.actions.append(
            Resized(
                generation=self.generation,
                before=self._size_before,
                after=len(self.roster.slots),
                causes=tuple(dict.fromkeys(self._causes)),
                pause_seconds=pause,
            )
        )
        self._forming, self._disturbed, self._size_before = False, None, len(self.roster.slots)
        self._causes.clear()
        self._next_notify, self._notified = now, None

    def _reform(self, now: float) -> None:
        """Leave the current world once all its members ask or are gone."""
        alive = self.roster.alive()
        asking = [p for p in alive if p.phase is Phase.ASKING]
        if alive and not asking:
            return
        blocking = [p for p in alive if p.phase is not Phase.ASKING and not (p.phase is Phase.ASSIGNED and p.newborn)]
        if self._succeeded:
            if not blocking:
                self._finish(Exit.OK, "the script has ended")
            return
        if sum(self._is_patient_with(process, asking, now) for process in blocking):
            return
        alive = self.roster.alive()
        holders = [p for p in alive if p.holds_state]
        if self._ever_state and not holders:
            self._finish(Exit.ALL_WORKERS_LOST, f"no process is left that holds the state ({self._why()})")
        elif not alive:
            self._leave_world()
            self._begin(now)
        elif self._rules.reset_limit is not None and self.resets >= self._rules.reset_limit:
            self._finish(Exit.RESET_LIMIT, f"the limit of {self._rules.reset_limit} resets is reached ({self._why()})")
        else:
            self._form_next(holders, now)

    def _form_next(self, holders: list[Process], now: float) -> None:
        hosts = self._next_hosts(now)
        aliases = {p.alias for p in holders}
        handover = 0
        if holders and hosts and not any(host.alias in aliases for host in hosts):
            # Every host that holds the state is to leave. Those that stay would start from nothing: keep one for now.
            keep = holders[0]
            stays = sum(1 for p in holders if p.alias == keep.alias)
            hosts = (dataclasses.replace(keep.slot.host, slots=stays), *hosts)
            handover = stays
        hosts = tuple(sorted(hosts, key=lambda host: host.alias not in aliases))
        maximum = self._rules.maximum
        slots = place(hosts, None if maximum is None else maximum + handover)
        if len(slots) - handover < self._rules.minimum:
            self._let_go(hosts, now)
            self._wait_for_slots(len(slots), self._rules.minimum, now)
        else:
            self._form(slots, now)

    def _form(self, slots: tuple[Slot, ...], now: float) -> None:
        self._causes += differences(self.roster.slots, slots, self._causes)
        self._causes = self._causes or self._who_asked()
        self.resets += self.generation > 0
        self.generation += 1
        self._forming, self._short_since = True, None
        self.actions.append(Form(generation=self.generation, slots=slots))
        places = {slot.key: slot for slot in slots}
        for process in self.roster.present():
            if process.key in places:
                self._admit(process, places[process.key], now)
            elif self.roster.is_member(process):
                self._dismiss(process, now)
        new = self.generation, Phase.ASSIGNED
        self.roster.form([(slot, self.roster.at(slot.key) or self._start(slot, *new, now)) for slot in slots])

    def _admit(self, process: Process, slot: Slot, now: float) -> None:
        if process.ticket is not None and not process.ticket_is_join:
            self._tell(process, slot, now)
        elif _same(process.slot, slot) and process.newborn:
            process.told, process.slot = self.generation, slot
            # It may have died at the barrier a moment ago: that it asks once more shows that it is there.
            self._reply(process, JoinAnswer.WAIT)
            self._enter(process, Phase.ASSIGNED, now)
        elif process.joins or self._newcomers_join:
            self._reply(process, JoinAnswer.AGAIN)
            self._enter(process, Phase.ASSIGNED, now)
        else:
            # A stock newcomer enters hvd.init() with the place in its environment, which is not its place any more.
            self._hold(process.alias, now)
            self._end(process, "its place has changed before it came", at_once=False)

    def _dismiss(self, process: Process, now: float) -> None:
        if process.phase is Phase.ASKING:
            self._reply(process, REMOVED_RESPONSE)
            self._part(process, now)
        else:
            self._end(process, "no place in the new world", at_once=False)

    def _let_go(self, hosts: Iterable[Host], now: float) -> None:
        """Too few slots: those that will not be needed need not wait for the others to come."""
        staying = {host.alias for host in hosts}
        if any(p.holds_state and p.alias in staying for p in self.roster.alive()):
            for process in self.roster.alive():
                if process.alias not in staying and process.phase is Phase.ASKING:
                    self._causes.append(f"{process.slot.host.label} removed")
                    self._dismiss(process, now)

    def _wait_for_slots(self, have: int, need: int, now: float) -> None:
        if self._short_since is None:
            self._short_since = now
        deadline = self._short_since + self._rules.elastic_timeout
        if now >= deadline:
            self._finish(
                Exit.MIN_WORKERS_TIMEOUT,
                f"{have} of {need} needed slots for {self._rules.elastic_timeout:g} s ({self._why()})",
            )
        self._wake(deadline)

    def _leave_world(self) -> None:
        self.roster.dissolve()
        self._forming = False

    # --- Newcomers and notifications ---------------------------------------------------------------------------------

    def _next_hosts(self, now: float) -> tuple[Host, ...]:
        """The hosts of the next world: the old ones in their order, then the new ones in the source's."""
        eligible = {host.alias: host for host in self.eligible(now)}
        order = list(dict.fromkeys(slot.host.alias for slot in self.roster.slots))
        aliases = [a for a in order if a in eligible] + [a for a in eligible if a not in order]
        offers = (self._offer(eligible[alias]) for alias in aliases)
        return tuple(host for host in offers if host.slots > 0)

    def _offer(self, host: Host) -> Host:
        """The host with the slots that could take part at once."""
        count = 0
        while count < host.slots and self._is_offered((host.alias, count)):
            count += 1
        return dataclasses.replace(host, slots=count)

    def _is_offered(self, key: Key) -> bool:
        process = self.roster.at(key)
        if process is None:
            return not self._newcomers_join and key not in self.roster.leaving()
        return not self._newcomers_join or self.roster.is_member(process) or process.phase is Phase.WAITING

    def _start_ahead(self, now: float) -> None:
        """Start newcomers while the others train, and end those whose host has gone."""
        eligible = {host.alias: host for host in self.eligible(now)}
        for process in self.roster.present():
            if not self.roster.is_member(process) and process.alias not in eligible:
                self._end(process, "its host has gone", at_once=False)
            elif process.phase is Phase.STARTED:
                self._expect(process, now)
        if self._newcomers_join:
            order = list(dict.fromkeys(slot.host.alias for slot in self.roster.slots))
            old = [eligible[alias] for alias in order if alias in eligible]
            new = [host for alias, host in eligible.items() if alias not in order]
            for slot in place([*old, *new], self._rules.maximum):
                if self.roster.at(slot.key) is None and slot.key not in self.roster.leaving():
                    self._start(slot, -1, Phase.STARTED, now)

    def _expect(self, newcomer: Process, now: float) -> None:
        """Write a newcomer off that does not come to its first barrier: its host would stay unused for ever."""
        deadline = newcomer.since + self._rules.first_start_timeout
        if now >= deadline:
            self._write_off(newcomer, "did not reach hvd.init() in time", now)
        else:
            self._wake(deadline)

    def _notify(self, now: float) -> None:
        """Level-triggered: as long as the running world is not the wanted one, say so."""
        if self._forming or self._succeeded or any(p.phase is Phase.ASKING for p in self.roster.alive()):
            return
        hosts = self._next_hosts(now)
        wanted = _signature(place(hosts, self._rules.maximum))
        if len(wanted) < self._rules.minimum:
            wanted = ()
        coordinator = self.roster.at(self.roster.slots[0].key)
        whole = self.roster.is_whole()
        if (whole and wanted == _signature(self.roster.slots)) or not coordinator or not coordinator.registered:
            self._notified = None
            return
        if whole and self._is_worth_waiting(wanted, now):
            return
        if now >= self._next_notify or (wanted != self._notified and whole):
            self._notified, self._next_notify = wanted, now + self._rules.notify_again
            self._disturbed = now if self._disturbed is None else self._disturbed
            self.actions.append(Notify(key=coordinator.key))
        self._wake(self._next_notify)

    def _is_worth_waiting(self, wanted: tuple[tuple[Key, str], ...], now: float) -> bool:
        """Whether more newcomers are on their way while all that those who wait would do is add to the world."""
        if not {slot.key for slot in self.roster.slots} <= {key for key, _ in wanted}:
            return False
        first = min((p.since for p in self.roster.present() if p.phase is Phase.WAITING), default=-math.inf)
        deadline = first + self._rules.gather
        if now >= deadline or not any(p.phase is Phase.STARTED for p in self.roster.present()):
            return False
        self._wake(deadline)
        return True

    # --- Processes ---------------------------------------------------------------------------------------------------

    def _start(self, slot: Slot, told: int, phase: Phase, now: float) -> Process:
        process = self.roster.start(slot, told=told, phase=phase, now=now)
        self.actions.append(Start(number=process.number, slot=slot))
        return process

    def _tell(self, process: Process, slot: Slot, now: float) -> None:
        process.slot, process.told, process.newborn = slot, self.generation, False
        self._reply(process, slot.response())
        # A stock worker goes from here straight into hvd.init().
        self._enter(process, Phase.ASSIGNED if process.joins else Phase.ARRIVED, now)

    def _bury(self, process: Process, code: int, message: str, now: float) -> None:
        """Draw the consequences of a process's end that nobody asked for."""
        verdict = judge(code, restart_errors=self._rules.restart_errors)
        expendable = process.phase in {Phase.STARTED, Phase.WAITING} or (
            process.newborn and process.phase is Phase.ASSIGNED and self._ever_state
        )
        name = f"{process.slot.host.label}[{process.slot.local_rank}]"
        if verdict is Verdict.SUCCESS and not expendable:
            self._succeeded = True
            return
        if verdict is Verdict.MISTAKE or (verdict is Verdict.SCRIPT_ERROR and not expendable):
            self._finish(code, f"rank {process.slot.rank} on {name} failed: {explain(code)}\n{message}".rstrip())
            return
        self._disturbed = now if self._disturbed is None and self.roster.is_member(process) else self._disturbed
        if self.roster.is_member(process):
            # The survivors learn of it from their broken connections; a notice on top would make them reset twice.
            self._next_notify = now + self._rules.notify_again
            self.actions.append(Break(generation=self.generation))
        if verdict in {Verdict.DEATH, Verdict.SCRIPT_ERROR}:
            self._causes.append(f"{name} lost: {explain(code)}")
            self._blacklist.add(process.alias, now)
            self.actions.append(Warn(text=f"{name} lost: {explain(code)}\n{message}".rstrip()))
        else:
            self._causes.append(f"{name} left: {explain(code)}")
            self._hold(process.alias, now)
        self._clear_host(process.alias, "another process of its host has ended")

    def _write_off(self, process: Process, why: str, now: float) -> None:
        if self.roster.is_member(process):
            self._causes.append(f"{process.slot.host.label} written off: {why}")
            self.actions.append(Break(generation=self.generation))
        self.actions.append(Warn(text=f"{process.slot.host.label}[{process.slot.local_rank}] is written off: {why}"))
        self._blacklist.add(process.alias, now)
        self._end(process, why, at_once=True)
        self._clear_host(process.alias, "another process of its host was written off")

    def _is_patient_with(self, process: Process, asking: list[Process], now: float) -> bool:
        """Whether those who stand still go on waiting for it; else it is written off."""
        gone = process.alias not in {host.alias for host in self.seen}
        patience = self._rules.removed_patience if gone else self._rules.hang_timeout
        deadline = max(process.since, *(p.since for p in asking)) + patience
        if now >= deadline:
            self._write_off(process, f"does not answer ({patience:g} s)", now)
            return False
        self._wake(deadline)
        return True

    def _clear_host(self, alias: str, why: str) -> None:
        for process in [p for p in self.roster.present() if p.alias == alias]:
            self._end(process, why, at_once=False)

    def _end(self, process: Process, why: str, *, at_once: bool) -> None:
        self._reply(process, JoinAnswer.AGAIN if process.ticket_is_join else REMOVED_RESPONSE)
        self.roster.dismiss(process)
        process.phase = Phase.LEAVING
        process.since = math.inf
        self.actions.append(End(number=process.number, at_once=at_once, why=why))

    def _part(self, process: Process, now: float) -> None:
        """It was told to leave and will."""
        self.roster.dismiss(process)
        self._enter(process, Phase.LEAVING, now)

    def _tidy(self, now: float) -> None:
        for process in self.roster:
            if process.ticket is not None and process.ticket_is_join:
                if now >= process.ticket_at + self._rules.join_hold:
                    self._reply(process, JoinAnswer.WAIT)
                else:
                    self._wake(process.ticket_at + self._rules.join_hold)
            if process.phase is Phase.LEAVING:
                if now >= process.since + self._rules.leave_patience:
                    process.since = math.inf
                    why = "it was told to leave and did not"
                    self.actions.append(End(number=process.number, at_once=True, why=why))
                self._wake(process.since + self._rules.leave_patience)

    def _enter(self, process: Process, phase: Phase, now: float) -> None:
        if process.phase is not phase:
            process.phase, process.since = phase, now

    # --- Small questions ---------------------------------------------------------------------------------------------

    def _who_asked(self) -> list[str]:
        first = min((p.since, p.slot.rank) for p in self.roster.alive() if p.phase is Phase.ASKING)
        return [f"asked for by rank {first[1]}"]

    def _slot_of(self, key: Key) -> Slot:
        return next(slot for slot in self.roster.slots if slot.key == key)

    def _is_barred(self, alias: str, now: float) -> bool:
        return self._blacklist.blocks(alias, now) or self._holds.blocks(alias, now)

    def _hold(self, alias: str, now: float) -> None:
        self._holds.add(alias, now)

    def _why(self) -> str:
        return "; ".join(dict.fromkeys(self._causes)) or f"hosts: {describe(self.seen)}"

    def _take_ticket(self, process: Process, ticket: Ticket, *, join: bool, now: float) -> None:
        # A client that asks again has given up its earlier request.
        self._reply(process, JoinAnswer.WAIT if process.ticket_is_join else REMOVED_RESPONSE)
        process.ticket, process.ticket_is_join, process.ticket_at = ticket, join, now

    def _reply(self, process: Process, text: str) -> None:
        if process.ticket is not None:
            self._answer(process.ticket, text)
            process.ticket = None

    def _answer(self, ticket: Ticket, text: str) -> None:
        self.actions.append(Answer(ticket=ticket, text=text))

    def _finish(self, exit_code: int, reason: str) -> None:
        if not self.finished:
            self.finished = True
            self.actions.append(Finish(exit_code=int(exit_code), reason=reason))

    def _wake(self, at: float) -> None:
        self.wake_at = min(self.wake_at, at)


def _signature(slots: tuple[Slot, ...]) -> tuple[tuple[Key, str], ...]:
    return tuple((slot.key, slot.response()) for slot in slots)


def _same(one: Slot, other: Slot) -> bool:
    return one.key == other.key and one.response() == other.response()
