"""What the repository's own programs fetch from the package index is taken by its hash, or not at all.

Each is run whole, against an index of one wheel that has the right name and version and is another file.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hvd_elastic.horovod import wheel_build
from hvd_elastic.horovod.wheel_build import HorovodBuildError, Sources

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("SBOM_TOOLS") or Path(sys.executable).parent)
LOCKED = {package["name"]: package["version"] for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a checkout as the programs read. It has all that they ask of the system."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "tools", folder / "tools")
    for name in ("pyproject.toml", "uv.lock", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (folder / "CHANGELOG.md").write_text(f"## {version}\n")
    (folder / "hvd_elastic").mkdir()
    (folder / "hvd_elastic" / "__init__.py").touch()
    (folder / "tools" / "need.sh").write_text("")
    return folder


def index_of(folder: Path, *packages: str) -> dict[str, str]:
    """The environment of a process for which these, such as `uv==1.2`, are all that there is to fetch."""
    folder.mkdir()
    for package in packages:
        name, version = package.split("==")
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    by_pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    by_uv = {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(folder), "UV_CACHE_DIR": f"{folder}-cache"}
    return {**os.environ, **by_pip, **by_uv}


def sh(*command: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", *command], cwd=folder, env=environment, text=True, capture_output=True, check=False, timeout=240
    )


@pytest.mark.process
def test_setup_takes_the_locked_uv_alone(checkout: Path, tmp_path: Path) -> None:
    environment = index_of(tmp_path / "index", f"uv=={LOCKED['uv']}") | {"PYTHON": sys.executable}

    done = sh("tools/setup.sh", str(tmp_path / "venv"), environment=environment, folder=checkout)

    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not list((tmp_path / "venv").glob("lib/python*/site-packages/uv-*"))


@pytest.mark.core
@pytest.mark.process
def test_a_release_is_built_by_the_locked_hatchling_alone(checkout: Path, tmp_path: Path) -> None:
    environment = index_of(tmp_path / "index", f"hatchling=={LOCKED['hatchling']}")
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "uv").symlink_to(TOOLS / "uv")
    (venv / "python").symlink_to(sys.executable)

    done = sh("tools/release.sh", str(tmp_path / "venv"), environment=environment, folder=checkout)

    assert done.returncode != 0
    assert "Hash mismatch for `hatchling" in done.stderr
    assert not list(checkout.glob("dist/hvd_elastic*"))


@pytest.mark.core
@pytest.mark.process
def test_horovod_is_built_by_the_pinned_tools_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in index_of(tmp_path / "index", *wheel_build.build_tools()).items():
        monkeypatch.setenv(name, value)
    sources = Sources.of_cache(tmp_path / "cache", progress=lambda _: None)

    with pytest.raises(HorovodBuildError, match="DO NOT MATCH THE HASHES"):
        sources.fetch()

    assert not sources.tools.exists()


def test_the_pinned_tools_are_those_that_horovod_wants() -> None:
    pinned = dict(tool.split("==") for tool in wheel_build.build_tools())
    lines = wheel_build.BUILD_TOOLS.with_suffix(".in").read_text().splitlines()
    wanted = [Requirement(line.partition(" #")[0]) for line in lines if not line.startswith("#")]
    assert {each.name for each in wanted} == pinned.keys()  # what one of them needs in turn would be among the pinned
    assert [each for each in wanted if pinned[each.name] not in each.specifier] == []
    for block in re.split(r"(?m)^(?=\w)", wheel_build.BUILD_TOOLS.read_text())[1:]:
        assert re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", block)


@pytest.mark.parametrize("file", ["Dockerfile", "tools/setup.sh", "tools/release.sh", "tools/nccl.sh"])
def test_nothing_is_installed_without_a_hash(file: str) -> None:
    """Wheels that were made a step before are taken with --offline. `uv sync` has the hashes of the lock file."""
    text = (ROOT / file).read_text().replace("\\\n", " ")
    installing = [line for line in text.splitlines() if re.search(r"pip\"? install", line)]
    syncing = [line for line in text.splitlines() if re.search(r"uv\"? sync", line)]
    assert installing + syncing
    assert [line for line in installing if not re.search("--require-hashes|--offline", line)] == []
    assert [line for line in syncing if "--frozen" not in line or "--no-build-isolation-package" not in line] == []
