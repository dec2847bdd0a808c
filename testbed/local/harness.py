"""Starts a launcher with real, tiny worker processes on this machine, makes them fail, and waits for the effects."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.horovod.patch_set import installed_patches
from hvd_elastic.system.processes import read_stat
from testbed.local.host_list import put_hosts

WORKER = Path(__file__).with_name("harness_worker.py")
ROOT = WORKER.parents[2]
Event = dict[str, Any]


class Job:
    """A launcher and its workers. Every process is gone after `close`."""

    def __init__(self, folder: Path, *, steps: int = 1_000_000, step_seconds: float = 0.01) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.log = folder / "events"
        self.trouble = folder / "trouble"
        for path in (self.run_dir, self.trouble, folder / "hosts"):
            path.mkdir(exist_ok=True)
        self.environment = {
            **os.environ,
            "WORKER_LOG": str(self.log),
            "WORKER_TROUBLE": str(self.trouble),
            "WORKER_STEPS": str(steps),
            "WORKER_STEP_SECONDS": str(step_seconds),
            "WORKER_MESSAGES": "json" if "worker-addresses" in installed_patches() else "pickle",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        self.process: subprocess.Popen[str] | None = None
        self._generation = 0
        self._events: list[Event] = []
        self._read_bytes = 0

    def hosts(self, *names: str) -> None:
        """Offer these hosts: `ALIAS` or `ALIAS:SLOTS`."""
        self._generation += 1
        pairs = [(name.partition(":")[0], int(name.partition(":")[2] or 1)) for name in names]
        hosts = tuple(Host(address="127.0.0.1", slots=slots, alias=alias, pod=alias) for alias, slots in pairs)
        put_hosts(self.run_dir, hosts, self._generation)

    def list_hosts(self, *lines: str) -> None:
        """Offer these hosts, `NAME:SLOTS`, to a stock launcher, in one step."""
        new = self.folder / ".list"
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.folder / "list")

    def listing_script(self) -> str:
        """Make a discovery script that prints what `list_hosts` offers, and return its path."""
        script = self.folder / "discover"
        script.write_text(f"#!/bin/sh\nexec cat {self.folder}/list\n")
        script.chmod(0o755)
        return str(script)

    def order(self, name: str, point: str, what: str) -> None:
        """Make the process `HOST:LOCAL_RANK` do this when it reaches that point (see harness_worker)."""
        new = self.trouble / ".new"
        new.write_text(what)
        new.rename(self.trouble / f"{name}@{point}")

    def launch(self, *flags: str, command: Sequence[str] | None = None, discovery: str | None = None) -> None:
        """Start `hvd-elastic launch` with the snapshot (or a script) as its source."""
        where = ["--host-discovery-script", discovery or str(self.run_dir / "discover-hosts")]
        local = ["--local-hosts", str(self.folder / "hosts")] if discovery is None else ["--network-interface", "lo"]
        self.start([*_LAUNCH, *flags, *where, *local, "--run-dir", str(self.run_dir), "--settle", "0.05"], command)

    def horovodrun(self, *flags: str, command: Sequence[str] | None = None, discovery: str) -> None:
        """Start the stock launcher."""
        where = ["--host-discovery-script", discovery, "--network-interface", "lo"]
        self.start([*HOROVODRUN, *flags, *where], command)

    def put_ssh_here(self) -> None:
        """Have launchers that are started from now on reach every host by a program that runs commands here."""
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "ssh").write_text(_SSH)
        (programs / "ssh").chmod(0o755)
        self.environment["PATH"] = f"{programs}{os.pathsep}{self.environment['PATH']}"

    def start(self, launcher: Sequence[str], command: Sequence[str] | None) -> None:
        self.process = subprocess.Popen(
            [*launcher, *(command or [sys.executable, "-S", str(WORKER)])],
            env=self.environment,
            stdout=(self.folder / "out").open("a"),
            stderr=(self.folder / "err").open("a"),
            cwd=ROOT,
            text=True,
            start_new_session=True,
        )

    def events(self, kind: str | None = None, name: str | None = None) -> list[Event]:
        """The events that the workers have logged."""
        self._read_log()
        return [e for e in self._events if kind in (None, e["event"]) and name in (None, e["name"])]

    def _read_log(self) -> None:
        """Read what is new, up to the last newline: a line that crosses a page boundary is not written at once."""
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as log:
            log.seek(self._read_bytes)
            whole, newline, _ = log.read().rpartition(b"\n")
            self._read_bytes += len(whole + newline)
            self._events += map(json.loads, whole.splitlines())

    def pid(self, name: str) -> int:
        """The newest process of `HOST:LOCAL_RANK`."""
        return int(self.events("started", name)[-1]["pid"])

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    def is_stopped(self, name: str) -> bool:
        """Whether the newest process of `HOST:LOCAL_RANK` has been stopped by a signal."""
        stat = read_stat(self.pid(name))
        return stat is not None and stat.state == "T"

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.run_dir / "status.json").read_text())
        return document

    def size(self) -> int:
        """The size of the world that trains now; 0 while none does."""
        try:
            status = self.status()
        except FileNotFoundError:
            return 0
        return int(status["world_size"]) if status["state"] == "running" else 0

    def wanted(self) -> int:
        """The size that the hosts would allow; 0 before the launcher has seen them."""
        return int(self.status()["wanted_size"]) if (self.run_dir / "status.json").exists() else 0

    def until(self, true: Callable[[], object], what: str = "", seconds: float = 40.0) -> None:
        """Wait for a condition. If the job ends first, the test fails with the job's output."""
        deadline = time.monotonic() + seconds
        while not true():
            ended = self.process is not None and self.process.poll() is not None
            if time.monotonic() > deadline or (ended and not true()):
                state = f"ended with {self.process.returncode}" if ended and self.process else "runs"
                raise AssertionError(f"not in {seconds} s: {what or true}; the launcher {state}\n{self.said()}")
            time.sleep(0.01)

    def trains(self, *names: str, seconds: float = 40.0) -> None:
        """Wait until exactly these processes take steps together."""
        mark = time.time()

        def together() -> bool:
            last = [e for e in self.events("step") if e["time"] > mark][-2 * len(names) :]
            return {e["name"] for e in last} == set(names) and {e["size"] for e in last} == {len(names)}

        self.until(together, f"training on {names}", seconds)

    def ends(self, seconds: float = 30.0) -> int:
        """Wait for the launcher to end; returns its exit code."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end in {seconds} s\n{self.said()}") from None

    def said(self) -> str:
        """The end of what the launcher and the workers have printed."""
        texts = [(self.folder / name).read_text() for name in ("out", "err") if (self.folder / name).exists()]
        return "\n".join(texts)[-6000:]

    def left(self) -> list[int]:
        """The process ids of workers that still run."""
        pids = {e["pid"] for e in self.events("started")}
        return [pid for pid in pids if _is_alive(pid)]

    def check_no_step_was_lost(self) -> None:
        """The steps of every process go up by one, from the step that the others had reached when it joined."""
        last: dict[int, int] = {}
        for event in self.events():
            if event["event"] == "joined":
                last[event["pid"]] = event["step"]
            elif event["event"] == "step":
                assert event["step"] == last[event["pid"]] + 1, event
                last[event["pid"]] = event["step"]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(8)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def job(folder: Path, *, steps: int = 1_000_000, step_seconds: float = 0.01) -> Iterator[Job]:
    made = Job(folder, steps=steps, step_seconds=step_seconds)
    try:
        yield made
    finally:
        made.close()


def own_addresses() -> tuple[str, str, str]:
    """Three names of this machine, which stock horovodrun takes for three hosts and reaches without ssh."""
    groups = psutil.net_if_addrs().values()
    others = [a.address for group in groups for a in group if a.family == socket.AF_INET and a.address != "127.0.0.1"]
    if not others:
        pytest.skip("this machine has no address except 127.0.0.1")
    return "localhost", "127.0.0.1", others[0]


def _is_alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.state != "Z"


_LAUNCH = (sys.executable, "-m", "hvd_elastic.cli", "launch")
HOROVODRUN = (
    sys.executable,
    "-c",
    # It imports torch to see whether it was built with Gloo.
    "import horovod.runner.launch as stock; stock.gloo_built = lambda verbose=False: True; stock.run_commandline()",
)

_SSH = """\
#!/bin/sh
# `ssh [-o OPTION]... HOST COMMAND` runs COMMAND here.
while [ "${1#-}" != "$1" ]; do shift 2; done
shift
exec /bin/sh -c "$*"
"""
