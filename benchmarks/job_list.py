"""Time and memory of `hvd-elastic list -A` over many jobs, against an API server in another process.

    python -m benchmarks.job_list [--jobs 1000] [--runs 5]

Each run is the whole command in a process of its own. The aims are 2 s and 150 MiB for 1,000 jobs. The server is the
tests' one, in Python, which answers more slowly than a real one: its time is in the seconds, and not in the CPU time.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, spread, spread_columns
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from testbed.kube_api import KubeApi

PATH = "/apis/kubeflow.org/v2beta1/mpijobs"
DESCRIPTION = "name: job-{number}\nnamespace: team\nimage: registry.example.com/a:1\ncommand: [python, train.py]\n"
AIM_JOBS, AIM_SECONDS, AIM_MIB = 1000, 2.0, 150


def serve(count: int, opened: Connection) -> None:
    """Serve the jobs as they are generated, each with a status, until the process is ended."""
    api = KubeApi()
    status = LiveStatus(
        unix=time.time() + 600, activity=Activity.TRAINING, since=time.time(), workers=3, step=1200, gpu_seconds=7200.0
    )
    api.objects["/version"] = {}
    api.objects[PATH] = {f"job-{number}": mpijob(number, status) for number in range(count)}
    opened.send(api.port)
    time.sleep(3600)


def mpijob(number: int, status: LiveStatus) -> dict[str, object]:
    job = next(one for one in render(read_job(DESCRIPTION.format(number=number))) if one["kind"] == "MPIJob")
    job["metadata"].update(uid=f"uid-{number}", resourceVersion="1", creationTimestamp="2026-01-01T00:00:00Z")
    job["metadata"]["annotations"][ANNOTATION_STATUS] = status.to_json()
    owned = {"manager": "hvd-elastic", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields(job)}
    return {**job, "metadata": {**job["metadata"], "managedFields": [owned]}}


def fields(value: Any) -> dict[str, Any]:
    """Who owns which field, in the form in which the API server notes it in each object."""
    match value:
        case dict():
            return {f"f:{key}": fields(inner) for key, inner in value.items()}
        case [{"name": _}, *_]:
            return {f'k:{{"name":"{item["name"]}"}}': fields(item) for item in value}
        case _:
            return {}


def kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    config = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(config))
    return path


def timed(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    record = Record(name="job_list", question="What does it take to list all jobs of a cluster?")
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(options.jobs, there), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig(Path(folder), here.recv()))}
        command = [sys.executable, "-m", "hvd_elastic.cli", "list", "-A"]
        seconds = [timed(command, environment) for _ in range(options.runs)]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    server.terminate()
    cpu = (children.ru_utime + children.ru_stime) / options.runs
    record.add(
        Table(
            name="job-list",
            title=f"hvd-elastic list -A of {options.jobs} jobs, {options.runs} runs",
            columns=(
                Column(title=""),
                *spread_columns("s", format=".2f"),
                Column(title="CPU s of a run", format=".2f"),
                Column(title="MiB, most", format=".0f"),
            ),
            rows=[
                ["measured", *spread(seconds), cpu, children.ru_maxrss / 1024],
                ["aim for 1,000 jobs", None, AIM_SECONDS, None, None, AIM_MIB],
            ],
        )
    )
    if options.jobs == AIM_JOBS:
        record.promise(
            Aim(what="seconds to list 1,000 jobs", bound=AIM_SECONDS, measured=statistics.median(seconds)),
            Aim(what="MiB to list 1,000 jobs", bound=AIM_MIB, measured=children.ru_maxrss / 1024, format=".0f"),
        )
    record.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
