"""A Debian release of its own in a folder, made by debootstrap, and commands in it."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

_CERTIFICATES: Final = Path("/usr/local/share/ca-certificates")
_CARRIED: Final = re.compile(
    r".*_proxy|(pip|uv|openblas)_.*|goproxy|gosumdb|ssl_cert_(file|dir)|.*_ca_bundle", re.IGNORECASE
)
"""Names of variables that say how this machine reaches a package index, or what its processor cannot do."""


def mirror() -> str:
    """Return the address of Debian's packages."""
    return os.environ.get("HVD_ELASTIC_DEBIAN_MIRROR", "http://deb.debian.org/debian")


def make(folder: Path, suite: str, *, packages: Sequence[str] = ("ca-certificates",)) -> None:
    """Make the release `suite` in `folder`, which does not exist, with the packages that debootstrap calls minimal.

    It reaches what this machine reaches: its certificates and pip.conf are copied. Needs root and debootstrap.

    Raises:
        subprocess.CalledProcessError: a command failed; its output is in the error.

    """
    partial = folder.with_name(f".{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    _call("debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, str(partial), mirror())
    for certificate in _CERTIFICATES.glob("*.crt"):
        shutil.copy(certificate, partial / _CERTIFICATES.relative_to("/"))
    _call("chroot", str(partial), "update-ca-certificates")
    if (pip := Path("/etc/pip.conf")).exists():
        shutil.copy(pip, partial / "etc/pip.conf")
    (partial / "etc/apt/sources.list").write_text(_sources(suite))
    (partial / "etc/apt/apt.conf.d/90mirror").write_text(_MIRROR_MAY_LAG)
    for package in (partial / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    partial.rename(folder)


_MIRROR_MAY_LAG: Final = 'Acquire::Check-Valid-Until "false";\n'
"""A mirror of a few weeks ago serves as well."""


def _sources(suite: str) -> str:
    lines = [f"deb {mirror()} {suite} main"]
    if suite != "testing":  # whose updates are in the suite itself
        lines += [f"deb {mirror()} {suite}-updates main", f"deb {mirror()}-security {suite}-security main"]
    return "".join(f"{line}\n" for line in lines)


def _call(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800)


_ENTER: Final = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
cp /etc/resolv.conf /etc/hosts "$1/etc/"
cd "$1"
shift
pivot_root . .
umount -l .
exec "$@"
"""
"""The folder becomes the root of a mount namespace. In a mere chroot no command makes namespaces or mounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianRoot:
    """A release in a folder, entered as root. It shares this machine's network and devices, and none of its files."""

    folder: Path

    def run(self, shell: str, *, output: IO[str] | int | None = None, timeout_seconds: float) -> int:
        """Run a line of shell in the home of root, and return its exit code. What it left running is ended.

        Raises:
            subprocess.TimeoutExpired: it took longer, and was ended.

        """
        done = subprocess.run(
            self._command(shell),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=timeout_seconds,
        )
        return done.returncode

    def read(self, shell: str) -> str:
        """Return what a line of shell prints. Raises subprocess.TimeoutExpired after a minute."""
        done = subprocess.run(
            self._command(shell), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout.strip()

    def _command(self, shell: str) -> list[str]:
        # Whoever kills the tests ends the release, too.
        alone = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
        enter = ["sh", "-c", _ENTER, "enter", str(self.folder)]
        variables = [f"{name}={value}" for name, value in self.environment().items()]
        return [*alone, *enter, "/usr/bin/env", "-i", *variables, "/bin/sh", "-c", f"cd /root && {shell}"]

    def environment(self) -> dict[str, str]:
        """Return the variables of a command in it: a newcomer's, and how this machine reaches a package index."""
        carried = {name: value for name, value in os.environ.items() if _CARRIED.fullmatch(name) and self._has(value)}
        return carried | {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

    def _has(self, value: str) -> bool:
        return not value.startswith("/") or (self.folder / value.lstrip("/")).exists()
