"""Programs that the tests need and Python does not bring: installed from Debian's packages, or unpacked, or asked for.

    python -m testbed.debian_programs    installs what `make test` needs, as root on a Debian or Ubuntu

A test that misses one is skipped. Its reason names the program and the package, and `tests.runner.suite` gathers them.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program, and the Debian package that has it."""

    program: str
    package: str

    def path(self) -> str | None:
        """Where it is: on PATH, in root's folders, which others lack in theirs, or at its absolute path."""
        return shutil.which(self.program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")

    def found(self) -> bool:
        """Tell whether it is there."""
        return self.path() is not None


TEST_TOOLS: Final = (
    Tool(program="ssh", package="openssh-client"),
    Tool(program="sshd", package="openssh-server"),
    Tool(program="ip", package="iproute2"),
    Tool(program="go", package="golang-go"),
    Tool(program="node", package="nodejs"),
    Tool(program="npm", package="npm"),
    Tool(program="chromium", package="chromium"),
)
"""What `make test` installs. Prometheus is unpacked: its package would start a server."""

MISSING: Final = re.compile(r"needs (?P<program>\S+) \(Debian's package (?P<package>[\w.+-]+)\)")
"""The form of a reason to skip a test that a package would cure."""

_GO_THAT_FETCHES_NEWER: Final = (1, 21)
"""The first Go that takes the version that a module asks for through the module proxy."""


def install(tools: Sequence[Tool]) -> list[str]:
    """Install those that are absent; return what is missing afterwards."""
    absent = [tool for tool in tools if not tool.found()]
    if not absent:
        return []
    if shutil.which("apt-get") is None:
        return [f"{tool.program} (Debian package {tool.package})" for tool in absent]
    packages = sorted({tool.package for tool in absent})
    # Where there is an init, Debian starts sshd, etcd and containerd when it installs them; ours are our own.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for step in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *step], env=quiet, text=True, capture_output=True, check=False)
    return [f"packages {' '.join(packages)}: apt-get says {done.stderr.strip()}"] if done.returncode else []


def install_what_tests_need() -> None:
    """See to the tools of `make test` as far as this machine and this user allow; say what was done."""
    absent = [tool for tool in TEST_TOOLS if not tool.found()]
    if absent and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing", *(tool.package for tool in absent), file=sys.stderr, flush=True)
        for problem in install(absent):
            print(problem, file=sys.stderr, flush=True)
    if os.access("/run", os.W_OK):  # where no service manager has made it, sshd does not start
        Path("/run/sshd").mkdir(exist_ok=True)


def needed(program: str) -> str:
    """The path of one of TEST_TOOLS. Skips the test where it is not installed."""
    (tool,) = (tool for tool in TEST_TOOLS if tool.program == program)
    return tool.path() or skip_for(tool)


def needed_go() -> str:
    """The path of a Go that builds modules which ask for a newer one. Skips the test without it."""
    path = needed("go")
    said = subprocess.run([path, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(number) for number in re.findall(r"\d+", said)[:2])
    if version < _GO_THAT_FETCHES_NEWER:
        pytest.skip(f"{said.strip()} of this machine is too old: Go 1.21 or later is needed (https://go.dev/dl)")
    return path


def skip_for(tool: Tool) -> NoReturn:
    """Skip the test with a reason that `tests.runner.suite` reads."""
    pytest.skip(f"needs {tool.program} (Debian's package {tool.package})")


def debian_program(name: str, *packages: str) -> Path:
    """The program `name`: the machine's own, or that of one of `packages`, unpacked into the cache and not installed.

    Packages are alternatives: a program moves from one to another between releases. Skips the test, with the reason,
    without one.
    """
    found = shutil.which(name)
    if found:
        return Path(found)
    failures = []
    for package in packages:
        kept = _cache() / package
        kept.parent.mkdir(parents=True, exist_ok=True)
        with (kept.parent / f"{package}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes ask at once
            failure = "" if kept.is_dir() else _unpack(Tool(program=name, package=package), kept)
        program = kept / "usr" / "bin" / name
        if program.exists():
            return program
        failures.append(failure or f"Debian's package {package} has no program {name}")
    pytest.skip("; ".join(failures))


def _unpack(tool: Tool, kept: Path) -> str:
    """Return why it cannot be; empty if it is done."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        skip_for(tool)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        download = ("apt-get", "-q", "download", tool.package)
        failure = _run(scratch, *download)
        if failure and os.geteuid() == 0:  # a fresh machine has no lists
            failure = _run(scratch, "apt-get", "-q", "update") or _run(scratch, *download)
        if failure:
            return f"needs {tool.program} (Debian's package {tool.package}), which cannot be fetched: {failure}"
        (archive,) = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg", "-x", archive, Path(scratch) / "files"], check=True, timeout=120)
        (Path(scratch) / "files").rename(kept)
    return ""


def _run(folder: str, *command: str) -> str:
    """What went wrong; empty if nothing did."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    return f"{done.stdout}{done.stderr}".strip()[-500:] if done.returncode else ""


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hvd-elastic" / "debian"


if __name__ == "__main__":
    install_what_tests_need()
