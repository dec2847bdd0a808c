"""Generating many jobs, beside PyYAML's C dumper on the same documents, in one run on this machine.

    python -m benchmarks.generate [--jobs 1000]

Ours is everything from a description's text to the manifests' text; the dumper only writes documents that are there
already. Both are CPU time of this process, which a busy machine disturbs least. The bound is 1.5 times the dumper plus
one second. Memory is the resident set after each tenth of the jobs.
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
    ours = theirs = 0.0
    characters = 0
    resident: list[int] = []
    for number, text in enumerate(descriptions(count), 1):
        started = time.process_time()
        stream = dump(render(read_job(text)))
        ours += time.process_time() - started
        documents = list(yaml.load_all(stream, Loader=yaml.CSafeLoader))
        started = time.process_time()
        dumped(documents)
        theirs += time.process_time() - started
        characters += len(stream)
        if number % max(1, count // 10) == 0:
            resident.append(process.memory_info().rss)

    bound = BOUND_FACTOR * theirs + BOUND_SECONDS
    print(f"{count} jobs, {characters / count / 1000:.1f} kB of manifests each")
    print(f"  generate   {ours:7.2f} s   {ours / count * 1000:6.2f} ms a job")
    print(f"  C dumper   {theirs:7.2f} s   {theirs / count * 1000:6.2f} ms a job")
    print(f"  ratio      {ours / theirs:7.2f}     bound {bound:.2f} s: {'kept' if ours <= bound else 'MISSED'}")
    print(f"  memory     {resident[0] / MIB:.1f} MiB after a tenth, {resident[-1] / MIB:.1f} MiB at the end")
    return 0 if ours <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
