"""The world of a job and how it changes: a state machine without clock, threads, sockets or processes.

A *world* (Horovod: rendezvous) is the set of slots that train together; each world has a generation. The phases of its
processes are drawn in `process`. Promises:

1. A new world is formed as soon as every member of the last one asks or is gone. A member that neither asks nor ends
   while the world stands still is written off: after `silence` if it does not answer a ping, after `removed_patience`
   if the others wait and its host is gone, else after `hang_timeout`. All silent members go in one change.
2. Rank 0 of a new world holds the training state, as long as any process does. If every host that holds it is to leave
   at once, one of them stays for one world more to hand the state over.
3. Between two worlds no process is released into `hvd.init()` before all members have arrived there. A death until then
   costs the members that wait one more request and nothing else. A process that has waited there since before the world
   was formed is made to ask once more: that a process was killed is known only some 50 ms later.
4. A newcomer is part of a world only once it waits at the barrier (if its kind ever asks there: stock scripts do not).
5. While the running world is not the wanted one, its coordinator is notified again and again.
6. The job ends by itself only on success, a script's own error, too few slots for too long (if there is a limit), the
   reset limit, or when processes have failed and none is left that holds the state.
7. When every host that holds the state is taken away, the job waits for others and begins again from its durable
   checkpoint. It is not a failure, however often it happens.
"""

import contextlib
import math
from collections.abc import Callable, Iterator

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.actions import AnswerRequest, Ticket
from hvd_elastic.launcher.core.host_update_notices import HostUpdateNotices
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.hosts.next_hosts import next_hosts
from hvd_elastic.launcher.core.join_barrier import JoinBarrier
from hvd_elastic.launcher.core.newcomers import Newcomers
from hvd_elastic.launcher.core.process_control import ProcessControl
from hvd_elastic.launcher.core.processes.awaited_members import AwaitedMembers
from hvd_elastic.launcher.core.processes.exit_codes import ExitVerdict, explain, judge
from hvd_elastic.launcher.core.processes.process import Process, ProcessPhase
from hvd_elastic.launcher.core.signs_of_life import PingOutcome
from hvd_elastic.launcher.core.slot_placement import REMOVED_RESPONSE, SlotKey
from hvd_elastic.launcher.core.world_formation import WorldFormation
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.launcher.core.world_state import WorldState
from hvd_elastic.mpijob.contract import JoinAnswer, WriterAnswer


class World:
    """Takes events, decides, and adds actions to `actions`.

    Every method that takes `now` (seconds on any steady clock) may add actions. The caller carries them out and calls
    `decide` again no later than `actions.wake_at`. Events that come together are best reported in `one_decision`.
    """

    def __init__(self, limits: WorldLimits, blacklist: Blacklist, holds: Blacklist) -> None:
        self._state = state = WorldState.empty(limits, blacklist, holds)
        self.actions, self.processes = state.actions, state.processes
        self._control = ProcessControl(state)
        self._formation = WorldFormation(state, self._control)
        self._barrier = JoinBarrier(state, self._control)
        self._awaited = AwaitedMembers(state.processes)
        self._newcomers = Newcomers(state, self._control)
        self._notices = HostUpdateNotices(state)
        self._takes_several = False
        self._decision_is_due = False

    @property
    def forming(self) -> bool:
        """Whether the current world waits for members."""
        return self._state.forming

    @property
    def resets(self) -> int:
        """Worlds after the first one."""
        return self._state.resets

    @property
    def finished(self) -> bool:
        """Whether the job has ended."""
        return self.actions.finished

    @contextlib.contextmanager
    def one_decision(self, clock: Callable[[], float]) -> Iterator[None]:
        """Take the events that are reported within it together: decide once, afterwards."""
        self._takes_several = True
        try:
            yield
        finally:
            self._takes_several = False
        if self._decision_is_due:
            self.decide(clock())

    # --- Events ------------------------------------------------------------------------------------------------------

    def begun_before(self) -> None:
        """An earlier launcher has had a world of this job: `minimum` slots are enough from the beginning."""
        self._state.has_begun = True

    def hosts_seen(self, hosts: tuple[Host, ...], now: float) -> None:
        """The source reports these hosts."""
        self._state.hosts.update(hosts, now)
        self._changed(now)

    def place_requested(self, key: SlotKey, ticket: Ticket, now: float) -> None:
        """GET rank_and_size: the process has left its world, or was answered AGAIN."""
        process = self.processes.at(key)
        if process is None:
            self.actions.add(AnswerRequest(ticket=ticket, text=REMOVED_RESPONSE))
            return
        self._note_request(process, now)
        self._control.hold_request(process, ticket, join=False, now=now)
        process.go_is_due = False
        generation = self.processes.generation
        if not self.processes.is_member(process):
            process.enter(ProcessPhase.WAITING, now)
        elif process.slot_generation < generation and self.forming:
            self._control.assign(process, self.processes.slot_of(process), generation, now)
        else:
            process.enter(ProcessPhase.ASKING, now)
            self._state.resize.begin_pause(now)
        self._decide_unless_others_are_missing(process, now)

    def barrier_reached(self, key: SlotKey, ticket: Ticket, now: float) -> None:
        """GET join: the process stands before `hvd.init()`."""
        process = self.processes.at(key)
        if process is None:
            self.actions.add(AnswerRequest(ticket=ticket, text=JoinAnswer.AGAIN))
            return
        self._note_request(process, now)
        process.uses_barrier = True
        if process.never_asked and not self.processes.newcomers_join:
            self.processes.newcomers_join = True
            self._awaited.forget()
        knows_its_slot = process.slot_generation == self.processes.generation
        if process.go_is_due and knows_its_slot:
            process.go_is_due = False
            self.actions.add(AnswerRequest(ticket=ticket, text=JoinAnswer.GO))
            return
        if not self.processes.is_member(process):
            self._control.hold_request(process, ticket, join=True, now=now)
            process.enter(ProcessPhase.WAITING, now)
        elif self.forming and knows_its_slot and process.phase in {ProcessPhase.ASSIGNED, ProcessPhase.ARRIVED}:
            self._control.hold_request(process, ticket, join=True, now=now)
            process.enter(ProcessPhase.ARRIVED, now)
        else:
            self.actions.add(AnswerRequest(ticket=ticket, text=JoinAnswer.AGAIN))
        self._decide_unless_others_are_missing(process, now)

    def initialising(self, rank: int, ticket: Ticket, now: float) -> None:
        """Rank `rank` is inside `hvd.init()`: how a stock worker shows that it has arrived. It waits for the others."""
        slots = self.processes.slots
        process = self.processes.at(slots[rank].key) if self.forming and 0 <= rank < len(slots) else None
        comes = process is not None and self.processes.is_member(process) and not process.uses_barrier
        if (
            process is not None
            and comes
            and (process.phase is ProcessPhase.ASSIGNED or process.init_ticket is not None)
        ):
            self._control.hold_in_init(process, ticket, now)
            self._decide_unless_others_are_missing(process, now)
        else:
            self.actions.add(AnswerRequest(ticket=ticket, text=""))

    def registered(self, key: SlotKey, now: float) -> None:
        """The process has entered `elastic.run` and can be notified."""
        process = self.processes.at(key)
        if process is None:
            return
        process.registered = True
        if self.processes.is_member(process):
            self._arrived_without_barrier(process, now)
            if not self.processes.reports_sync:
                self._gains_state(process)
        is_coordinator = bool(self.processes.slots) and process.key == self.processes.slots[0].key
        if self.forming or is_coordinator:
            self._decide_unless_others_are_missing(process, now)

    def synced(self, key: SlotKey, now: float) -> None:
        """The process has the job's state. Workers that never report this hold it from their release on."""
        process = self.processes.at(key)
        if process and self.processes.is_member(process):
            self._gains_state(process)
            self.processes.reports_sync = True
            if self.forming:
                self._changed(now)

    def writer_asked(self, key: SlotKey, ticket: Ticket) -> None:
        """GET writer: the process waits for a place, its pod is about to end, and it may have to store its commit."""
        first = next((process for process in self.processes.alive() if process.holds_state), None)
        is_first = first is not None and first.key == key
        self.actions.add(AnswerRequest(ticket=ticket, text=WriterAnswer.YES if is_first else WriterAnswer.NO))

    def exited(self, number: int, code: int, now: float, message: str = "") -> None:
        """The process has ended; `message`: the last lines of its error output."""
        process = self.processes.ended(number)
        if process is None or self.finished:
            return
        self._control.close_request(process)
        self._control.release_from_init(process)
        if process.phase is not ProcessPhase.LEAVING:
            self.processes.dismiss(process)
            self._ended_unasked(process, code, message, now)
        self._changed(now)

    def notified(self, *, delivered: bool, now: float) -> None:
        """The outcome of the last NotifyCoordinator."""
        if not delivered:
            self._notices.not_delivered(now)
        self._changed(now)

    def pinged(self, number: int, outcome: PingOutcome, now: float) -> None:
        """The outcome of a PingProcess."""
        if self._state.signs.pinged(number, outcome, now):
            self._changed(now)

    def stop(self, exit_code: int, reason: str) -> None:
        """End the job: a signal, or an error of the launcher itself."""
        self.actions.finish(exit_code, reason)

    def _note_request(self, process: Process, now: float) -> None:
        self._state.signs.heard_from(process.number, now)
        self._barrier.request_came(now)

    def _gains_state(self, process: Process) -> None:
        if not self.processes.state_exists:
            self._awaited.forget()
        self.processes.gains_state(process)

    # --- Decisions ---------------------------------------------------------------------------------------------------

    def _decide_unless_others_are_missing(self, process: Process, now: float) -> None:
        """Decide after a request of `process`, unless the last decision waits for others to make the same one."""
        if process.phase is ProcessPhase.ASSIGNED:
            self._barrier.expect(process, now)
        if not self._awaited.others_are_missing(process):
            self._changed(now)

    def _changed(self, now: float) -> None:
        if self._takes_several:
            self._decision_is_due = True
        else:
            self.decide(now)

    def decide(self, now: float) -> None:
        """Draw every consequence of what is known; idempotent. Takes time in proportion to the number of processes."""
        self.actions.wake_at, self._decision_is_due = math.inf, False
        if self.finished:
            return
        generation = self.processes.generation
        self._form_or_run(now)
        if generation != self.processes.generation:
            self._form_or_run(now)  # the members of the new world have deadlines
        self._follow_up(now)
        self._awaited.find(at_barrier=self.forming and self._barrier.is_waiting())

    def _form_or_run(self, now: float) -> None:
        if not self.processes.slots:
            self._formation.begin(now)
            return
        if self.forming and self._barrier.check(now):
            self._run(now)
        self._formation.leave_when_all_ask(now)

    def _follow_up(self, now: float) -> None:
        if self.finished:
            return
        if self.processes.slots:
            eligible = self._state.hosts.eligible(now)
            if not self._state.succeeded:
                self._newcomers.start(eligible, now)
            self._newcomers.end_useless(eligible, now)
            self._notify(now)
        self._control.enforce_deadlines(now)
        self.actions.wake_by(self._state.hosts.next_return(now))

    def wanted_size(self, now: float) -> int:
        """The size of the world that the hosts would allow."""
        return len(self._state.place(self._state.hosts.eligible(now)))

    def blacklisted(self, now: float) -> tuple[str, ...]:
        """Aliases that are left out because a process died there."""
        return self._state.hosts.blacklisted(now)

    # --- The world that forms or runs --------------------------------------------------------------------------------

    def _run(self, now: float) -> None:
        """All members have arrived: the world that was forming runs."""
        self._barrier.release(now)
        self.actions.add(self._state.resize.end_pause(self.processes.generation, len(self.processes.slots), now))
        self._state.forming = False
        self._notices.restart(now)

    def _notify(self, now: float) -> None:
        if self.forming or self._state.succeeded or any(p.phase is ProcessPhase.ASKING for p in self.processes.alive()):
            return
        slots = self._state.place(next_hosts(self._state.hosts.eligible(now), self.processes))
        if self._notices.send(slots if len(slots) >= self._state.limits.minimum else (), now):
            self._state.resize.begin_pause(now)

    # --- Single processes --------------------------------------------------------------------------------------------

    def _arrived_without_barrier(self, member: Process, now: float) -> None:
        if member.phase is ProcessPhase.ASSIGNED and not member.uses_barrier:
            member.enter(ProcessPhase.ARRIVED, now)

    def _ended_unasked(self, process: Process, code: int, message: str, now: float) -> None:
        verdict = judge(code, restart_errors=self._state.limits.restart_errors)
        expendable = process.phase in {ProcessPhase.STARTED, ProcessPhase.WAITING} or (
            process.never_asked and process.phase is ProcessPhase.ASSIGNED and self.processes.state_exists
        )
        if verdict is ExitVerdict.SUCCESS and not expendable:
            self._state.succeeded = True
            return
        if verdict is ExitVerdict.MISTAKE or (verdict is ExitVerdict.SCRIPT_ERROR and not expendable):
            reason = f"rank {process.slot.rank} on {process.name} failed: {explain(code)}\n{message}"
            self.actions.finish(code, reason.rstrip())
            return
        if self.processes.is_member(process):
            self._state.resize.begin_pause(now)
            # The survivors learn of it from their broken connections; a notice as well would make them reset twice.
            self._notices.postpone(now)
        self._control.lose(process, code, verdict, message, now)
