"""`make test` with other versions of the libraries than uv.lock has.

    python -m tests.runner.other_versions lowest [PYTEST ARGUMENTS]    the lowest that pyproject.toml allows
    python -m tests.runner.other_versions newest [PYTEST ARGUMENTS]    the newest on the package index

Each has a virtual environment beside the cache of Horovod's wheels, brought to what is resolved now before each run.
Horovod is built for the torch in it. Packages without a wheel for this Python are not taken: a bound that only a
compiler makes true is none.
"""

import fcntl
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from hvd_elastic.horovod import wheel_build

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = ("pyproject.toml", "--all-extras", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:")
RESOLUTIONS: Final = {
    "lowest": ("--resolution", "lowest-direct"),
    "newest": ("--group", "bridges"),
}
"""Arguments of `uv pip compile`. The bridges' libraries come newest alone: no user gets their bounds from here."""
FITS_THE_LOWEST: Final = ("pyarrow<24",)
"""What `datasets` brings. Its wheels of today want numpy 2, and do not say so: 26.0.1 raises ImportError."""


def resolve(which: str) -> str:
    """The pinned requirements of all extras and of the tests: the tests' own are the newest that fit the others."""
    with_tests = (*PROJECT, "--group", "test", "--group", "loaders")
    if which == "newest":
        return _uv("pip", "compile", *with_tests, *RESOLUTIONS[which])
    resolved = _uv("pip", "compile", *PROJECT, *RESOLUTIONS[which])
    names = direct()
    bounds = [line for line in resolved.splitlines() if Requirement(line).name in names]
    given = "\n".join([*bounds, *FITS_THE_LOWEST])
    return _uv("pip", "compile", *with_tests, "--constraints", "-", "pyproject.toml", given=given)


def direct() -> set[str]:
    """Return the names of what pyproject.toml asks for. Only these have lower bounds that are a promise."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    return {Requirement(line).name for line in lines}


def environment(which: str, folder: Path) -> Path:
    """Bring the virtual environment in `folder` to what is resolved now; return its Python."""
    python = folder / "bin" / "python"
    _uv("venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder))
    here = ("--quiet", "--python", str(python))
    _uv("pip", "sync", *here, "--only-binary", ":all:", "-", given=resolve(which))
    _uv("pip", "install", *here, "--no-deps", "pip", "--editable", str(ROOT))
    subprocess.run([python, "-m", "hvd_elastic.cli", "install-horovod"], cwd=ROOT, check=True)
    return python


def run(which: str, arguments: Sequence[str]) -> int:
    """Run the tests of `make test`; return 0 where all passed."""
    folder = wheel_build.default_cache().parent / "versions" / f"{which}-{sys.implementation.cache_tag}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = environment(which, folder)
        subprocess.run([sys.executable, "-m", "uv", "pip", "list", "--python", str(python)], check=True)
        # The tools of the image's build are here, and not in an environment of the lowest versions.
        variables = {**os.environ, "SBOM_TOOLS": str(Path(sys.executable).parent)}
        command = [str(python), "-m", "tests.runner.suite", "quick", *arguments]
        return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def _uv(*arguments: str, given: str = "") -> str:
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(command, cwd=ROOT, input=given, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
