"""Time and memory for generating many jobs, compared with PyYAML's C dumper on the same documents in the same run.

    python -m benchmarks.generate [--jobs 1000]

Our time is for everything from a description's text to the manifests' text. The dumper only writes documents that are
in memory already. Both are CPU time of this process, which a busy machine disturbs least. The bound is 1.5 times the
dumper's time plus one second. Memory is the resident set after each tenth of the jobs.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import yaml

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump

DESCRIPTION = """
name: job-{number}
image: registry.example.com/research/fashion:1.4
command: [python, train.py, --seed, "{number}"]
workers: {{min: 1, start: 2, max: 8, gpus: 8, cpu: 64, memory: 512Gi}}
cloud: eks
capacity: spot
gpu_type: a100
data: {{claim: imagenet}}
output: {{claim: results}}
checkpoint: s3://team-bucket/fashion
batch: 1024
monitor: true
"""
BOUND_FACTOR = 1.5
BOUND_SECONDS = 1.0
MIB = 1 << 20


def descriptions(count: int) -> Iterator[str]:
    return (DESCRIPTION.format(number=number) for number in range(count))


def dumped(documents: list[dict[str, Any]]) -> str:
    return yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    count = parser.parse_args().jobs
    record = Record(name="generate", question="What does it take to generate a thousand jobs?")
    process = psutil.Process()
    dump(render(read_job(DESCRIPTION.format(number=0))))
    generating = dumping = 0.0
    characters = 0
    resident: list[int] = []
    for number, text in enumerate(descriptions(count), 1):
        started = time.process_time()
        stream = dump(render(read_job(text)))
        generating += time.process_time() - started
        documents = list(yaml.load_all(stream, Loader=yaml.CSafeLoader))
        started = time.process_time()
        dumped(documents)
        dumping += time.process_time() - started
        characters += len(stream)
        if number % max(1, count // 10) == 0:
            resident.append(process.memory_info().rss)

    bound = BOUND_FACTOR * dumping + BOUND_SECONDS
    verdict = "kept" if generating <= bound else "MISSED"
    rows = [
        [name, seconds, seconds / count * 1000, seconds / dumping]
        for name, seconds in (("description to manifests", generating), ("PyYAML's C dumper alone", dumping))
    ]
    record.add(
        Table(
            name="generate",
            title=f"{count} jobs, {characters / count / 1000:.1f} kB of manifests each",
            columns=(
                Column(title=""),
                Column(title="CPU seconds", format=".2f"),
                Column(title="ms a job", format=".2f"),
                Column(title="times the dumper's", format=".2f"),
            ),
            rows=rows,
            note=f"The bound of {bound:.2f} s is {verdict}. Resident memory: {resident[0] / MIB:.1f} MiB after a tenth "
            f"of the jobs, {resident[-1] / MIB:.1f} MiB at the end. PyYAML {yaml.__version__}.",
        )
    )
    record.promise(Aim(what=f"CPU seconds to generate {count} jobs", bound=bound, measured=generating))
    record.write()
    return 0 if generating <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
