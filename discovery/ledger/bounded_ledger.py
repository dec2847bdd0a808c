"""The ledger as one text of bounded length: what is new is appended, and the oldest entries are summed up in time.

A shortened ledger begins with one Totals; behind it stands what was not over, and then the newest entries as they were.
`account.fold` gives the same sums of it as of the whole one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hvd_elastic.discovery.ledger.account import summed_up
from hvd_elastic.discovery.ledger.entries import (
    Entry,
    LauncherEnded,
    LauncherStarted,
    Totals,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    from_lines,
    to_line,
)
from hvd_elastic.discovery.ledger.launcher_view import last_launcher

MAX_BYTES: Final = 256 * 1024
"""Of the text, unless more than that is not over. A ConfigMap holds 1 MiB (Kubernetes 1.34, `pkg/apis/core/validation`,
`MaxSecretSize`), and each write sends it whole."""
_ONCE: Final = (WorkerBound, WorkerLeaving, WorkerGone, LauncherStarted, LauncherEnded)
"""Each of these stands once for each UID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedLedger:
    """The entries, and their text as it is stored."""

    entries: tuple[Entry, ...] = ()
    text: str = field(default="", repr=False)
    """Lines of kinds that this version does not know stay in it until it is shortened."""

    @classmethod
    def from_text(cls, text: str) -> "BoundedLedger":
        """Read a ledger. Lines that cannot be read are not among the entries."""
        whole = text if not text or text.endswith("\n") else text + "\n"
        return cls(entries=tuple(from_lines(whole.splitlines())), text=whole)

    def without_known(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of `entries` that are not in this ledger: it was written by somebody else, or by us unawares."""
        known = set(map(_identity, self.entries))
        return [entry for entry in entries if _identity(entry) not in known]

    def append(self, entries: Sequence[Entry], *, max_bytes: int = MAX_BYTES) -> "BoundedLedger":
        """The ledger with `entries` at its end, shortened if it would be too long."""
        longer = BoundedLedger(entries=(*self.entries, *entries), text=self.text + "".join(map(to_line, entries)))
        return longer if len(longer.text.encode()) <= max_bytes else longer._shortened(max_bytes)

    def continues(self, other: "BoundedLedger") -> bool:
        """Whether this has all that `other` has, summed up or not, and perhaps more.

        Entries are appended and summed up from the oldest on. So one that tells of fewer, or neither has the newest of
        `other` nor has summed it up, was changed by somebody else's hand.
        """
        if not other.entries:
            return True
        has_newest = _identity(other.entries[-1]) in set(map(_identity, self.entries))
        return self._told >= other._told and (has_newest or self._summed_up >= other._told)

    @property
    def launchers(self) -> tuple[str, ...]:
        """The UIDs of the launchers, in the order in which they began."""
        return tuple(entry.uid for entry in self.entries if isinstance(entry, LauncherStarted))

    @property
    def latest_launcher(self) -> str:
        """The UID of the launcher that began last; empty: none has."""
        return next(reversed(self.launchers), "")

    @property
    def _told(self) -> int:
        """How many entries it tells of, those included that are summed up."""
        return len(self.entries) - self._standing + self._summed_up

    @property
    def _summed_up(self) -> int:
        first = next(iter(self.entries), None)
        return first.entries if isinstance(first, Totals) else 0

    @property
    def _standing(self) -> int:
        """How many entries at the beginning are one: a Totals and what was not over."""
        first = next(iter(self.entries), None)
        return 1 + first.carried if isinstance(first, Totals) else 0

    def _shortened(self, max_bytes: int) -> "BoundedLedger":
        """The older half as sums. What is not over may be long by itself; then fewer entries stay as they were."""
        standing = len("".join(map(to_line, _sums(self.entries))))
        room = max(0, max_bytes - standing) // 2
        first, newest = self._standing, len(self.entries)
        while newest > first and (room := room - len(to_line(self.entries[newest - 1]))) >= 0:
            newest -= 1
        entries = (*_sums(self.entries[:newest]), *self.entries[newest:])
        return BoundedLedger(entries=entries, text="".join(map(to_line, entries)))


def _sums(entries: Sequence[Entry]) -> list[Entry]:
    """A Totals and what is not over, the present launcher among it: the next one tells its end."""
    totals, rest = summed_up(entries)
    launcher = last_launcher(entries)
    launchers: list[Entry] = [launcher] if launcher else []
    return [replace(totals, carried=totals.carried + len(launchers)), *launchers, *rest]


def _identity(entry: Entry) -> str:
    return f"{entry.kind} {entry.uid}" if isinstance(entry, _ONCE) else to_line(entry)
