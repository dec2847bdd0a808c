"""Which requests at the rendezvous server are believed."""

import hmac
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from hvd_elastic.launcher.core.slot_placement import SlotKey
from hvd_elastic.mpijob.contract import (
    ADDRESSES_SCOPE,
    ENDED_SCOPE,
    FIGURES_SCOPE,
    JOIN_SCOPE,
    MEETING_SCOPE,
    PLACE_SCOPE,
    SYNCED_SCOPE,
    WAITING_SCOPE,
    WRITER_SCOPE,
)

OWN_SCOPES: Final = frozenset(
    {JOIN_SCOPE, SYNCED_SCOPE, WRITER_SCOPE, ENDED_SCOPE, WAITING_SCOPE, MEETING_SCOPE, FIGURES_SCOPE}
)
"""Only this project's workers ask here."""

WORKER_SCOPES: Final = frozenset({PLACE_SCOPE, ADDRESSES_SCOPE})
"""Stock workers ask here as well, without a token."""


class Proof(StrEnum):
    """What a request shows of who sends it."""

    RIGHT = "right"
    NONE = "none"
    WRONG = "wrong"


class Admission:
    """Tells the job's own processes from strangers by the job's token.

    Stock Horovod shows no token. So a request without one is believed as long as nothing says that a process of the job
    would have shown it: all workers run the same command, and each says at the barrier whether its Horovod has the
    patch `rendezvous-token`.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._workers_show_it = False
        """Whether any worker has shown the token: they are this project's."""
        self._silent: set[SlotKey] | None = None
        """The members of the current world that have not said that their Horovod shows it; None before a world."""

    def proof(self, shown: str | None) -> Proof:
        """Judge the token that a request shows."""
        if shown is None:
            return Proof.NONE
        is_right = hmac.compare_digest(shown.encode(errors="replace"), self._token)
        return Proof.RIGHT if is_right else Proof.WRONG

    def form(self, members: Iterable[SlotKey]) -> None:
        """A new world forms. Each of its members comes to the barrier before any of them looks for the others."""
        self._silent = set(members)

    def admits(self, scope: str, proof: Proof) -> bool:
        """Whether a request in this scope is believed. Scopes that are not named here are those of Horovod's C++."""
        if proof is Proof.RIGHT:
            self._workers_show_it = True
        if proof is not Proof.NONE:
            return proof is Proof.RIGHT
        if scope in OWN_SCOPES:
            return False
        return not (self._workers_show_it if scope in WORKER_SCOPES else self._horovod_shows_it())

    def horovod_of(self, member: SlotKey, *, shows_token: bool) -> bool:
        """Note what a process says of its Horovod. Whether it was the last member to say that it shows the token."""
        if not shows_token or not self._silent or member not in self._silent:
            return False
        self._silent.discard(member)
        return self._horovod_shows_it()

    def _horovod_shows_it(self) -> bool:
        return self._silent is not None and not self._silent
