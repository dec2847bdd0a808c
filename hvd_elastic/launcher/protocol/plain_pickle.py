"""Pickles of stock Horovod, of which nothing is run that was not read first.

Twelve bytes make Python's unpickler reserve hundreds of megabytes (`LONG_BINPUT` with a large index), and a hundred put
a tuple into itself until its hash takes seconds (`DUP`, or `MEMOIZE` and `BINGET`, with `TUPLE2`). So only opcodes that
Horovod's messages have are allowed, few of them, and of what was memorised only texts are taken again.
"""

import io
import pickle
import pickletools
from typing import Any, Final

from hvd_elastic.mpijob.contract import HvdElasticError

MOST_BYTES: Final = 65_536
_MOST_OPCODES: Final = 4096
"""An address of a worker takes six."""
_TEXTS: Final = frozenset({"SHORT_BINUNICODE", "BINUNICODE"})
_COMMON: Final = _TEXTS | {"PROTO", "FRAME", "MARK", "MEMOIZE", "BINGET", "EMPTY_DICT", "SETITEM", "SETITEMS", "STOP"}
_OF_CONTAINERS: Final = _COMMON | {"EMPTY_LIST", "APPEND", "APPENDS", "TUPLE2", "BININT1", "BININT2", "SHORT_BINBYTES"}
_OF_REPLIES: Final = _COMMON | {"STACK_GLOBAL", "EMPTY_TUPLE", "NEWOBJ", "BUILD", "NONE"}
_MODULE: Final = "horovod.runner.common.util.network"
REPLIES: Final = frozenset({"PingResponse", "AckResponse"})
"""Classes of the notification service's answers."""


class PlainPickleError(HvdElasticError):
    """A pickle that Horovod does not write."""


class _PlainUnpickler(pickle.Unpickler):
    """Finds the classes of Horovod's replies, and nothing else that a message could name."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == _MODULE and global_name in REPLIES:
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed here")


def load_containers(data: bytes) -> object:
    """Pairs, lists and dicts of texts, bytes and ports. Raises PlainPickleError for everything else."""
    return _load(data, _OF_CONTAINERS)


def load_reply(data: bytes) -> object:
    """One of REPLIES. Raises PlainPickleError for everything else."""
    reply = _load(data, _OF_REPLIES)
    if type(reply).__name__ not in REPLIES:
        raise PlainPickleError(f"{type(reply).__name__} is not a reply")
    return reply


def _load(data: bytes, allowed: frozenset[str]) -> object:
    try:
        _check(data, allowed)
        return _PlainUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a hostile pickle can raise anything
        raise PlainPickleError(f"not a message of Horovod's: {str(error)[:200]}") from error


def _check(data: bytes, allowed: frozenset[str]) -> None:
    """Read all opcodes, and run none. Raises ValueError."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"{len(data)} bytes")
    before, memo = "", list[bool]()
    for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        name = opcode.name
        if name not in allowed or number >= _MOST_OPCODES:
            raise ValueError(f"the opcode {name}, number {number}")
        if name == "MEMOIZE":
            memo.append(before in _TEXTS)
        if name == "BINGET" and not (isinstance(argument, int) and argument < len(memo) and memo[argument]):
            raise ValueError("what is no text is taken twice")
        before = name
