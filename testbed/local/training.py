"""A real training job on this machine: a launcher, its processes, hosts that come and go, and their events."""

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

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import ENV_ENGINE, ENV_EVENTS, ENV_RUN_DIR, Engine
from testbed.local import forkserver
from testbed.local.harness import HOROVODRUN
from testbed.local.host_list import put_hosts

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("train_digits.py")
STOCK_SCRIPT = Path(__file__).with_name("train_stock.py")
HOSTS = ("localhost", "127.0.0.1", socket.gethostname())
"""Names that Horovod takes for this machine, so that it starts processes without ssh."""

GLOO_TIMEOUT_SECONDS = 300
"""How long survivors wait for a newcomer that imports torch on a busy machine; longer than any wait of a test."""

ENGINES = tuple(Engine)
"""For a test over each: `Training(..., engine=engine)`."""

Event = dict[str, Any]


class Training:
    """One job. Every process is gone after `close`."""

    def __init__(self, folder: Path, *, engine: str = Engine.HOROVOD, **environment: str) -> None:
        self.folder, self._engine = folder, engine
        self.told, self.log, self.run_dir = folder / "told", folder / "log", folder / "run"
        for path in (self.told, self.log, self.run_dir):
            path.mkdir(exist_ok=True)
        self.environment = {
            **os.environ,
            ENV_EVENTS: str(self.told),
            ENV_RUN_DIR: str(self.run_dir),
            ENV_ENGINE: engine,
            "TEST_LOG": str(self.log),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_SECONDS),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **environment,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self._generation = 0
        self._events: list[Event] = []
        self._read_bytes: dict[Path, int] = {}

    def hosts(self, *names: str) -> None:
        """Offer these hosts, one slot each."""
        new = self.folder / "hosts.new"
        new.write_text("".join(f"{name}:1\n" for name in names))
        new.rename(self.folder / "hosts")

    def offer(self, *aliases: str, **pods: str) -> None:
        """Offer hosts to our launcher, as `ALIAS` or `ALIAS:SLOTS`; by alias where the name of their pod is another."""
        self._generation += 1
        slots = {name.partition(":")[0]: int(name.partition(":")[2] or 1) for name in aliases}
        named = {**{alias: alias for alias in slots}, **pods}
        hosts = tuple(
            Host(address="127.0.0.1", slots=slots.get(alias, 1), alias=alias, pod=pod) for alias, pod in named.items()
        )
        put_hosts(self.run_dir, hosts, self._generation)

    def offer_usual(self, *names: str) -> None:
        """Offer hosts to the launcher that `launch_usual` starts."""
        (self.hosts if self._engine == Engine.HOROVOD else self.offer)(*names)

    def launch_usual(self, *flags: str, script: Path = SCRIPT) -> None:
        """Start under the engine's usual launcher: Horovod's own, or ours, which torch.distributed needs."""
        (self.horovodrun if self._engine == Engine.HOROVOD else self.launch)(*flags, script=script)

    def horovodrun(self, *flags: str, script: Path = SCRIPT) -> None:
        """Start under the stock launcher."""
        discover = self.folder / "discover"
        discover.write_text(f"#!/bin/sh\ncat {self.folder}/hosts\n")
        discover.chmod(0o755)
        stock = [*HOROVODRUN, "--network-interface", "lo"]
        self.start([*stock, "--host-discovery-script", str(discover), *flags, *forkserver.python(), str(script)])

    def launch(self, *flags: str, script: Path = SCRIPT, arguments: Sequence[str] = ()) -> None:
        """Start under our launcher, with the snapshot as its source."""
        ours = [sys.executable, "-m", "hvd_elastic.cli", "launch", "--run-dir", str(self.run_dir)]
        where = [
            "--host-discovery-script",
            str(self.run_dir / "discover-hosts"),
            "--local-hosts",
            str(self.folder / "at"),
        ]
        (self.folder / "at").mkdir(exist_ok=True)
        self.start([*ours, *where, *flags, *forkserver.python(), str(script), *arguments])

    def start(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=(self.folder / "out").open("ab"),
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            start_new_session=True,
        )

    def events(self, kind: str | None = None, **fields: object) -> list[Event]:
        """The events that the training processes wrote, in the order of time."""
        for path in self.told.glob("*.jsonl"):
            self._read_on(path)
        wanted = {**fields, **({"event": kind} if kind else {})}
        return sorted((e for e in self._events if wanted.items() <= e.items()), key=lambda e: float(e["time"]))

    def _read_on(self, path: Path) -> None:
        """Take the lines that have come since the last look; one that is being written is left for the next."""
        with path.open("rb") as file:
            file.seek(self._read_bytes.get(path, 0))
            whole = file.read().rpartition(b"\n")[0]
        host, pid, _ = path.name.rsplit("-", 2)
        self._events += [{**json.loads(line), "pid": int(pid), "host": host} for line in whole.splitlines()]
        self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + bool(whole)

    def written(self, key: str) -> list[Any]:
        """What the script itself has logged under this key. A process that was killed may leave half a line."""
        whole = [path.read_text().rpartition("\n")[0] for path in self.log.glob("*.jsonl")]
        lines = [json.loads(line) for text in whole for line in text.splitlines()]
        return [line[key] for line in lines if key in line]

    def until(self, true: Callable[[], object], what: str, seconds: float = 240.0) -> None:
        """Wait for a condition. If the job ends first, the test fails with the job's output."""
        deadline = time.monotonic() + seconds
        while not true():
            ended = self.process is None or self.process.poll() is not None
            if (ended and not true()) or time.monotonic() > deadline:
                raise AssertionError(f"not in {seconds} s: {what}\n{self.said()}")
            time.sleep(0.05)

    def trains(self, size: int, steps: int = 3, seconds: float = 240.0) -> None:
        """Wait until a world of this size has taken some steps from now on."""
        mark = time.time()

        def stepped() -> bool:
            return len({e["step"] for e in self.events("step", size=size) if e["time"] > mark}) >= steps

        self.until(stepped, f"{steps} steps at size {size}", seconds)

    def processes(self, host: str | None = None) -> list[psutil.Process]:
        """The training processes on this host, or on any, that have told of themselves and live."""
        told = {e["pid"]: e["time"] for e in self.events() if host in (None, e["host"])}
        alive = []
        for pid, last in told.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.create_time() < last + 1:  # else its number is another process's by now
                    alive.append(process)
        return alive

    def pid(self, host: str) -> int:
        """The newest process on this host."""
        return int([e for e in self.events() if e["host"] == host][-1]["pid"])

    def kill(self, host: str) -> float:
        """Send SIGKILL; returns the UNIX time."""
        os.kill(self.pid(host), signal.SIGKILL)
        return time.time()

    def ends(self, seconds: float = 240.0) -> int:
        """Wait for the launcher to end; returns its exit code."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end in {seconds} s\n{self.said()}") from None

    def said(self) -> str:
        """The end of what the launcher and the workers have printed."""
        out = self.folder / "out"
        return out.read_text(errors="replace")[-6000:] if out.exists() else ""

    def close(self) -> None:
        """End the launcher, and what it left behind."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(8)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@contextlib.contextmanager
def training(folder: Path, *, engine: str = Engine.HOROVOD, **environment: str) -> Iterator[Training]:
    job = Training(folder, engine=engine, **environment)
    try:
        yield job
    finally:
        job.close()
