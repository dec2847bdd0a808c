"""Reads the objects of a list one by one: one that cannot be read must not stop what is done with the others."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.system.untrusted_values import UNREADABLE, one_line

log = logging.getLogger(__name__)

_MOST_NAMED: Final = 1000
"""Objects. Of who makes new ones again and again no more is said."""
_MOST_WORDS: Final = 200
_MOST_NAME: Final = 320
"""Characters of `NAMESPACE/NAME`."""
_T = TypeVar("_T")


class ObjectReading:
    """Leaves out what cannot be read, and names it once. One thread at a time."""

    def __init__(self, kind: str, say: Callable[[str], None] = log.warning) -> None:
        """`kind`: of the objects, in the sentence that `say` is called with."""
        self._kind, self._say = kind, say
        self._named: set[str] = set()

    def each(self, objects: Iterable[Json], read: Callable[[Json], _T | None]) -> Iterator[_T]:
        """What `read` makes of each, without the None."""
        for one in objects:
            try:
                found = read(one)
            except UNREADABLE as error:
                self.name(one, error)
            else:
                if found is not None:
                    yield found

    def name(self, one: object, error: Exception) -> None:
        """Say that an object cannot be read, unless that was said."""
        name = object_name(one)
        if name not in self._named and len(self._named) < _MOST_NAMED:
            self._named.add(name)
            words = one_line(f"{type(error).__name__}: {error}", _MOST_WORDS)
            self._say(f"the {self._kind} {name} cannot be read and is left out: {words}")


def object_name(one: object) -> str:
    """`NAMESPACE/NAME` of an object, whatever it is."""
    meta: Any = one.get("metadata") if isinstance(one, dict) else None
    told = meta if isinstance(meta, dict) else {}
    return one_line(f"{told.get('namespace', '')}/{told.get('name', '')}", _MOST_NAME) or "/"
