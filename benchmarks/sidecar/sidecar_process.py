"""The sidecar as a process: its start, what it has written, what it has spent, and workers that answer it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from hvd_elastic.mpijob.contract import SNAPSHOT_FILE

CHILD = """
import json, sys
from pathlib import Path
from hvd_elastic import logs
from hvd_elastic.discovery.kube import credentials
from hvd_elastic.discovery.sidecar.sidecar import Sidecar
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics, health_server
folder = Path(sys.argv[1])
logs.configure("json")
options = SidecarOptions(run_dir=folder, **json.loads(sys.argv[2]))
metrics = Metrics()
sidecar = Sidecar(options, credentials.in_cluster(folder=folder), metrics)
if port := int(sys.argv[3]):
    health_server(metrics, alive=lambda: True, ready=lambda: True, port=port, address="127.0.0.1").start()
sidecar.run()
"""


@contextlib.contextmanager
def sidecar_process(
    folder: Path, host: str, port: int, options: Mapping[str, object], *, metrics_port: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """A sidecar in a process of its own, with fields of SidecarOptions. CA and token lie in `folder`, where it runs.

    `metrics_port`: of this machine; 0: it serves no metrics.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), json.dumps(options), str(metrics_port)],
        env={**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def names(folder: Path) -> set[str]:
    try:
        return {line.rpartition(" ")[2] for line in (folder / SNAPSHOT_FILE).read_text().splitlines()[:-1]}
    except FileNotFoundError:
        return set()


def answer(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.send(b"hvd-elastic 1 0 training 1000 0\n")
            connection.close()


def cpu_seconds(pid: int) -> float:
    """User and system time so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def resource_peak(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
