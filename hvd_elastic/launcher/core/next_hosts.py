"""The hosts of the next world: in which order, and which slots of them."""

import dataclasses
from collections.abc import Iterable, Sequence

from hvd_elastic.launcher.core.hosts import Host
from hvd_elastic.launcher.core.process import Process, ProcessPhase
from hvd_elastic.launcher.core.roster import Roster
from hvd_elastic.launcher.core.slot_placement import Key, Slot


def in_order(hosts: Iterable[Host], slots: Sequence[Slot]) -> tuple[Host, ...]:
    """Those of the present world in its order, then the new ones in the source's."""
    by_alias = {host.alias: host for host in hosts}
    order = dict.fromkeys((*(slot.host.alias for slot in slots), *by_alias))
    return tuple(by_alias[alias] for alias in order if alias in by_alias)


def next_hosts(hosts: Iterable[Host], roster: Roster) -> tuple[Host, ...]:
    """These hosts in their order, with the slots that could take part in the next world at once."""
    offers = (_offer(host, roster) for host in in_order(hosts, roster.slots))
    return tuple(host for host in offers if host.slots > 0)


def holders_first(hosts: Sequence[Host], holders: Sequence[Process]) -> tuple[tuple[Host, ...], int]:
    """The hosts with those first that hold the state, and how many slots are there only to hand it over."""
    aliases = {process.alias for process in holders}
    handover = 0
    if holders and hosts and not any(host.alias in aliases for host in hosts):
        # Every host that holds the state is to leave. Those that stay would start from nothing: keep one for now.
        keep = holders[0]
        handover = sum(1 for process in holders if process.alias == keep.alias)
        hosts = (dataclasses.replace(keep.slot.host, slots=handover), *hosts)
    return tuple(sorted(hosts, key=lambda host: host.alias not in aliases)), handover


def _offer(host: Host, roster: Roster) -> Host:
    count = 0
    while count < host.slots and _is_offered((host.alias, count), roster):
        count += 1
    return dataclasses.replace(host, slots=count)


def _is_offered(key: Key, roster: Roster) -> bool:
    process = roster.at(key)
    if process is None:
        return not roster.newcomers_join and key not in roster.leaving()
    return not roster.newcomers_join or roster.is_member(process) or process.phase is ProcessPhase.WAITING
