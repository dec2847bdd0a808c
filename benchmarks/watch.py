"""What `hvd-elastic watch` costs the machine of whoever watches: its CPU for a job of many workers, at a terminal.

    python -m benchmarks.watch [--workers 64] [--seconds 30]

The program runs at a pseudo-terminal of 80 by 24; a small API server in this process gives it a job that trains, whose
size changes each second. CPU is the user and system time of the program, after its start.
"""

import argparse
import contextlib
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report.record import Column, Record, Table
from hvd_elastic.discovery.ledger.entries import WorldChanged, to_line
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import (
    ANNOTATION_SPEC,
    ANNOTATION_STATUS,
    LABEL_JOB_NAME,
    LABEL_JOB_ROLE,
    LEDGER_KEY,
    LEDGER_SUFFIX,
)
from testbed.kube_api import JOBS, PODS, KubeApi
from testbed.terminal import Terminal

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ALL_PODS = "/api/v1/pods"
JOB = "train"
PADDING = {f"ENVIRONMENT_{index}": "some value" for index in range(80)}
"""A worker's pod has some 8 KiB of JSON."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0)
    wanted = parser.parse_args()
    record = Record(name="watch", question="What does hvd-elastic watch cost the machine of whoever watches?")
    api = KubeApi()
    for path in (CONFIG_MAPS, ALL_PODS):
        api.objects[path] = {}
    for index in range(wanted.workers):
        for path in (PODS, ALL_PODS):
            api.put(path, worker(index))
    stop = threading.Event()
    threading.Thread(target=change, args=(api, wanted.workers, stop), daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KUBECONFIG"] = str(api.kubeconfig(Path(folder)))
        share = measure(wanted.seconds)
    stop.set()
    record.add(
        Table(
            name="watch",
            title=f"hvd-elastic watch, over {wanted.seconds:.0f} s",
            columns=(Column(title="workers", format="d"), Column(title="of a core", format=".2%")),
            rows=[[wanted.workers, share]],
        )
    )
    record.write()


def measure(seconds: float) -> float:
    """CPU seconds per second of the program, once it shows the job."""
    screen = Terminal("watch", JOB)
    try:
        screen.sees("q quit")
        process = psutil.Process(screen.process.pid)
        before, until = process.cpu_times(), time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(AssertionError):
                screen.sees("never said", within_seconds=1.0)
        after = process.cpu_times()
        return (after.user + after.system - before.user - before.system) / seconds
    finally:
        screen.close()


def change(api: KubeApi, workers: int, stop: threading.Event) -> None:
    """A day's ledger, and another world each second."""
    lines, number = [world(workers - index % 5, time.time() - 86400 + index * 60) for index in range(1000)], 0
    while not stop.is_set():
        number += 1
        lines.append(world(workers - number % 5, time.time()))
        data = {LEDGER_KEY: "".join(lines)}
        api.put(CONFIG_MAPS, {"metadata": {"name": JOB + LEDGER_SUFFIX}, "data": data})
        api.put(JOBS, mpijob(workers, number))
        stop.wait(1.0)


def world(size: int, unix: float) -> str:
    return to_line(WorldChanged(unix=unix, workers=tuple(f"{JOB}-worker-{index}" for index in range(size))))


def mpijob(workers: int, step: int) -> dict[str, Any]:
    now = time.time()
    status = LiveStatus(unix=now, activity=Activity.TRAINING, since=now, workers=workers, step=step, stepped=now)
    annotations = {
        ANNOTATION_SPEC: json.dumps({"workers": {"min": 1, "max": workers}}),
        ANNOTATION_STATUS: status.to_json(),
    }
    return {
        "metadata": {"name": JOB, "namespace": "default", "uid": "uid", "annotations": annotations},
        "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}},
    }


def worker(index: int) -> dict[str, Any]:
    name = f"{JOB}-worker-{index}"
    container = {
        "env": [{"name": key, "value": value} for key, value in PADDING.items()],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "metadata": {"name": name, "uid": name, "labels": {LABEL_JOB_NAME: JOB, LABEL_JOB_ROLE: "worker"}},
        "spec": {"nodeName": f"node-{index // 8}", "priority": -100, "containers": [container]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


if __name__ == "__main__":
    main()
