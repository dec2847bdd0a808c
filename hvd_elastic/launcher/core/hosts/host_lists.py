"""Lists of hosts as text: what a discovery script prints, and the flag `-H`."""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Final

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import HvdElasticError

_LINE: Final = re.compile(
    r"(?P<user>(?:[A-Za-z0-9_][A-Za-z0-9._-]*+@)?)"
    r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*+)|\[(?P<number>[0-9A-Fa-f:.]++)\])(?P<colon>:?+)(?P<slots>.*)"
)
"""`HOST:SLOTS`. Workers send the host's name in URLs, and ssh must not take it for an option."""


class HostsError(HvdElasticError):
    """A list of hosts cannot be trusted: the launcher keeps the one it has."""


def parse_script_output(text: str, default_slots: int | None) -> tuple[Host, ...]:
    """The hosts of a discovery script: one `HOST` or `HOST:SLOTS` per line, as for horovodrun, in the script's order.

    `USER@HOST:SLOTS` is HOST, reached as USER. An IPv6 address stands in brackets, `[fd00::1]:2`.

    Raises:
        HostsError: a line is not a host, or has no slots and there is no default.

    Unlike in Horovod (`HostDiscoveryScript`) the result for a repeated line does not depend on chance: the last one
    counts. A line without slots is refused at once where `--slots-per-host` is missing, instead of failing later with a
    TypeError.
    """
    hosts: dict[str, Host] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if not (match := _LINE.fullmatch(line)) or (match["slots"] and not match["colon"]):
            raise HostsError(f"line {line!r} is not HOST or HOST:SLOTS")
        count = _slots(line, match["slots"]) if match["colon"] else default_slots
        if count is None:
            raise HostsError(f"host {line!r} has no slots: print HOST:SLOTS or give --slots-per-host")
        host = match["name"] or _number(line, match["number"])
        # Horovod knows a process by HOST:LOCAL_RANK.
        alias = host.replace(":", "-")
        hosts[alias] = Host(alias=alias, address=f"{match['user']}{host}", slots=count)
    return tuple(hosts.values())


def parse_hosts_flag(text: str) -> tuple[Host, ...]:
    """The hosts of `-H a:2,b:2`. Raises HostsError like `parse_script_output`."""
    return parse_script_output(text.replace(",", "\n"), None)


def describe_hosts(hosts: Iterable[Host]) -> str:
    """Their labels, for a log line."""
    return ", ".join(host.label for host in hosts) or "none"


def _slots(line: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise HostsError(f"line {line!r} is not HOST:SLOTS (an IPv6 address stands in brackets)")
    return int(text)


def _number(line: str, text: str) -> str:
    try:
        return str(IPv6Address(text))
    except ValueError as error:
        raise HostsError(f"line {line!r} has no IPv6 address in its brackets") from error
