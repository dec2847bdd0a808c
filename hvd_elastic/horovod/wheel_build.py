"""Builds Horovod 0.28.1 for the installed torch, once, and keeps the wheel in a cache.

A `Recipe` describes this machine as far as it decides what is in the wheel. Its `key` names the wheel's folder in the
cache. The source distribution and the build tools come from the package index, each by its hash; `patch_set` has the
changes to the source.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Final

from hvd_elastic.horovod.cuda_packages import CudaPackages, find_cuda_packages
from hvd_elastic.horovod.patch_set import NUMBER, Patch, PatchError, apply_patches, read_patches
from hvd_elastic.mpijob.contract import HvdElasticError

VERSION: Final = "0.28.1"
SDIST_SHA256: Final = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"

BUILD_TOOLS: Final = Path(__file__).with_name("build_tools.txt")
"""What builds it, by version and hash. `build_tools.in`, beside it, says why these."""

_PROGRESS_SECONDS: Final = 15.0
"""Between two lines that say how far the compiler is."""


class HorovodBuildError(HvdElasticError):
    """Horovod could not be built or installed. The message names what is missing, or quotes the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides what is in the wheel."""

    python: str
    """Interpreter and ABI as in a wheel's name, such as `cp311`."""
    machine: str
    libc: str
    """Such as `glibc 2.36`. What a newer one made does not load with an older one, which may share a home."""
    torch: str
    """Version with its local part, such as `2.15.0+cu132`."""
    cxx_standard: int
    """The standard that an `#error` in torch's headers asks for: 14, 17, 20 ..."""
    cuda: bool
    """Build NCCL operations: a CUDA compiler (nvcc) is on PATH, or in this environment, from the package index."""
    mpi: bool
    """Build MPI operations: an MPI compiler (mpicxx) is installed, and its headers are."""
    patches: tuple[Patch, ...] = field(default_factory=read_patches)
    """The changes to the source."""

    @property
    def local_version(self) -> str:
        """What the wheel's version has after its `+`: `hvdelastic.N` with the whole patch set, else `hvdelastic.0`."""
        return f"hvdelastic.{NUMBER if self.patches == read_patches() else 0}"

    @property
    def key(self) -> str:
        """Name of the wheel's folder in the cache: a hash of the source, the patches and the recipe."""
        patches = [(patch.name, patch.diff) for patch in self.patches]
        rest = asdict(replace(self, patches=()))
        text = json.dumps([SDIST_SHA256, self.local_version, patches, build_tools(), rest])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def unpatched(self) -> "Recipe":
        """The same with those patches alone that are about compiling."""
        return replace(self, patches=tuple(patch for patch in self.patches if patch.about_compiling))

    def without(self, name: str) -> "Recipe":
        """The same without the patch of that name, and without those that need it, or one of them."""
        left_out = {name}
        for patch in self.patches:  # one needs only earlier ones
            if not left_out.isdisjoint(patch.needs):
                left_out.add(patch.name)
        return replace(self, patches=tuple(patch for patch in self.patches if patch.name not in left_out))

    @property
    def environment(self) -> Mapping[str, str]:
        """Horovod's build switches (its docs/install.rst), and the one that the patch `cxx-standard` adds."""
        chosen = {"HOROVOD_WITH_PYTORCH", "HOROVOD_WITH_GLOO", "HOROVOD_WITHOUT_TENSORFLOW", "HOROVOD_WITHOUT_MXNET"}
        chosen.add("HOROVOD_WITH_MPI" if self.mpi else "HOROVOD_WITHOUT_MPI")
        if not self.cuda:
            chosen.add("HOROVOD_WITHOUT_CUDA")
        switches = dict.fromkeys(sorted(chosen), "1") | ({"HOROVOD_GPU_OPERATIONS": "NCCL"} if self.cuda else {})
        return switches | {"HOROVOD_CXX_STANDARD": str(self.cxx_standard)}


def build_tools() -> tuple[str, ...]:
    """Name and version of each build tool, such as `cmake==3.31.10`. A hash that is added makes no other wheel."""
    return tuple(re.findall(r"(?m)^[^#\s]+==\S+", BUILD_TOOLS.read_text()))


def required_cxx_standard(aten_header: str) -> int:
    """The C++ standard that torch's headers ask for, from the text of `ATen/ATen.h`; 14 if they ask for none."""
    found = re.search(r"#error C\+\+(\d+) or later", aten_header)
    return int(found.group(1)) if found else 14


def read_recipe() -> Recipe:
    """Return the recipe for this interpreter and its torch. Raises HorovodBuildError if torch is not installed."""
    try:
        torch = metadata.distribution("torch")
    except metadata.PackageNotFoundError as error:
        raise HorovodBuildError("torch is not installed: pip install 'hvd-elastic[train]'") from error
    header = Path(str(torch.locate_file("torch/include/ATen/ATen.h")))
    return Recipe(
        python=_python_tag(),
        machine=sysconfig.get_platform(),
        libc=" ".join(platform.libc_ver()),
        torch=torch.version + _local_version(Path(str(torch.locate_file("torch/version.py")))),
        cxx_standard=required_cxx_standard(header.read_text()) if header.exists() else 17,
        cuda=shutil.which("nvcc") is not None or _cuda_packages() is not None,
        mpi=_compiles_mpi(),
    )


def _python_tag() -> str:
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def _local_version(version_file: Path) -> str:
    """Such as `+cu132`. The metadata from the package index leaves it out; torch's own version file has it."""
    found = re.search(r"(?m)^__version__[^+\n]*(\+\w+)", version_file.read_text()) if version_file.exists() else None
    return found.group(1) if found else ""


def _compiles_mpi() -> bool:
    """Whether there is an MPI compiler that finds `mpi.h`: Debian's openmpi-bin has the one without the other."""
    if (compiler := shutil.which("mpicxx")) is None:
        return False
    command = [compiler, "-E", "-include", "mpi.h", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def default_cache() -> Path:
    """The folder of built wheels. It is outside of every checkout, so that a fresh clone does not build again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hvd-elastic" / "horovod"


def has_wheels(cache: Path) -> bool:
    """Whether something was built for this Python before. Then what is asked for is probably there, too."""
    return any(cache.glob(f"*/horovod-*-{_python_tag()}-*.whl"))


def missing_tools(recipe: Recipe) -> tuple[str, ...]:
    """One line for each tool that the build needs and this machine lacks, with the package that provides it."""
    compiler = os.environ.get("CXX", "g++")
    checks = {
        f"no C++ compiler ({compiler}): apt-get install g++": shutil.which(compiler),
        "no make: apt-get install make": shutil.which("make"),
        "no patch: apt-get install patch": shutil.which("patch"),
        "no Python headers: apt-get install python3-dev": _python_header().exists() or None,
        "no pip in this environment: python -m ensurepip": _find_module("pip"),
    }
    if recipe.cuda and _cuda_packages() is None:
        checks[
            "nvcc is installed, but NCCL's headers are not: apt-get install libnccl-dev, or set HOROVOD_NCCL_HOME"
        ] = _nccl()
    return tuple(message for message, found in checks.items() if found is None)


def _cuda_packages() -> CudaPackages | None:
    """NVIDIA's packages of the index, unless there is a compiler on PATH: somebody put it there for a reason."""
    return None if shutil.which("nvcc") else find_cuda_packages()


def _python_header() -> Path:
    return Path(sysconfig.get_path("include")) / "Python.h"


def _find_module(name: str) -> object:
    from importlib.util import find_spec

    return find_spec(name)


def _nccl() -> str | None:
    homes = (os.environ.get("HOROVOD_NCCL_HOME", ""), "/usr", "/usr/local", "/usr/local/cuda")
    return next((home for home in homes if home and (Path(home) / "include" / "nccl.h").exists()), None)


def wheel(recipe: Recipe, cache: Path, *, progress: Callable[[str], None], tree: Path | None = None) -> Path:
    """Return the wheel of `recipe`: from `cache`, or built into it, which takes all cores for some minutes.

    Concurrent callers build it once. In a `tree` that is kept, a recipe that differs from the last one in a patch
    compiles only what the patch changes. Raises HorovodBuildError with every missing tool, or with the log's first
    errors.
    """
    folder = cache / recipe.key
    with _locked(cache / f"{recipe.key}.lock"):
        if found := next(folder.glob("*.whl"), None):
            progress(f"Horovod {VERSION}: already built, {found}")
            return found
        if missing := missing_tools(recipe):
            raise HorovodBuildError("Horovod cannot be built here:\n" + "\n".join(f"  {line}" for line in missing))
        with tempfile.TemporaryDirectory(prefix="horovod-build-") as work:
            sources = Sources.of_cache(cache, progress=progress)
            sources.fetch()
            log = cache / f"{recipe.key}.log"
            build = _Build(recipe=recipe, sources=sources, tree=tree or Path(work), log=log, progress=progress)
            built = build.run()
            folder.mkdir(parents=True, exist_ok=True)
            # Renamed into place, so a wheel in the cache is always complete.
            partial = folder / f".{built.name}"
            shutil.copyfile(built, partial)
            return partial.rename(folder / built.name)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What a build needs from the package index: Horovod's source and the build tools, kept for all recipes."""

    folder: Path
    """Its own for each version of Python."""
    progress: Callable[[str], None]

    @classmethod
    def of_cache(cls, cache: Path, *, progress: Callable[[str], None]) -> "Sources":
        wanted = hashlib.sha256(BUILD_TOOLS.read_bytes()).hexdigest()[:16]
        return cls(folder=cache / f"sources-{sys.implementation.cache_tag}-{wanted}", progress=progress)

    @property
    def archive(self) -> Path:
        return self.folder / f"horovod-{VERSION}.tar.gz"

    @property
    def tools(self) -> Path:
        """A folder for PYTHONPATH, with scripts in `bin`."""
        return self.folder / "tools"

    @property
    def environment(self) -> Mapping[str, str]:
        """That of a process which finds the tools."""
        return os.environ | {"PYTHONPATH": str(self.tools)}

    def fetch(self) -> None:
        """Bring what is not there yet. It needs no torch. Raises HorovodBuildError with what pip says."""
        with _locked(self.folder.with_suffix(".lock")):
            if self._runs_cmake() and self.archive.exists():
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            log = self.folder / "pip.log"
            with log.open("w") as output:
                self._fetch(output.fileno(), log)

    def _fetch(self, output: int, log: Path) -> None:
        if not self._runs_cmake():
            self.progress(f"Horovod {VERSION}: fetching its build tools")
            shutil.rmtree(self.tools, ignore_errors=True)
            # Wheels alone: to build a tool, pip would fetch that one's own tools without a hash.
            hashed = ("--require-hashes", "--only-binary", ":all:", "--requirement", str(BUILD_TOOLS))
            install = ("install", "--target", str(self.tools), *hashed)
            _pip(install, environment=os.environ, output=output, log=log)
        if self.archive.exists():
            return
        self.progress(f"Horovod {VERSION}: fetching its source")
        requirement = self.folder / "source.txt"
        requirement.write_text(f"horovod=={VERSION} --hash=sha256:{SDIST_SHA256}\n")
        fetch = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--require-hashes")
        download = ("download", *fetch, "--dest", str(self.folder), "-r", str(requirement))
        _pip(download, environment=self.environment, output=output, log=log)

    def _runs_cmake(self) -> bool:
        """Whether the build tools are there and run.

        Their scripts name the interpreter that installed them. It may be gone; then the system's cmake would be taken
        for this one, and fail.
        """
        command = [str(self.tools / "bin" / "cmake"), "--version"]
        try:
            done = subprocess.run(command, env=self.environment, capture_output=True, check=False)
        except OSError:
            return False
        return done.returncode == 0


@dataclass(frozen=True, kw_only=True)
class _Build:
    """One build in a folder that may hold what an earlier one has compiled."""

    recipe: Recipe
    sources: Sources
    tree: Path
    log: Path
    progress: Callable[[str], None]

    def run(self) -> Path:
        recipe, source, out = self.recipe, self.tree / "source", self.tree / "out"
        with _locked(self.tree / "lock"), self.log.open("w") as output:
            self._lay_out(source)
            self.progress(
                f"Horovod {VERSION}+{recipe.local_version}: compiling with C++{recipe.cxx_standard} for torch "
                f"{recipe.torch}, Gloo{', NCCL' if recipe.cuda else ''}{', MPI' if recipe.mpi else ''} "
                f"(some minutes; log: {self.log})"
            )
            shutil.rmtree(out, ignore_errors=True)
            arguments = ("wheel", "-v", "--no-deps", "--no-build-isolation", "-w", str(out), str(source))
            environment = self._environment()
            _pip(arguments, environment=environment, output=output.fileno(), log=self.log, progress=self.progress)
        return next(out.glob("*.whl"))

    def _lay_out(self, source: Path) -> None:
        """Make `source` the patched source. A file that it has already keeps its time, so make leaves its object be."""
        with tempfile.TemporaryDirectory(dir=self.tree) as scratch:
            with tarfile.open(self.sources.archive) as archive:
                # As an attribute, since Debian 12's Python 3.11.2 does not know `extractall(filter=...)` (PEP 706).
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(scratch)  # noqa: S202 - filtered above, and its checksum is pinned
            wanted = Path(scratch) / f"horovod-{VERSION}"
            try:
                apply_patches(wanted, self.recipe.patches)
            except PatchError as error:
                raise HorovodBuildError(str(error)) from error
            if not source.exists():
                wanted.rename(source)
                return
            for file in (file for file in wanted.rglob("*") if file.is_file()):
                there = source / file.relative_to(wanted)
                if not there.exists() or there.read_bytes() != file.read_bytes():
                    shutil.copyfile(file, there)

    def _environment(self) -> Mapping[str, str]:
        environment = {**self.sources.environment, **self.recipe.environment}
        environment["HOROVOD_LOCAL_VERSION"] = self.recipe.local_version
        environment["PATH"] = f"{self.sources.tools / 'bin'}{os.pathsep}{os.environ['PATH']}"
        if self.recipe.cuda and (packages := _cuda_packages()):
            environment |= packages.environment(self.tree / "cuda-libraries", path=environment["PATH"])
        # Horovod's default is 8 compilers at a time, each of which takes over 1 GB for torch's headers. Below a make,
        # as in `make setup`, the variable is there already, and empty or without a number.
        flags = environment.get("MAKEFLAGS", "")
        if "-j" not in flags:
            environment["MAKEFLAGS"] = f"{flags} -j{len(os.sched_getaffinity(0))}".strip()
        return environment


def _pip(
    arguments: tuple[str, ...],
    *,
    environment: Mapping[str, str],
    output: int,
    log: Path,
    progress: Callable[[str], None] | None = None,
) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    with subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as running:
        while _still_runs(running):
            if progress and (percents := re.findall(r"\[ *(\d+%)\]", log.read_text(errors="replace"))):
                progress(f"Horovod {VERSION}: {percents[-1]} compiled")
    if running.returncode:
        raise HorovodBuildError(f"`pip {arguments[0]}` failed; from {log}:\n{_why(log.read_text(errors='replace'))}")


def _still_runs(process: subprocess.Popen[bytes]) -> bool:
    """Whether it does after a while."""
    try:
        process.wait(timeout=_PROGRESS_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _why(log: str) -> str:
    """CMake's first error, else the compiler's, else pip's; much of setuptools' follows. Else the last lines."""
    lines = [line.strip() for line in log.splitlines()]
    compiler = [line for line in lines if re.search(r"\berror: ", line)][:5]
    return "\n".join(_error(lines, "CMake Error") or compiler or _error(lines, "ERROR: ") or lines[-20:])


def _error(lines: list[str], start: str) -> list[str]:
    """The first error that begins so, with the lines below it, which say what was wrong."""
    first = next((number for number, line in enumerate(lines) if line.startswith(start)), len(lines))
    return lines[first : first + 8]


def install(path: Path) -> None:
    """Install the wheel into this environment. The extra `train` brings its Python dependencies."""
    with tempfile.TemporaryDirectory(prefix="horovod-install-") as work:
        log = Path(work) / "pip.log"
        with log.open("w") as output:
            arguments = ("install", "--no-deps", "--force-reinstall", str(path))
            _pip(arguments, environment=os.environ, output=output.fileno(), log=log)


def is_installed() -> bool:
    """Whether this environment has the Horovod version that this package drives, from any build."""
    try:
        return metadata.version("horovod").partition("+")[0] == VERSION
    except metadata.PackageNotFoundError:
        return False
