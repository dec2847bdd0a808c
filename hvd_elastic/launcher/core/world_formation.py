"""How one world follows another: when the current one is left, and which slots the next one has."""

from collections.abc import Iterable

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.actions import FormWorld, LogWarning
from hvd_elastic.launcher.core.hosts.lost_pods import LostPodsVerdict
from hvd_elastic.launcher.core.hosts.next_hosts import next_hosts, state_holders_first
from hvd_elastic.launcher.core.process_control import ProcessControl
from hvd_elastic.launcher.core.processes.process import Deadline, Process, ProcessPhase
from hvd_elastic.launcher.core.resize_causes import CauseKind, ResizeCause, describe_causes, world_differences
from hvd_elastic.launcher.core.slot_placement import Slot, place
from hvd_elastic.launcher.core.world_state import WorldState
from hvd_elastic.mpijob.contract import Exit

_AGAIN = "training begins again as soon as enough workers are ready, from the durable checkpoint if there is one"


class WorldFormation:
    """Forms the worlds of a job, or ends the job where no further world is possible."""

    def __init__(self, state: WorldState, control: ProcessControl) -> None:
        self._state, self._control = state, control
        self._failed_starts = 0
        """Worlds in a row that have failed on hosts that stay, before any process held the state."""
        self._short_since: float | None = None
        """Since when there are too few slots for a world."""
        self._lost_since: float | None = None
        """Since when no process holds the state."""
        self._waits_to_begin = False
        """Whether the job waits to begin again, because no process holds the state any more."""

    def begin(self, now: float) -> None:
        """Form a world where there is none, once there are enough hosts."""
        lost_pods = self._state.hosts.lost_pods.verdict(now)
        if self._waits_to_begin and lost_pods in {LostPodsVerdict.CAME_BACK, LostPodsVerdict.UNKNOWN}:
            self._wait_for_pods(lost_pods)
            return
        slots = self._state.place(self._state.hosts.eligible(now))
        is_first = self._state.processes.generation == 0 and not self._state.has_begun
        needed = self._state.limits.start if is_first else self._state.limits.minimum
        if len(slots) < needed:
            self._wait_for_slots(len(slots), needed, now)
            return
        settled = self._state.hosts.unchanged_since + self._state.limits.settle
        if now < settled and len(slots) != self._state.limits.maximum:
            self._state.actions.wake_by(settled)
            return
        if lost_pods is LostPodsVerdict.CAME_BACK:
            self._failed_starts += 1
            if self._failed_starts >= self._state.limits.most_failed_starts:
                why = f"{self._failed_starts} worlds in a row failed before any process held the state ({self._why()})"
                self._state.actions.finish(Exit.ALL_WORKERS_LOST, why)
                return
        self._form(slots, now)

    def _wait_for_pods(self, verdict: LostPodsVerdict) -> None:
        """Wait until the lost hosts are known to be taken away. If they come back, it was their processes that failed.

        Without this a script that runs out of memory on every host would be begun again for ever.
        """
        if verdict is LostPodsVerdict.CAME_BACK:
            self._finish_without_state()
        else:
            self._state.actions.wake_by(self._state.hosts.lost_pods.deadline)

    def leave_when_all_ask(self, now: float) -> None:
        """Leave the current world once all its members ask or are gone. After a success the job ends then."""
        alive = self._state.processes.alive()
        asking = [p for p in alive if p.phase is ProcessPhase.ASKING]
        if alive and not asking and (self._state.forming or self._state.processes.is_whole()):
            return
        since = self._state.signs.start_pinging(now)
        self._state.signs.ping(alive, now)
        silent = ((process, self._state.signs.deadline(process, others_wait=bool(asking))) for process in alive)
        self._control.write_off_late(((process, deadline) for process, deadline in silent if deadline), now)
        alive = self._state.processes.alive()
        asking = [p for p in alive if p.phase is ProcessPhase.ASKING]
        blocking = [p for p in alive if p.phase is not ProcessPhase.ASKING and not p.is_cold]
        if self._state.succeeded:
            if not blocking:
                self._state.actions.finish(Exit.OK, "the script has ended")
            return
        asked = max((p.phase_since for p in asking), default=None)
        deadlines = ((process, self._deadline(process, since, asked)) for process in blocking)
        if not self._control.write_off_late(deadlines, now):
            self._leave_world(now)

    def _leave_world(self, now: float) -> None:
        alive = self._state.processes.alive()
        holders = [p for p in alive if p.holds_state]
        limit = self._state.limits.reset_limit
        if limit is not None and self._state.resets >= limit:
            self._state.actions.finish(Exit.RESET_LIMIT, f"the limit of {limit} resets is reached ({self._why()})")
        elif self._state.processes.state_exists and not holders:
            self._begin_again(alive, now)
        elif not alive:
            self._state.processes.dissolve()
            self._state.forming = False
            self.begin(now)
        else:
            self._form_next(holders, now)

    def _begin_again(self, alive: list[Process], now: float) -> None:
        """No process holds the state: begin from the durable checkpoint, unless processes failed on hosts that stay.

        Whoever takes every host, inference or a drain, gives no reason to end the job. A failure on every host does.
        """
        if self._state.hosts.failed():
            self._lost_since = now if self._lost_since is None else self._lost_since
            deadline = self._lost_since + self._state.limits.loss_patience
            if now >= deadline:
                self._finish_without_state()
            self._state.actions.wake_by(deadline)
            return
        self._state.actions.add(
            LogWarning(text=f"every worker that held the state was taken away ({self._why()}): {_AGAIN}")
        )
        for process in alive:
            process.enter(ProcessPhase.WAITING, now)
        self._state.processes.dissolve()
        self._state.processes.forget_state()
        self._state.forming, self._lost_since, self._waits_to_begin = False, None, True
        self.begin(now)

    def _finish_without_state(self) -> None:
        why = f"no process is left that holds the state ({self._why()})"
        self._state.actions.finish(Exit.ALL_WORKERS_LOST, why)

    def _form_next(self, holders: list[Process], now: float) -> None:
        usable = next_hosts(self._state.hosts.eligible(now), self._state.processes)
        hosts, handover = state_holders_first(usable, holders)
        limits, available = self._state.limits, sum(host.slots for host in hosts)
        if limits.size(available - handover) < limits.minimum:
            self._keep_only(hosts, now)
            self._let_dispensable_go(now)
            self._wait_for_slots(available - handover, limits.minimum, now)
        else:
            self._form(place(hosts, limits.handover_size(available, handover)), now)

    def _form(self, slots: tuple[Slot, ...], now: float) -> None:
        eligible = self._state.hosts.eligible(now) if self._state.limits.sizes else ()
        causes, usable = self._state.resize.causes, {host.alias for host in eligible}
        self._state.resize.add(*world_differences(self._state.processes.slots, slots, causes, usable))
        if not self._state.resize.causes:
            self._state.resize.add(self._own_wish())
        generation = self._state.processes.generation + 1
        self._state.resets += generation > 1
        if self._state.processes.state_exists:
            self._failed_starts = 0
        self._state.forming = True
        self._short_since, self._lost_since, self._waits_to_begin = None, None, False
        self._state.hosts.forget_failures()
        self._state.signs.stop_pinging()
        self._state.processes.state_is_dispensable = False
        self._state.actions.add(FormWorld(generation=generation, slots=slots))
        places = {slot.key: slot for slot in slots}
        for process in self._state.processes.present():
            if process.key in places:
                self._control.admit(process, places[process.key], generation, now)
            elif self._state.processes.is_member(process):
                self._control.let_go(process, now)
        for slot in slots:
            if self._state.processes.at(slot.key) is None:
                self._control.start(slot, generation=generation, phase=ProcessPhase.ASSIGNED, now=now)
        self._state.processes.form(slots)

    def _keep_only(self, hosts: Iterable[Host], now: float) -> None:
        """Too few slots for a world: processes that it will not include need not wait for it."""
        staying = {host.alias for host in hosts}
        if any(p.holds_state and p.alias in staying for p in self._state.processes.alive()):
            for process in self._state.processes.alive():
                if process.alias not in staying and process.phase is ProcessPhase.ASKING:
                    self._state.resize.add(ResizeCause(kind=CauseKind.REMOVED, host=process.slot.host.label))
                    self._control.let_go(process, now)

    def _let_dispensable_go(self, now: float) -> None:
        """Too few slots, and nobody needs the state: a process whose pod was taken away need not wait for its end.

        Only the writer knows by itself that its commit is durable.
        """
        if self._state.processes.state_is_dispensable:
            for process in self._state.processes.alive():
                if process.phase is ProcessPhase.ASKING and self._state.hosts.has_left(process.alias):
                    self._state.resize.add(ResizeCause(kind=CauseKind.REMOVED, host=process.slot.host.label))
                    self._control.let_go(process, now)

    def _wait_for_slots(self, have: int, need: int, now: float) -> None:
        if self._short_since is None:
            self._short_since = now
        deadline = self._short_since + self._state.limits.elastic_timeout
        if now >= deadline:
            self._state.actions.finish(
                Exit.MIN_WORKERS_TIMEOUT,
                f"{have} of {need} needed slots for {self._state.limits.elastic_timeout:g} s ({self._why()})",
            )
        self._state.actions.wake_by(deadline)

    def _deadline(self, process: Process, since: float, asked: float | None) -> Deadline:
        """Until when this member may take its time.

        Args:
            process: it has not asked for a place. It is not known to be silent.
            since: when the world has come to stand still.
            asked: when the last other member has asked; None if no member waits for this one.
        """
        limits = self._state.limits
        patience = limits.hang_timeout
        if asked is not None:
            if self._state.hosts.has_left(process.alias):
                patience = limits.removed_patience
            elif not process.registered:
                patience = min(limits.entry_patience, limits.hang_timeout)
        at = max(since, process.phase_since, since if asked is None else asked) + patience
        return Deadline(at=at, reason=f"does not come ({patience:g} s)")

    def _own_wish(self) -> ResizeCause:
        asking = [p for p in self._state.processes.alive() if p.phase is ProcessPhase.ASKING]
        _, rank = min((p.phase_since, p.slot.rank) for p in asking)
        return ResizeCause(kind=CauseKind.OTHER, detail=f"asked for by rank {rank}")

    def _why(self) -> str:
        return describe_causes(self._state.resize.causes) or f"hosts: {self._state.hosts}"
