"""Runs one job on this machine to its end, in a process of its own: what ends a job ends all that its process started.

    python launcher_reports_job.py FOLDER LAUNCHER WORKERS COMMAND...

Prints what the launcher has left in its RUN_DIR for the sidecar, as a line of JSON.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from hvd_elastic.discovery.sidecar.launcher.launcher_pods import last_word
from hvd_elastic.discovery.sidecar.record.launcher_reports import has_registered, last_figures
from hvd_elastic.local.local_job import local_cluster, local_job, warm_up
from hvd_elastic.mpijob.job_reader import read_job


def main(folder: str, launcher: str, workers: str, *command: str) -> None:
    given = {"name": "brief", "workers": int(workers), "command": [*command], "launcher": launcher, "image": "none"}
    spec = read_job(None, given)
    with (Path(folder) / "out").open("w") as out, local_cluster(spec) as cluster:
        warm_up(cluster, spec, lambda _: None)
        with local_job(spec, cluster, stdout=out.fileno()) as job:
            code = job.wait(120.0)
        figures = last_figures(cluster.folder)
        left = {
            "code": code,
            "figures": asdict(figures) if figures else None,
            "registered": has_registered(cluster.folder),
            "sentence": last_word(cluster.folder).sentence,
        }
    print(json.dumps(left, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
