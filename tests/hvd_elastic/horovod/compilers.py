"""Horovod built with each other compiler that this Debian or Ubuntu has, and a sum over two processes (root).

    python -m tests.hvd_elastic.horovod.compilers [COMPILER ...]    such as g++-13 and clang++; default: all others

Installs the compilers. Those that are `g++` of a release are left out: its `make setup` builds with them.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.horovod import wheel_build
from testbed.debian_programs import Tool, install

OLDEST_GCC: Final = 11
DEFAULTS: Final = (12, 14, 16)
"""Of Debian 12, 13 and testing: `make test-distributions` builds with them."""
_TRY: Final = """
import torch, horovod.torch as hvd
hvd.init()
assert hvd.size() == 2
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2, 2, 2]
"""


def main(names: Sequence[str]) -> int:
    """Build with each; print a line for each, and at last those that built it. Return 1 if one did not."""
    asked = list(names or _others())
    built = [name for name in asked if _builds(name)]
    print("compiles with", ", ".join(f"{name} {_version(name)}" for name in built) or "none of them", flush=True)
    return 0 if built == asked else 1


def _others() -> list[str]:
    """The C++ compilers among this release's packages, but for those that are the default of a tested release."""
    packages = _output("apt-cache", "pkgnames").split()
    versions = sorted(int(found.group(1)) for package in packages if (found := re.fullmatch(r"g\+\+-(\d+)", package)))
    gcc = [f"g++-{version}" for version in versions if version >= OLDEST_GCC and version not in DEFAULTS]
    return [*gcc, *(["clang++"] if "clang" in packages else [])]


def _builds(name: str) -> bool:
    package = name.removesuffix("++") if name.startswith("clang") else name
    if missing := install([Tool(program=name, package=package)]):
        print(*missing, sep="\n", flush=True)
        return False
    os.environ |= {"CXX": name, "CC": name.replace("clang++", "clang").replace("g++", "gcc")}
    with tempfile.TemporaryDirectory(prefix="horovod-compiler-") as scratch:
        try:
            wheel = wheel_build.wheel(wheel_build.read_recipe(), Path(scratch), progress=_say)
        except wheel_build.HorovodBuildError as error:
            print(f"{name}: {error}", flush=True)
            return False
        return _sums(wheel, Path(scratch) / "installed")


def _sums(wheel: Path, folder: Path) -> bool:
    """Whether two processes of this Horovod reduce a tensor."""
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run([sys.executable, *install], check=True)
    launch = ["-m", "horovod.runner.launch", "-np", "2", "--gloo", sys.executable, "-c", _TRY]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *launch], env=environment, timeout=300, check=False).returncode == 0


def _version(name: str) -> str:
    option = "-dumpversion" if name.startswith("clang") else "-dumpfullversion"
    return _output(name, option).strip()


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
