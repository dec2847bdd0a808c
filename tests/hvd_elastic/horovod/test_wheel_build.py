import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from hvd_elastic.cli.this_machine import install_horovod
from hvd_elastic.horovod import wheel_build
from hvd_elastic.horovod.patch_set import NUMBER, Patch
from hvd_elastic.horovod.wheel_build import (
    HorovodBuildError,
    Recipe,
    Sources,
    missing_tools,
    required_cxx_standard,
    wheel,
)

RECIPE = Recipe(
    python="cp311",
    machine="linux-x86_64",
    libc="glibc 2.36",
    torch="2.15.0+cu132",
    cxx_standard=20,
    cuda=False,
    mpi=False,
)


def quiet(_: str) -> None:
    """Takes progress lines."""


@pytest.mark.parametrize(
    ("header", "standard"),
    [
        ("#error C++20 or later compatible compiler is required to use ATen.", 20),
        ("#error C++17 or later compatible compiler is required to use ATen.", 17),
        ("#pragma once", 14),
    ],
)
def test_the_standard_is_the_one_that_torch_asks_for(header: str, standard: int) -> None:
    assert required_cxx_standard(header) == standard


def test_everything_that_changes_the_wheel_changes_its_key() -> None:
    others = [
        replace(RECIPE, python="cp312"),
        replace(RECIPE, torch="2.15.0"),
        replace(RECIPE, cxx_standard=17),
        replace(RECIPE, cuda=True),
        replace(RECIPE, mpi=True),
        replace(RECIPE, machine="linux-aarch64"),
        replace(RECIPE, libc="glibc 2.41"),
        RECIPE.without("gloo-message"),
        RECIPE.unpatched(),
        replace(RECIPE, patches=(*RECIPE.patches[:-1], replace(RECIPE.patches[-1], diff="another"))),
    ]

    assert len({recipe.key for recipe in [RECIPE, *others]}) == len(others) + 1


def test_without_a_patch_those_that_need_it_are_missing_too() -> None:
    names = {patch.name for patch in RECIPE.patches}
    assert names - {patch.name for patch in RECIPE.without("rendezvous-token").patches} == {
        "rendezvous-token",
        "worker-addresses",
        "run-function-token",
        "gloo-meeting",
        "process-set-hosts",
        "small-allreduce",
        "ipv6",
    }
    without = {patch.name for patch in RECIPE.without("worker-addresses").patches}
    assert names - without == {"worker-addresses", "ipv6"}


def test_the_version_says_whether_it_is_the_whole_set() -> None:
    assert RECIPE.local_version == f"hvdelastic.{NUMBER}"
    assert RECIPE.unpatched().local_version == RECIPE.without("gloo-message").local_version == "hvdelastic.0"


@pytest.mark.parametrize(
    ("version", "is_ours"), [("0.28.1", True), ("0.28.1+hvdelastic.1", True), ("0.28.10", False), ("0.28.2", False)]
)
def test_any_build_of_the_version_is_ours_to_drive(
    monkeypatch: pytest.MonkeyPatch, version: str, *, is_ours: bool
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: version)

    assert wheel_build.is_installed() is is_ours


def test_build_switches_follow_the_recipe() -> None:
    plain, full = RECIPE.environment, replace(RECIPE, cuda=True, mpi=True).environment

    assert plain["HOROVOD_WITHOUT_CUDA"] == plain["HOROVOD_WITHOUT_MPI"] == plain["HOROVOD_WITH_GLOO"] == "1"
    assert full["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert "HOROVOD_WITHOUT_CUDA" not in full
    assert "HOROVOD_WITHOUT_MPI" not in full


def test_the_recipe_of_this_environment_is_that_of_its_torch() -> None:
    import torch

    recipe = wheel_build.read_recipe()

    assert recipe.torch == str(torch.__version__)
    assert recipe.python == f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert recipe.cxx_standard >= 17


@pytest.mark.parametrize("there", [True, False])
def test_mpi_is_there_with_its_headers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    """Debian's openmpi-bin, which the image has for mpirun, has mpicxx without mpi.h."""
    headers, compiler = tmp_path / "include", tmp_path / "bin" / "mpicxx"
    for folder in (headers, compiler.parent):
        folder.mkdir()
    if there:
        (headers / "mpi.h").touch()
    compiler.write_text(f'#!/bin/sh\nexec g++ -nostdinc -I {headers} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}{os.pathsep}{os.environ['PATH']}")

    assert wheel_build.read_recipe().mpi is there


def test_a_missing_compiler_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    missing = "\n".join(missing_tools(RECIPE))

    assert "apt-get install g++" in missing
    assert "apt-get install make" in missing
    assert "apt-get install patch" in missing
    with pytest.raises(HorovodBuildError, match=r"apt-get install g\+\+"):
        wheel(RECIPE, tmp_path, progress=quiet)


def test_a_wheel_in_the_cache_is_not_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing could be built
    built = tmp_path / RECIPE.key / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
    built.parent.mkdir()
    built.touch()

    assert wheel(RECIPE, tmp_path, progress=quiet) == built


PIP = """\
import os, pathlib, sys
_, command, *words = sys.argv[1:]
value = dict(zip(words, words[1:])).get
if command == "download":
    assert "--hash=sha256:92a43f5a" in pathlib.Path(value("-r")).read_text()
    pathlib.Path(value("--dest"), "horovod-0.28.1.tar.gz").write_bytes(pathlib.Path({archive!r}).read_bytes())
elif command == "wheel":
    source, out = pathlib.Path(words[-1]), pathlib.Path(value("-w"))
    if os.environ["HOROVOD_CXX_STANDARD"] != "20":
        sys.exit("another standard")
    pathlib.Path({archive!r}).with_name("makeflags").write_text(os.environ["MAKEFLAGS"])
    out.mkdir()
    version = "0.28.1+" + os.environ["HOROVOD_LOCAL_VERSION"]
    (out / f"horovod-{{version}}-cp311-cp311-linux_x86_64.whl").write_text((source / "one.cc").read_text())
"""

PATCH = """\
Subject: [PATCH] One

Without: two
---
--- a/one.cc
+++ b/one.cc
@@ -1 +1 @@
-one
+two
"""
SMALL = replace(RECIPE, patches=(Patch.parse("one", PATCH),))


@pytest.fixture
def one_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python whose pip knows one source distribution; the source's folder."""
    source = tmp_path / "horovod-0.28.1"
    source.mkdir()
    (source / "one.cc").write_text("one\n")
    (source / "two.cc").write_text("two\n")
    archive = tmp_path / "source.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, source.name)
    (tmp_path / "pip.py").write_text(PIP.format(archive=str(archive)))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {tmp_path / "pip.py"} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return source


@pytest.mark.core
@pytest.mark.process
@pytest.mark.usefixtures("one_source")
def test_the_source_is_pinned_patched_and_built_into_the_cache(tmp_path: Path) -> None:
    lines: list[str] = []

    built = wheel(SMALL, tmp_path / "cache", progress=lines.append)

    assert built.read_text() == "two\n"
    assert built.name.startswith("horovod-0.28.1+hvdelastic.0-")
    assert built.parent.name == SMALL.key
    assert any("C++20" in line for line in lines)


@pytest.mark.process
@pytest.mark.usefixtures("one_source")
@pytest.mark.distribution
def test_the_python_of_debian_12_unpacks_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.11.2 has neither the filters of archives nor the argument for them (PEP 706)."""
    extractall = tarfile.TarFile.extractall

    def without_filter(archive: tarfile.TarFile, path: str) -> None:
        # Python 3.14's own default would be the filter that is taken away here.
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        extractall(archive, path)

    monkeypatch.delattr(tarfile, "data_filter")
    monkeypatch.setattr(tarfile.TarFile, "extractall", without_filter)

    assert wheel(SMALL, tmp_path / "cache", progress=quiet).read_text() == "two\n"


@pytest.mark.process
@pytest.mark.parametrize(("below", "compilers"), [(None, "-j{}"), ("", "-j{}"), ("w", "w -j{}"), ("-j7", "-j7")])
@pytest.mark.usefixtures("one_source")
def test_there_are_as_many_compilers_as_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str | None, compilers: str
) -> None:
    """Also below `make setup`, which leaves MAKEFLAGS empty."""
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    if below is not None:
        monkeypatch.setenv("MAKEFLAGS", below)

    wheel(SMALL, tmp_path / "cache", progress=quiet)

    assert (tmp_path / "makeflags").read_text() == compilers.format(len(os.sched_getaffinity(0)))


@pytest.mark.process
@pytest.mark.usefixtures("one_source")
def test_a_tree_that_is_kept_has_new_times_only_where_a_patch_differs(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    wheel(SMALL, tmp_path / "cache", progress=quiet, tree=tree)
    for file in (tree / "source").rglob("*"):
        os.utime(file, (0, 0))

    built = wheel(SMALL.without("one"), tmp_path / "cache", progress=quiet, tree=tree)

    assert built.read_text() == "one\n"
    assert (tree / "source" / "two.cc").stat().st_mtime == 0
    assert (tree / "source" / "one.cc").stat().st_mtime > 0


@pytest.mark.process
@pytest.mark.usefixtures("one_source")
def test_tools_whose_interpreter_is_gone_are_fetched_again(tmp_path: Path) -> None:
    lines: list[str] = []
    sources = Sources.of_cache(tmp_path / "cache", progress=lines.append)
    cmake = sources.tools / "bin" / "cmake"
    cmake.parent.mkdir(parents=True)

    cmake.write_text("#!/bin/sh\n")
    cmake.chmod(0o755)
    sources.fetch()
    assert lines == ["Horovod 0.28.1: fetching its source"]

    cmake.write_text(f"#!{tmp_path}/gone/bin/python\n")
    wheel(SMALL.without("one"), tmp_path / "cache", progress=lines.append)
    assert any("build tools" in line for line in lines)
    assert not cmake.exists()


@pytest.mark.process
@pytest.mark.usefixtures("one_source")
def test_what_was_fetched_before_is_not_fetched_again(tmp_path: Path) -> None:
    lines: list[str] = []
    wheel(SMALL, tmp_path / "cache", progress=lines.append)
    fetched = [line for line in lines if "fetching" in line]
    (tmp_path / "source.tar.gz").unlink()
    wheel(SMALL.without("one"), tmp_path / "cache", progress=lines.append)
    assert [line for line in lines if "fetching its source" in line] == fetched[1:]


@pytest.mark.process
@pytest.mark.usefixtures("one_source")
def test_a_source_that_is_another_is_not_built(tmp_path: Path) -> None:
    other = replace(RECIPE, patches=(Patch.parse("other", PATCH.replace("-one", "-three")),))

    with pytest.raises(HorovodBuildError, match="the patch other does not fit"):
        wheel(other, tmp_path / "cache", progress=quiet)


@pytest.mark.core
@pytest.mark.process
@pytest.mark.usefixtures("one_source")
def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(HorovodBuildError, match="failed; from"):
        wheel(replace(SMALL, cxx_standard=17), tmp_path / "cache", progress=quiet)

    assert not list((tmp_path / "cache").glob("*/*.whl"))


@pytest.mark.core
@pytest.mark.process
def test_the_command_says_where_the_wheel_is() -> None:
    command = [sys.executable, "-m", "hvd_elastic.cli", "install-horovod", "--wheel-only"]
    if not next((wheel_build.default_cache() / wheel_build.read_recipe().key).glob("*.whl"), None):
        pytest.skip("no wheel in the user's cache: this environment got Horovod in another way")

    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)

    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).name.startswith(f"horovod-0.28.1+hvdelastic.{NUMBER}-")


def test_of_a_long_log_the_compilers_own_words_are_shown() -> None:
    lines = ["compiling", "x.cc:506: fatal error: No space left on device", *["removing 'build'"] * 100]

    assert wheel_build._why("\n".join(lines)) == lines[1]
    assert wheel_build._why("\n".join(lines[2:])).count("\n") == 19


def test_of_cmakes_errors_the_first_is_shown_with_its_reason() -> None:
    lines = ["  CMake Error at CMakeLists.txt:1 (find_package):", "    Could NOT find MPI", "error: subprocess-exited"]

    assert "CMakeLists.txt:1" in wheel_build._why("\n".join(lines))
    assert "Could NOT find MPI" in wheel_build._why("\n".join(lines))


@pytest.mark.parametrize("unpatched", [False, True])
def test_the_command_takes_the_wheel_that_is_asked_for(tmp_path: Path, *, unpatched: bool) -> None:
    recipe = wheel_build.read_recipe()
    for each in (recipe, recipe.unpatched()):
        (tmp_path / each.key).mkdir()
        (tmp_path / each.key / f"horovod-0.28.1+{each.local_version}.whl").touch()
    flags = ["--wheel-only", "--cache", str(tmp_path), *(["--unpatched"] if unpatched else [])]

    done = CliRunner().invoke(install_horovod.command, flags)

    wanted = recipe.unpatched() if unpatched else recipe
    assert done.stdout.strip() == str(tmp_path / wanted.key / f"horovod-0.28.1+{wanted.local_version}.whl")
