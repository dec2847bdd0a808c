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
    WorldChanged,
    from_lines,
    to_line,
    to_text,
)
from hvd_elastic.discovery.ledger.launcher_view import last_launcher

MAX_BYTES: Final = 256 * 1024
"""Of the text, as long as what is not over takes no more than half of it: each write sends it whole. Where that takes
more, half of this is there for the newest entries, up to MOST_BYTES."""
MOST_BYTES: Final = 768 * 1024
"""Of the text, always. A ConfigMap holds 1 MiB (Kubernetes 1.34, `pkg/apis/core/validation`, `MaxSecretSize`)."""
_OF_WORKER: Final = (WorkerBound, WorkerLeaving, WorkerGone)
_ONCE: Final = (*_OF_WORKER, LauncherStarted, LauncherEnded)
"""Each of these stands once for each UID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedLedger:
    """The entries, and their text as it is stored."""

    entries: tuple[Entry, ...] = ()
    text: str = field(default="", repr=False)
    """Lines of kinds that this version does not know stay in it until it is shortened."""
    most_bytes: int = field(default=0, repr=False)
    """The length at which it is shortened next, if that is more than usual."""
    known: frozenset[str] = field(default=frozenset(), repr=False)
    """What tells each of the entries from all others. Kept, so that an append looks at the new ones alone."""

    @classmethod
    def from_text(cls, text: str) -> "BoundedLedger":
        """Read a ledger. Lines that cannot be read are not among the entries."""
        whole = text if not text or text.endswith("\n") else text + "\n"
        entries = tuple(from_lines(whole.splitlines()))
        return cls(entries=entries, text=whole, known=frozenset(map(_identity, entries)))

    def without_known(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of `entries` that are not in this ledger: it was written by somebody else, or by us unawares."""
        return [entry for entry in entries if _identity(entry) not in self.known]

    def append(self, entries: Sequence[Entry], *, max_bytes: int = MAX_BYTES) -> "BoundedLedger":
        """The ledger with `entries` at its end, shortened if it would be too long."""
        longer = BoundedLedger(
            entries=(*self.entries, *entries),
            text=self.text + to_text(entries),
            most_bytes=self.most_bytes,
            known=self.known.union(map(_identity, entries)),
        )
        is_long = len(longer.text.encode()) > max(max_bytes, self.most_bytes)
        return longer._shortened(max_bytes) if is_long else longer

    def continues(self, other: "BoundedLedger") -> bool:
        """Whether this has all that `other` has, summed up or not, and perhaps more.

        Entries are appended and summed up from the oldest on. So one that tells of fewer, or neither has the newest of
        `other` nor has summed it up, was changed by somebody else's hand.
        """
        if not other.entries:
            return True
        has_newest = _identity(other.entries[-1]) in self.known
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
        """The older half as sums. What is not over may be long by itself; then it is longer for the newest entries."""
        standing = len(to_text(_sums(self.entries)))
        most_bytes = min(MOST_BYTES, max(max_bytes, standing + max_bytes // 2))
        room = max(0, most_bytes - standing) // 2
        first, newest = self._standing, len(self.entries)
        while newest > first and (room := room - len(to_line(self.entries[newest - 1]))) >= 0:
            newest -= 1
        short = self._summed_up_to(newest, most_bytes)
        # What ended among the newest stood open before them, and may have been long.
        return short if len(short.text) <= MOST_BYTES else self._summed_up_to(len(self.entries), most_bytes)

    def _summed_up_to(self, newest: int, most_bytes: int) -> "BoundedLedger":
        entries = (*_within(MOST_BYTES, _sums(self.entries[:newest])), *self.entries[newest:])
        known = frozenset(map(_identity, entries))
        return BoundedLedger(entries=entries, text=to_text(entries), most_bytes=most_bytes, known=known)


def _sums(entries: Sequence[Entry]) -> list[Entry]:
    """A Totals and what is not over, the present launcher among it: the next one tells its end."""
    totals, rest = summed_up(entries)
    launcher = last_launcher(entries)
    launchers: list[Entry] = [launcher] if launcher else []
    return [replace(totals, carried=totals.carried + len(launchers)), *launchers, *rest]


def _within(most_bytes: int, sums: list[Entry]) -> list[Entry]:
    """The same with fewer workers, if it is too long: of those left out nothing more counts, and that is told."""
    while len(to_text(sums)) > most_bytes and (
        workers := [entry.uid for entry in sums if isinstance(entry, WorkerBound)]
    ):
        gone = {entry.uid for entry in sums if isinstance(entry, WorkerGone)}
        left_out = gone or set(workers[len(workers) // 2 :])  # what was lent before what is held
        totals, *rest = (entry for entry in sums if not (isinstance(entry, _OF_WORKER) and entry.uid in left_out))
        if isinstance(totals, Totals):
            totals = replace(totals, carried=len(rest), counts_since=totals.unix)
        sums = [totals, *rest]
    return sums


def _identity(entry: Entry) -> str:
    if isinstance(entry, _ONCE):
        return f"{entry.kind} {entry.uid}"
    if isinstance(entry, WorldChanged):  # the names of all its workers would be long
        return f"{entry.kind} {entry.unix} {entry.step} {len(entry.workers)}"
    return to_line(entry)
