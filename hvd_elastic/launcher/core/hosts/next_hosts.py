"""The hosts of the next world: in which order, and with how many slots."""

import dataclasses
from collections.abc import Iterable, Sequence, Set

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.processes.process import Process, ProcessPhase
from hvd_elastic.launcher.core.processes.process_table import ProcessTable
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey


def oldest_first(hosts: Iterable[Host], slots: Sequence[Slot]) -> tuple[Host, ...]:
    """The hosts of the current world in its order, then the new ones in the source's order."""
    by_alias = {host.alias: host for host in hosts}
    order = dict.fromkeys((*(slot.host.alias for slot in slots), *by_alias))
    return tuple(by_alias[alias] for alias in order if alias in by_alias)


def next_hosts(hosts: Iterable[Host], processes: ProcessTable) -> tuple[Host, ...]:
    """The hosts, oldest first, each with the slots that could take part in the next world at once."""
    leaving = processes.leaving()
    usable = (_with_usable_slots(host, processes, leaving) for host in oldest_first(hosts, processes.slots))
    return tuple(host for host in usable if host.slots > 0)


def state_holders_first(hosts: Sequence[Host], holders: Sequence[Process]) -> tuple[tuple[Host, ...], int]:
    """The hosts, those that hold the state first, and how many slots are there only to hand the state over."""
    aliases = {process.alias for process in holders}
    handover = 0
    if holders and hosts and not any(host.alias in aliases for host in hosts):
        # Every host that holds the state is to leave, and the others would start from nothing: keep one for now.
        keep = holders[0]
        handover = sum(1 for process in holders if process.alias == keep.alias)
        hosts = (dataclasses.replace(keep.slot.host, slots=handover), *hosts)
    return tuple(sorted(hosts, key=lambda host: host.alias not in aliases)), handover


def _with_usable_slots(host: Host, processes: ProcessTable, leaving: Set[SlotKey]) -> Host:
    count = 0
    while count < host.slots and _is_usable((host.alias, count), processes, leaving):
        count += 1
    return host if count == host.slots else dataclasses.replace(host, slots=count)


def _is_usable(key: SlotKey, processes: ProcessTable, leaving: Set[SlotKey]) -> bool:
    process = processes.at(key)
    if process is None:
        return not processes.newcomers_join and key not in leaving
    return not processes.newcomers_join or processes.is_member(process) or process.phase is ProcessPhase.WAITING
