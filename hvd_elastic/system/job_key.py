"""How the parts of a job know each other's requests: by the ssh key that the operator makes for each job.

Launcher and workers have it mounted; nobody else can read it who may not read the namespace's Secrets. Neither it nor
what is made of it leaves its pod: a worker that is asked for something gives a nonce, and the request is signed with
it. Whoever has got a worker's former address, where requests may still go, learns nothing that is believed elsewhere.
"""

import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

NO_KEY: Final = "-"
"""Where there is no key: on a local host, and under an operator that makes none."""

_PURPOSE: Final = b"hvd-elastic signed request on READY_PORT"
_BEARER_PURPOSE: Final = b"hvd-elastic request on READY_PORT"
"""Of the word that sidecars of 0.1 send."""


def request_key(private_key: Path) -> str:
    """Return the key by which a pod signs requests, and knows them; NO_KEY where there is no ssh key."""
    return _made_of(private_key, _PURPOSE)


def bearer_word(private_key: Path) -> str:
    """Return the word by which sidecars of 0.1 are known, for one release; NO_KEY where there is no ssh key."""
    return _made_of(private_key, _BEARER_PURPOSE)


def _made_of(private_key: Path, purpose: bytes) -> str:
    try:
        return hmac.new(private_key.read_bytes(), purpose, hashlib.sha256).hexdigest()
    except OSError:
        return NO_KEY


def new_nonce() -> str:
    """Return what the next request has to be signed with."""
    return os.urandom(16).hex()


def sign(key: str, nonce: str, request: str) -> str:
    """Return the signature of a request; NO_KEY where that is the key."""
    if key == NO_KEY:
        return NO_KEY
    return hmac.new(key.encode(), f"{nonce} {request}".encode(), hashlib.sha256).hexdigest()


def is_same(word: str, known: str) -> bool:
    """Whether a stranger's word is the known one. How long it takes does not tell how much of it is right."""
    return hmac.compare_digest(word.encode(), known.encode())
