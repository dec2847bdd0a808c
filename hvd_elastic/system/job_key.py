"""How the parts of a job know each other's requests: by the ssh key that the operator makes for each job.

Launcher and workers have it mounted; nobody else can read it who may not read the namespace's Secrets. It never leaves
its pod: a request carries a digest that nothing else is made of.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Final

NO_KEY: Final = "-"
"""Where there is no key: on a local host, and under an operator that makes none."""

_PURPOSE: Final = b"hvd-elastic request on READY_PORT"


def request_key(private_key: Path) -> str:
    """Return the word with which a pod's requests begin, and those that it believes; NO_KEY where there is no key."""
    try:
        return hmac.new(private_key.read_bytes(), _PURPOSE, hashlib.sha256).hexdigest()
    except OSError:
        return NO_KEY


def is_believed(word: str, key: str) -> bool:
    """Whether a request that begins with `word` comes from the job whose key is `key`. Without a key, all do."""
    return key == NO_KEY or hmac.compare_digest(word.encode(), key.encode())
