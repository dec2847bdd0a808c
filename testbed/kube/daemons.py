"""Programs that outlive the command which started them, each in a cgroup, and can be started again as they were."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from testbed.kube import waiting
from testbed.kube.errors import ClusterError
from testbed.kube.ledger import hierarchies


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """How a program is started, written to the state folder so that any later process can stop and start it again."""

    name: str
    argv: Sequence[str]
    state: str
    cgroup: str
    """Relative to the roots of the cgroup hierarchies; made here."""
    netns: str | None = None
    """Name of the network namespace; that of this machine where it is None."""
    env: Mapping[str, str] = field(default_factory=dict)
    comes_back: bool = False
    """Started again whenever it ends by itself, as a Deployment or a static pod would be."""

    @classmethod
    def load(cls, state: Path, name: str) -> "Daemon":
        """Read back what `start` wrote."""
        return cls(**json.loads((state / "daemons" / f"{name}.json").read_text()))

    @property
    def log(self) -> Path:
        """Standard output and error of all its lives."""
        return Path(self.state) / "log" / f"{self.name}.log"

    def start(self) -> None:
        """Start it. Returns at once: whether it answers is the caller's condition to wait on."""
        self._write()
        tasks = hierarchies_of_tasks(self.cgroup)
        enter = f'for f in {" ".join(map(str, tasks))}; do echo $$ > $f; done; exec "$@"'
        space = ["nsenter", f"--net=/run/netns/{self.netns}"] if self.netns else []
        again = ["sh", "-c", 'while :; do "$@"; sleep 1; done', "sh"] if self.comes_back else []
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", enter, "sh", *space, *again, *self.argv],
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._pidfile.write_text(f"{process.pid} {_started(process.pid)}")

    def alive(self) -> bool:
        """Tell whether the very process that was started is there: its number and its start time agree."""
        with contextlib.suppress(OSError, ValueError):
            pid, started = self._pidfile.read_text().split()
            return _started(int(pid)) == started and not _has_ended(int(pid))
        return False

    def processes(self) -> list[int]:
        """Numbers of all its processes now."""
        return [int(line) for line in hierarchies_of_tasks(self.cgroup)[0].read_text().split()]

    def stop(self, *, with_signal: signal.Signals = signal.SIGTERM, within_seconds: float = 20) -> None:
        """Stop it, and wait until it is gone."""
        if self.alive():
            pid = int(self._pidfile.read_text().split()[0])
            if self.comes_back:
                os.killpg(pid, with_signal)
            else:
                os.kill(pid, with_signal)
            waiting.until(f"{self.name} ends", lambda: not self.alive(), within_seconds=within_seconds)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    @contextlib.contextmanager
    def with_arguments(self, *arguments: str, program: Path | None = None) -> Iterator["Daemon"]:
        """Started anew with more arguments, the last of which count, or as another program; at the end as it was."""
        first, *others = self.argv
        changed = replace(self, argv=(str(program or first), *others, *arguments))
        self.stop()
        try:
            changed.start()
            yield changed
        finally:
            changed.stop()
            self.start()

    def pause(self) -> None:
        """Let it do nothing until it is stopped or resumed, as a program that hangs."""
        os.killpg(int(self._pidfile.read_text().split()[0]), signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        os.killpg(int(self._pidfile.read_text().split()[0]), signal.SIGCONT)

    def end(self) -> None:
        """Stop it for good: the cluster is whole without it."""
        self.stop()
        for file in (self._description, self._pidfile):
            file.unlink(missing_ok=True)

    def require_alive(self) -> None:
        """Raise `ClusterError` with the end of its log if it has ended."""
        if not self.alive():
            raise ClusterError(f"{self.name} has ended:\n{self.tail()}")

    def tail(self, *, lines: int = 15) -> str:
        """Return the end of its log."""
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    @property
    def _description(self) -> Path:
        return Path(self.state) / "daemons" / f"{self.name}.json"

    @property
    def _pidfile(self) -> Path:
        return self._description.with_suffix(".pid")

    def _write(self) -> None:
        for file in (self._description, self.log):
            file.parent.mkdir(parents=True, exist_ok=True)
        self._description.write_text(json.dumps(asdict(self)))


def hierarchies_of_tasks(cgroup: str) -> list[Path]:
    """Make the cgroup in each hierarchy that can hold processes of ours; return the files that take a process in."""
    files = []
    for root in hierarchies():
        make_cgroup(root, cgroup)
        files.append(root / cgroup / "cgroup.procs")
    return files


def make_cgroup(root: Path, cgroup: str) -> None:
    """Make a cgroup. One of version 1's cpuset admits nobody before it has CPUs and memory nodes: its parent's."""
    folder = root
    for part in Path(cgroup).parts:
        parent, folder = folder, folder / part
        _pass_controllers_on(parent)
        folder.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if root.name == "cpuset" and not (folder / name).read_text().strip():
                (folder / name).write_text((parent / name).read_text())


def weigh(cgroup: str) -> None:
    """Let the cluster count as many processes, not as one, where others want the CPU too (1024 and 100 are one's)."""
    for root in hierarchies():
        make_cgroup(root, cgroup)
        for name, weight in (("cpu.shares", "20480"), ("cpu.weight", "2000")):
            if (root / cgroup / name).exists():
                (root / cgroup / name).write_text(weight)


def _pass_controllers_on(parent: Path) -> None:
    """Let the groups below use each controller that this one has (version 2; of version 1 there is no such thing)."""
    with contextlib.suppress(FileNotFoundError):
        for controller in (parent / "cgroup.controllers").read_text().split():
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")


def _started(pid: int) -> str:
    """Start time in clock ticks since boot: with the number it names one process for ever (proc(5), field 22)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _has_ended(pid: int) -> bool:
    """A killed one is a zombie while other threads of it still hold its files and ports."""
    status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return status == "Z" and len([*Path(f"/proc/{pid}/task").iterdir()]) == 1
