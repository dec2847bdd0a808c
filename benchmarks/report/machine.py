"""The machine of a benchmark, as its figures' heading names it."""

import os
import platform
from pathlib import Path

import psutil


def this_machine() -> str:
    """Processor, memory, kernel and Python, and how busy the machine is: one line."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = psutil.virtual_memory().total / 2**30
    load = os.getloadavg()[0]
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {load:.1f}"
    )
