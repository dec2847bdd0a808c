"""Programs from Debian's packages, unpacked into the cache and not installed: nothing on the machine changes."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


def debian_program(package: str, name: str) -> Path:
    """The program `name`: the machine's own, or that of `package`. Skips the test, with the reason, without one."""
    found = shutil.which(name)
    if found:
        return Path(found)
    kept = _cache() / package
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes ask at once
        if not kept.is_dir():
            _unpack(package, kept)
    program = kept / "usr" / "bin" / name
    if not program.exists():
        pytest.skip(f"Debian's package {package} has no program {name}")
    return program


def _unpack(package: str, kept: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip(f"{package} is not installed, and this is no Debian: its package cannot be fetched")
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        failure = _run(scratch, "apt-get", "-q", "download", package)
        if failure and os.geteuid() == 0:  # a fresh machine has no lists
            failure = _run(scratch, "apt-get", "-q", "update") or _run(scratch, "apt-get", "-q", "download", package)
        if failure:
            pytest.skip(f"Debian's package {package} cannot be fetched: {failure}")
        (archive,) = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg", "-x", archive, Path(scratch) / "files"], check=True, timeout=120)
        (Path(scratch) / "files").rename(kept)


def _run(folder: str, *command: str) -> str:
    """What went wrong; empty if nothing did."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    return f"{done.stdout}{done.stderr}".strip()[-500:] if done.returncode else ""


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hvd-elastic" / "debian"
