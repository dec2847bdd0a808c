"""Other builds of Horovod, and the tests under them.

    python -m tests.hvd_elastic.horovod.variants unpatched [PYTEST ARGUMENTS]    the launcher's and the training's tests
    python -m tests.hvd_elastic.horovod.variants without [PATCH ...]             for each patch (all of them without an
                                                                                 argument): the tests that it names,
                                                                                 under a Horovod that lacks it

A test marked `needs_patch` is expected to fail where its patch is missing, so a run that ends with 0 says two things:
all that differs is marked, and each mark is true. The builds share one tree, in which make compiles what differs, and
are kept in the cache of wheels.
"""

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from hvd_elastic.horovod import wheel_build
from hvd_elastic.horovod.patch_set import Patch, read_patches
from hvd_elastic.horovod.wheel_build import Recipe
from tests.runner.suite import RUNS

ROOT: Final = Path(__file__).parents[3]
TESTED: Final = ("tests/hvd_elastic/launcher", "tests/local", "tests/trainer")
_PATCHED_ONLY: Final = "--ignore=tests/local/test_launcher_scale.py"
"""The benchmark's stub workers write in the form of a patch."""


def environment(recipe: Recipe) -> Path:
    """Return the Python of a virtual environment that differs from this one in its Horovod; build what is missing."""
    cache = wheel_build.default_cache()
    folder = cache / "variants" / recipe.key
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        wheel = wheel_build.wheel(recipe, cache, progress=_say, tree=cache / "variants" / "tree")
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
        subprocess.run([*install, str(wheel)], check=True)
        (folder / "complete").touch()
    _share_packages(folder)
    return python


def _share_packages(folder: Path) -> None:
    """Let it find this environment's packages, after its own Horovod. Each time, as checkouts come and go."""
    packages = next((folder / "lib").glob("python*/site-packages"))
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")


def unpatched(arguments: Sequence[str]) -> int:
    """Run the launcher's and the training's tests once under unpatched sources; return pytest's exit code.

    What fails runs once more: a survivor of a killed process waits for ever if it was in the middle of a message, which
    is seldom.
    """
    python = environment(wheel_build.read_recipe().unpatched())
    options = (*TESTED, _PATCHED_ONLY, "-m", "not cluster", *RUNS["only"], *arguments)
    code = _pytest(python, *options)
    return _pytest(python, *options, "--last-failed") if code == pytest.ExitCode.TESTS_FAILED else code


def without(names: Sequence[str]) -> int:
    """For each patch, run its tests without it, and print which of them notice. Return 1 if one does not, else 0."""
    repairs = [patch for patch in read_patches() if not patch.about_compiling]
    patches = [patch for patch in repairs if not names or patch.name in names]
    unnoticed = [patch.name for patch in patches if not _is_noticed(patch)]
    for patch in patches:
        _say(f"{patch.name:24} {'UNNOTICED' if patch.name in unnoticed else 'noticed by'} {' '.join(patch.tests)}")
    return 1 if unnoticed else 0


def _is_noticed(patch: Patch) -> bool:
    """Whether all tests that a patch names fail without it: they are marked, and a false mark is an error."""
    python = environment(wheel_build.read_recipe().without(patch.name))
    return _pytest(python, *patch.tests) == 0


def _pytest(python: Path, *arguments: str) -> int:
    return subprocess.run([str(python), "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit({"unpatched": unpatched, "without": without}[sys.argv[1]](sys.argv[2:]))
