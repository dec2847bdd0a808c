"""Time and memory for generating many jobs, compared with PyYAML's C dumper on the same documents in the same run.

    python -m benchmarks.generate [--jobs 1000]

Our time is for everything from a description's text to the manifests' text. The dumper only writes documents that are
in memory already. Both are CPU time of this process, which a busy machine disturbs least. The bound is 1.5 times the
dumper's time plus one second. Memory is the resident set after each tenth of the jobs.
"""

import argparse
import platform
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import yaml

from hvd_elastic.mpijob.description.reader import read_job
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
    machine = f"{platform.platform()}, {psutil.cpu_count()} CPUs"
    print(f"{machine}, Python {platform.python_version()}, PyYAML {yaml.__version__}")

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
    print(f"{count} jobs, {characters / count / 1000:.1f} kB of manifests each")
    print(f"  generate   {generating:7.2f} s   {generating / count * 1000:6.2f} ms per job")
    print(f"  C dumper   {dumping:7.2f} s   {dumping / count * 1000:6.2f} ms per job")
    verdict = "kept" if generating <= bound else "MISSED"
    print(f"  ratio      {generating / dumping:7.2f}     bound {bound:.2f} s: {verdict}")
    print(f"  memory     {resident[0] / MIB:.1f} MiB after a tenth, {resident[-1] / MIB:.1f} MiB at the end")
    return 0 if generating <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
