"""What a standby costs and saves: its adoption, its memory, and a training process's start and end.

    python -m benchmarks.standby [--runs 20] [--starts 3]

Each figure is measured in turns with what it is compared to, in the same run:

* adopt: `RUN_DIR/adopt`, handed over and answered at once, against a Python that does nothing;
* start: from the launcher's command to the script's first line after `hvd.init()`, against a cold start of the script;
* end: from the script's last line to its exit code, against Python's own teardown after torch and Horovod;
* memory: private (freed when it ends) and proportional share, of standbys, the entry point, and a Python with the same
  imports.
"""

import argparse
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.report.record import Column, Record, Table, Value, spread, spread_columns
from hvd_elastic.mpijob.contract import ADOPT_FILE, ADOPT_SOCKET, ENV_READY_ADDRESS, ENV_RUN_DIR, ENV_SLOTS, READY_PORT
from hvd_elastic.system.child_processes import children
from hvd_elastic.worker.adoption import adopt_socket
from hvd_elastic.worker.event_loop import EventLoop

ADDRESS: Final = "127.9.9.9"
SCRIPT: Final = """
import sys, time
import torch
import horovod.torch as hvd
hvd.init()
print(time.monotonic(), flush=True)
torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
print(time.monotonic(), flush=True)
sys.exit(3)
"""

BARE: Final = "import torch, horovod.torch, time; print(flush=True); time.sleep(999)"
"""The imports of a standby, without this project's code."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--starts", type=int, default=3)
    options = parser.parse_args()
    record = Record(name="standby", question="What does a standby cost, and what does it save?")
    with tempfile.TemporaryDirectory() as folder:
        record.add(adoption(Path(folder), options.runs))
        record.add(starts(Path(folder), options.starts))
        record.add(memory(Path(folder)))
    record.write()


def adoption(folder: Path, runs: int) -> Table:
    """The client against a Python that does nothing, in turns."""
    run_dir = folder / "answering"
    run_dir.mkdir()
    with answering(run_dir):
        commands = {
            "adopt": [str(run_dir / ADOPT_FILE), "python", "train.py", "--epochs", "20"],
            "python -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
            "python -c pass": [sys.executable, "-c", "pass"],
        }
        spent = {name: [timed(command) for _ in range(runs)] for name, command in commands.items()}
    rows: list[list[Value]] = []
    for name, pairs in spent.items():
        wall, cpu = ([pair[index] * 1e3 for pair in pairs] for index in (0, 1))
        rows.append([name, *spread(wall), *spread(cpu)])
    columns = (Column(title="command"), *spread_columns("ms", format=".1f"), *spread_columns("CPU ms", format=".1f"))
    return Table(name="standby-adoption", title="A command that is answered at once", columns=columns, rows=rows)


@contextmanager
def answering(run_dir: Path) -> Iterator[None]:
    """An entry point that answers every command with 0 at once."""
    loop = EventLoop()
    server = adopt_socket.AdoptSocket(loop, run_dir=run_dir, on_client=answer)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield
    finally:
        loop.stop()
        with socket.socket(socket.AF_UNIX) as last:  # wakes the loop
            last.connect(str(run_dir / ADOPT_SOCKET))
        thread.join()
        server.close()


def answer(client: adopt_socket.AdoptClient) -> None:
    client.finish(0)


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of `command`."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starts(folder: Path, times: int) -> Table:
    """Command to first line, and last line to exit code, adopted and cold."""
    (folder / "train.py").write_text(SCRIPT)
    found: dict[str, list[tuple[float, float, float]]] = {"adopted": [], "cold": []}
    with pod(folder, slots=1) as run_dir:
        for _ in range(times):
            wait_ready()
            found["adopted"].append(lines([str(run_dir / ADOPT_FILE), "python", "train.py"], folder))
            found["cold"].append(lines([sys.executable, "train.py"], folder))
    titles = ("command to hvd.init()", "first optimizer", "last line to exit code")
    return Table(
        name="standby-start",
        title=f"Seconds of a training process, medians of {times}",
        columns=(Column(title="start"), *(Column(title=title, format=".3f") for title in titles)),
        rows=[[name, *map(statistics.median, zip(*turns, strict=True))] for name, turns in found.items()],
    )


def lines(command: list[str], folder: Path) -> tuple[float, float, float]:
    begin = time.monotonic()
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    end = time.monotonic()
    first, last = (float(line) for line in output.split())
    return first - begin, last - first, end - last


def memory(folder: Path) -> Table:
    """Private and proportional memory of the entry point and two standbys."""
    (folder / "train.py").write_text(SCRIPT)
    with pod(folder, slots=2):
        wait_ready()
        entry_point = entry_points_pid()
        bare = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE)
        assert bare.stdout is not None
        bare.stdout.readline()
        kinds = {"entry point": [entry_point], "standby": children(entry_point), "bare imports": [bare.pid]}
        rows: list[list[Value]] = [
            [name, mib(pid, "Private_"), mib(pid, "Pss:")] for name, pids in kinds.items() for pid in pids
        ]
        bare.kill()
        bare.communicate()
    columns = (Column(title="process"), *(Column(title=title, format=".1f") for title in ("private", "proportional")))
    return Table(name="standby-memory", title="Memory in MiB, in a pod of two slots", columns=columns, rows=rows)


def entry_points_pid() -> int:
    """The pod's, which `pod` has started."""
    (found,) = [pid for pid in children() if "worker" in Path(f"/proc/{pid}/cmdline").read_text()]
    return found


def mib(pid: int, field: str) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pattern = rf"^{field}\w*:?\s+(\d+) kB"
    return sum(int(number) for number in re.findall(pattern, rollup, flags=re.MULTILINE)) / 1024


@contextmanager
def pod(folder: Path, *, slots: int, settings: Mapping[str, str] | None = None) -> Iterator[Path]:
    run_dir = folder / f"pod-{slots}"
    program = shutil.which("hvd-elastic", path=str(Path(sys.executable).parent)) or "hvd-elastic"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        ENV_RUN_DIR: str(run_dir),
        ENV_READY_ADDRESS: ADDRESS,
        ENV_SLOTS: str(slots),
        **(settings or {}),
    }
    command = [program, "worker", "--no-sshd", "--", "python", "train.py"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield run_dir
    finally:
        process.terminate()
        process.wait()


def wait_ready() -> None:
    while True:
        try:
            with socket.create_connection((ADDRESS, READY_PORT), timeout=5) as connection:
                if b"waiting" in connection.recv(100):
                    return
        except OSError:
            pass
        time.sleep(0.05)


if __name__ == "__main__":
    main()
