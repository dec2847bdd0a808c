"""The machine of a benchmark, as its figures' heading names it, and the product that it measured."""

import hashlib
import os
import platform
from functools import cache
from pathlib import Path
from typing import Final

import psutil

_ROOT: Final = Path(__file__).parents[2]
_PRODUCT: Final = ("hvd_elastic", "mpijob", "discovery", "trainer", "priorityclasses")


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


@cache
def product_digest() -> str:
    """Of the product's source: figures with the same one were measured of the same product."""
    found = hashlib.blake2b(digest_size=8)
    for file in sorted(file for folder in _PRODUCT for file in (_ROOT / folder).rglob("*.py")):
        found.update(f"{file.relative_to(_ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()
