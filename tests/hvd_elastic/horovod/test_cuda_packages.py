import os
from pathlib import Path

import pytest

from hvd_elastic.horovod import cuda_packages, wheel_build

Packages = dict[str, tuple[str, ...]]

COMPILER: Packages = {"nvidia-cuda-nvcc": ("nvidia/cu13/bin/nvcc", "nvidia/cu13/bin/nvcc.profile")}
NCCL: Packages = {"nvidia-nccl-cu13": ("nvidia/nccl/include/nccl.h", "nvidia/nccl/lib/libnccl.so.2")}
RUNTIME: Packages = {"nvidia-cuda-runtime": ("nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcudart_static.a")}


def install(site: Path, packages: Packages) -> None:
    """What pip leaves of packages with these files."""
    for name, files in packages.items():
        info = site / f"{name.replace('-', '_')}-13.2.86.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 13.2.86\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        for file in files:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).write_bytes(file.encode())
            (site / file).chmod(0o755)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of its own, in which nothing is on PATH."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr("sys.path", [str(site)])
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return site


@pytest.mark.parametrize("there", [{}, NCCL, COMPILER, RUNTIME | NCCL])
def test_without_the_compiler_or_nccl_there_is_no_cuda(site: Path, there: Packages) -> None:
    install(site, there)
    assert cuda_packages.find_cuda_packages() is None


def test_the_build_finds_libraries_under_the_names_that_linkers_use(site: Path, tmp_path: Path) -> None:
    install(site, COMPILER | NCCL | RUNTIME)
    packages = cuda_packages.find_cuda_packages()
    assert packages is not None

    links = tmp_path / "links"
    environment = packages.environment(links, path="/usr/bin")
    packages.environment(links, path="/usr/bin")  # a tree that is kept has them already

    assert environment["PATH"] == f"{site}/nvidia/cu13/bin{os.pathsep}/usr/bin"
    assert environment["HOROVOD_CUDA_HOME"] == f"{site}/nvidia/cu13"
    assert environment["HOROVOD_NCCL_INCLUDE"] == f"{site}/nvidia/nccl/include"
    assert environment["HOROVOD_NCCL_LINK"] == "SHARED"
    assert {link.name: str(link.resolve().relative_to(site)) for link in links.iterdir()} == {
        "libcudart.so": "nvidia/cu13/lib/libcudart.so.13",
        "libcudart_static.a": "nvidia/cu13/lib/libcudart_static.a",
        "libnccl.so": "nvidia/nccl/lib/libnccl.so.2",
    }


def test_a_compiler_of_the_index_makes_it_a_build_with_nccl(site: Path) -> None:
    torch: Packages = {"torch": ("torch/version.py",)}
    install(site, torch | NCCL | RUNTIME)
    assert not wheel_build.read_recipe().cuda

    install(site, COMPILER)
    recipe = wheel_build.read_recipe()

    assert recipe.cuda
    assert not [line for line in wheel_build.missing_tools(recipe) if "NCCL" in line]


def test_a_compiler_on_path_comes_first(site: Path, tmp_path: Path) -> None:
    """Somebody put it there; then NCCL must be where that CUDA has it."""
    install(site, COMPILER | NCCL | RUNTIME | {"torch": ("torch/version.py",)})
    other = tmp_path / "nothing" / "nvcc"
    other.parent.mkdir()
    other.touch(mode=0o755)

    missing = wheel_build.missing_tools(wheel_build.read_recipe())

    assert any("NCCL's headers" in line for line in missing)
