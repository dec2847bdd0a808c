"""The workers to which a launcher keeps a connection: those on its list, and those that may soon be on it.

A worker runs for seconds before its standby is warm, and a connection over ssh takes a fifth of a second. So the
sidecar names each worker as soon as it has an address, and the launcher connects while it imports. The file's grammar
is at `mpijob.contract.EXPECTED_FILE`. A word too many costs a connection, one too few the time to open it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import EXPECTED_FILE
from hvd_elastic.system.atomic_file import replace_file

_LINE: Final = re.compile(r"([A-Za-z0-9._-]+) ([A-Za-z0-9._:-]+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedWorker:
    """A pod, by what tells it from a later one with the same address."""

    uid: str
    address: str
    """IPv4 or IPv6 address."""


def write_expected(folder: Path, addresses: Mapping[str, str]) -> None:
    """Replace the file in `folder`. `addresses`: by pod UID. Raises OSError."""
    replace_file(folder / EXPECTED_FILE, "".join(f"{uid} {address}\n" for uid, address in addresses.items()))


def read_expected(folder: Path) -> tuple[ExpectedWorker, ...]:
    """Read the file in `folder`; nobody where there is none, as with a sidecar that writes none.

    Lines that do not follow the grammar are left out. Raises OSError.
    """
    try:
        lines = (folder / EXPECTED_FILE).read_bytes().decode("ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(ExpectedWorker(uid=match[1], address=match[2]) for match in map(_LINE.fullmatch, lines) if match)
