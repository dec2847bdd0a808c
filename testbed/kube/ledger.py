"""The record of everything that the cluster makes outside its own folder, and how each thing is taken down.

A thing is written down before it is made. So whatever stopped the cluster half-way, `down` finds all of it, takes down
what is there and nothing else: no process is looked for by its name.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The record, one JSON object a line, in the cluster's state folder."""

    state: Path

    @property
    def file(self) -> Path:
        """Appended to by every writer, each line in one write."""
        return self.state / "ledger"

    def note(self, kind: str, *what: str) -> None:
        """Write down what is about to be made."""
        self.state.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as out:
            out.write(json.dumps([kind, *what]) + "\n")

    def entries(self) -> list[tuple[str, list[str]]]:
        """Read back, oldest first; a torn last line (a crash while writing) names nothing that was made."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in self.file.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    kind, *what = json.loads(line)
                    found.append((kind, what))
        return found

    def take_down(self) -> None:
        """Undo every entry, newest first (processes before all else), then remove the state folder."""
        if not self.state.exists():
            return
        entries = self.entries()
        for what in [what for kind, what in entries if kind == "cgroup"]:
            end_processes(*what)
        _unmount_below(self.state)
        for kind, what in reversed(entries):
            _UNDO[kind](*what)
        shutil.rmtree(self.state)


def end_processes(name: str) -> None:
    """SIGKILL all in the cgroup and below, until none is left: what they start meanwhile is in it too."""
    deadline = time.monotonic() + 20
    while pids := set(_processes(name)):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"cgroup {name}: processes {sorted(pids)} survive SIGKILL")
        time.sleep(0.05)


def _processes(name: str) -> Iterator[int]:
    for root in hierarchies():
        for folder, _, _ in os.walk(root / name):  # which takes no offence at a folder that goes meanwhile
            with contextlib.suppress(OSError):
                yield from map(int, Path(folder, "cgroup.procs").read_text().split())


def hierarchies() -> list[Path]:
    """Return the roots of the cgroup trees: one of version 2, or one a controller of version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted({root.resolve() for root in CGROUPS.iterdir() if (root / "cgroup.procs").exists()})


def _remove_cgroup(name: str) -> None:
    for root in hierarchies():
        for folder in sorted((root / name).rglob("*/"), key=lambda path: -len(path.parts)):
            if folder.is_dir():
                _rmdir(folder)
        _rmdir(root / name)


def _rmdir(folder: Path) -> None:
    deadline = time.monotonic() + 5
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:  # the kernel lets a group go a moment after its last process
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _unmount_below(folder: Path) -> None:
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    below = [point.encode().decode("unicode_escape") for point in mounted]
    for point in sorted((p for p in below if p.startswith(f"{folder}/")), key=len, reverse=True):
        _quietly("umount", "--lazy", point)


def _remove_links_into(folder: str, target: str) -> None:
    """Remove symbolic links of `folder` that point below `target` (the kubelet leaves some in /var/log/containers)."""
    with contextlib.suppress(FileNotFoundError):
        for link in Path(folder).iterdir():
            if link.is_symlink() and str(link.readlink()).startswith(f"{target}/"):
                link.unlink()


def _remove_results(folder: str, sandboxes: str) -> None:
    """Remove what CNI noted of the sandboxes of a node; its files are named `NETWORK-SANDBOX-INTERFACE`."""
    with contextlib.suppress(FileNotFoundError):
        for sandbox in Path(sandboxes).iterdir():
            for file in Path(folder).glob(f"*-{sandbox.name}-*"):
                file.unlink(missing_ok=True)


def _quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


_UNDO: Final[Mapping[str, Callable[..., None]]] = {
    "cgroup": _remove_cgroup,
    "netns": lambda name: _quietly("ip", "netns", "delete", name),
    "interface": lambda name: _quietly("ip", "link", "delete", name),
    "rule": lambda table, chain, *rule: _quietly("iptables", "-w", "-t", table, "-D", chain, *rule),
    "rule6": lambda table, chain, *rule: _quietly("ip6tables", "-w", "-t", table, "-D", chain, *rule),
    "route": lambda *route: _quietly("ip", "route", "delete", *route),
    "links": _remove_links_into,
    "results": _remove_results,
}
