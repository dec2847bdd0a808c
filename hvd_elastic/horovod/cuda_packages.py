"""NVIDIA's compiler, CUDA and NCCL as the package index has them, and what Horovod's build must be told to use them.

torch brings CUDA's headers and libraries and NCCL; the packages of `cuda-toolkit[nvcc]` add the compiler to the same
folder. They have no installer, so two things differ from a CUDA of NVIDIA's: nothing is on PATH, and libraries have
their versioned names alone (`libcudart.so.13`), where CMake and the linker look for `libcudart.so`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

_COMPILER: Final = "nvidia-cuda-nvcc"
_NCCL: Final = re.compile(r"nvidia-nccl-cu\d+")
_SHARED: Final = re.compile(r"(lib[\w+-]+\.so)\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaPackages:
    """Where they are."""

    toolkit: Path
    """Has `bin/nvcc`, `include` and `lib`."""
    nccl: Path
    """Has `include/nccl.h` and `lib`."""

    def environment(self, links: Path, *, path: str) -> Mapping[str, str]:
        """What Horovod's `setup.py` and CMake read (its docs/install.rst), given `path`, the PATH so far.

        Makes the folder `links`, with each library under its name without a version.
        """
        _link(links, (self.toolkit / "lib", self.nccl / "lib"))
        return {
            "PATH": f"{self.toolkit / 'bin'}{os.pathsep}{path}",
            "CUDA_HOME": str(self.toolkit),
            "HOROVOD_CUDA_HOME": str(self.toolkit),
            "CUDAToolkit_ROOT": str(self.toolkit),
            "CMAKE_LIBRARY_PATH": str(links),
            "LIBRARY_PATH": str(links),
            "HOROVOD_NCCL_INCLUDE": str(self.nccl / "include"),
            "HOROVOD_NCCL_LIB": str(links),
            # The index has no other. It is the one that torch has loaded by then, so Horovod needs no path to it.
            "HOROVOD_NCCL_LINK": "SHARED",
        }


def find_cuda_packages() -> CudaPackages | None:
    """Those of this environment; None if it lacks the compiler or NCCL."""
    nvcc = next((file for file in _files(_COMPILER) if file.match("bin/nvcc")), None)
    if nvcc is None:
        return None
    names = {distribution.name for distribution in metadata.distributions()}
    headers = (file for name in sorted(names) if _NCCL.fullmatch(name) for file in _files(name))
    header = next((file for file in headers if file.match("include/nccl.h")), None)
    return CudaPackages(toolkit=nvcc.parent.parent, nccl=header.parent.parent) if header else None


def _files(package: str) -> Iterator[Path]:
    try:
        files = metadata.files(package) or ()
    except metadata.PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in files)


def _link(links: Path, folders: tuple[Path, ...]) -> None:
    links.mkdir(parents=True, exist_ok=True)
    for file in (file for folder in folders for file in sorted(folder.iterdir())):
        found = _SHARED.fullmatch(file.name)
        name = found.group(1) if found else file.name
        if (found or file.suffix == ".a") and not (links / name).exists():
            (links / name).symlink_to(file)
