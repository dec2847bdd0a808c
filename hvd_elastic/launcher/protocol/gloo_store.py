"""The key-value store in which Gloo's processes find each other."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

VALUE_LIMIT_BYTES: Final = 1 << 20
"""Gloo stores some 140 bytes for each peer in one value, so this is enough for 7,000 processes."""

_KEYS: Final = 1 << 16
_KEYS_PER_PROCESS: Final = 1 << 10
"""Two keys for each process in each of three scopes, and again for each process set."""

_BYTES: Final = 64 << 20
_BYTES_PER_PAIR: Final = 1 << 10
"""Every process stores an address for each other one, in each scope."""


class GlooStoreFullError(Exception):
    """More is stored than the processes of the world can need."""


class GlooStore:
    """Values by scope and key, as Horovod's `RendezvousServer` keeps them, but bounded."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._world = 0
        self._values: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self._finished: defaultdict[str, set[str]] = defaultdict(set)
        self._unproven: set[tuple[str, str]] = set()
        self._keys = self._bytes = 0

    def form(self, sizes: Mapping[str, int], world: int) -> None:
        """Forget everything. `sizes`: how many processes meet in each scope of the new world; `world`: in all of it."""
        self._sizes, self._world = dict(sizes), world
        self._values.clear()
        self._finished.clear()
        self._unproven.clear()
        self._keys = self._bytes = 0

    def get(self, scope: str, key: str) -> bytes | None:
        """The value; None if there is none."""
        return self._values[scope].get(key) if scope in self._values else None

    def put(self, scope: str, key: str, value: bytes, *, proven: bool) -> None:
        """Store a value; `proven`: a process of the job has sent it. Raises GlooStoreFullError."""
        self._delete(scope, key)
        is_full = self._keys >= _KEYS + _KEYS_PER_PROCESS * self._world
        if is_full or self._bytes + len(value) > _BYTES + _BYTES_PER_PAIR * self._world**2:
            raise GlooStoreFullError
        self._values[scope][key] = value
        self._keys, self._bytes = self._keys + 1, self._bytes + len(value)
        if not proven:
            self._unproven.add((scope, key))

    def delete(self, scope: str, key: str) -> None:
        """The process `key` has found all others of the scope.

        The scopes of the world are cleared once all have; of any other scope (those of process sets) this key is.
        """
        if scope not in self._sizes:
            self._delete(scope, key)
            return
        if len(self._finished[scope]) < self._sizes[scope]:
            self._finished[scope].add(key)
        if len(self._finished[scope]) == self._sizes[scope]:
            del self._finished[scope]
            for stored in list(self._values.get(scope, ())):
                self._delete(scope, stored)

    def forget_unproven(self) -> None:
        """Forget what may have come from strangers."""
        for scope, key in list(self._unproven):
            self._delete(scope, key)

    def _delete(self, scope: str, key: str) -> None:
        values = self._values.get(scope, {})
        value = values.pop(key, None)
        if value is not None:
            self._keys, self._bytes = self._keys - 1, self._bytes - len(value)
            self._unproven.discard((scope, key))
            if not values:
                del self._values[scope]
