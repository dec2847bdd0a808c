"""Small JSON objects that contain a digest of themselves. They are JSON so that people can read them."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from hvd_elastic.stores.store import Store
from hvd_elastic.trainer.checkpoint.errors import CorruptError

FORMAT: Final = 1
READS: Final = 3
"""Attempts to read an object before the stored data, and not the transfer, counts as damaged."""

T = TypeVar("T")


def seal(body: Mapping[str, object]) -> bytes:
    """Serialize `body` with its format and digest."""
    body = {"format": FORMAT, **body}
    return json.dumps({**body, "digest": _digest(body)}, indent=1).encode()


def unseal(data: bytes) -> dict[str, Any]:
    """Return the body of a sealed object.

    Raises:
        CorruptError: it is damaged or has another format.
    """
    try:
        body: dict[str, Any] = json.loads(data)
        digest = body.pop("digest")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CorruptError(f"it is not a sealed object: {error!r}") from error
    if digest != _digest(body):
        raise CorruptError("it does not match its own digest")
    if body.pop("format", None) != FORMAT:
        raise CorruptError(f"its format is not {FORMAT}: read it with the version that wrote it")
    return body


def _digest(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_sealed(store: Store, key: str, decode: Callable[[bytes], T]) -> tuple[T, str] | None:
    """Return a small object and its version, or None if there is none.

    Raises:
        CorruptError: it was read READS times and was damaged each time.
    """
    for attempt in range(READS):
        found = store.read(key)
        if found is None:
            return None
        try:
            return decode(found.data), found.version
        except CorruptError as error:
            if attempt == READS - 1:
                raise CorruptError(f"{key}: {error}") from error
    return None
