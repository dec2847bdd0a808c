"""Whether this image has the libraries through which NCCL uses Elastic Fabric Adapters.

Without them NCCL takes TCP and says so in its log alone, and machines that were paid for their network train at a
fraction of their speed. So a worker that was to have adapters does not start.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.contract import Exit, HvdElasticError

log = logging.getLogger(__name__)

_LOOK: Final = """
import ctypes, json, sys
def error(name):
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return ""
print(json.dumps({name: error(name) for name in sys.argv[1:]}))
"""
"""A process of its own: what a library does when it is loaded is not to be done in PID 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    package: str
    names: tuple[str, ...]
    """Any of them will do."""


class MissingEfaError(HvdElasticError):
    """The job asked for adapters, and this image cannot use them. The message has the way out."""

    exit_code = Exit.BAD_INPUT


def require(adapters: int, environment: Mapping[str, str]) -> None:
    """Raise MissingEfaError, with every library that is missing, if `adapters` could not be used in `environment`."""
    wanted = (_Library(package="libfabric", names=("libfabric.so.1",)), _plugin(environment))
    errors = _load(name for library in wanted for name in library.names)
    missing = [library for library in wanted if all(_is_missing(name, errors[name]) for name in library.names)]
    for name, error in errors.items():
        if error and not _is_missing(name, error):
            # Such as CUDA's, which is at its place once torch is loaded.
            log.warning("%s is there, and needs a library that is not found yet: %s", name, error)
    if missing:
        lacks = " and ".join(f"{' or '.join(library.names)} ({library.package})" for library in missing)
        raise MissingEfaError(
            f"workers.efa is {adapters}, and this image lacks {lacks}: NCCL would use TCP. Build the image with "
            "--build-arg NETWORK=efa (docs/image.md), or leave workers.efa out to train over TCP"
        )


def _plugin(environment: Mapping[str, str]) -> _Library:
    """What NCCL opens: `libnccl-net.so`, or what NCCL_NET_PLUGIN says, a file or the end of a name (NCCL's guide)."""
    chosen = [name.strip() for name in environment.get("NCCL_NET_PLUGIN", "").split(",") if name.strip()]
    names = [name for one in chosen for name in (one, f"libnccl-net-{one}.so")]
    return _Library(package="aws-ofi-nccl", names=tuple(names) or ("libnccl-net.so",))


def _load(names: Iterable[str]) -> dict[str, str]:
    """Load each library; return the linker's error for each name, empty where there was none."""
    done = subprocess.run([sys.executable, "-P", "-c", _LOOK, *names], capture_output=True, check=False, text=True)
    if done.returncode:
        raise HvdElasticError(f"the libraries of EFA could not be looked at: {done.stderr.strip()[-500:]}")
    errors: dict[str, str] = json.loads(done.stdout)
    return errors


def _is_missing(name: str, error: str) -> bool:
    """Whether the file itself is not there, by the words of glibc's dlopen, which begin with the file's name."""
    return error.startswith(f"{name}: cannot open shared object file")
