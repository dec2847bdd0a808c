"""What the Dockerfile runs, as far as it can be run without an image."""

import hashlib
import http.server
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import threading
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hvd_elastic.worker.test_efa_libraries import build as build_library

ROOT = Path(__file__).parents[2]
DAY, ARCHIVE = "20260918T000000Z", "http://snapshot.debian.org/archive"
DEBIAN = Path("/etc/debian_version")


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "docker" / script), *arguments]
    return subprocess.run(command, env=os.environ | environment, text=True, capture_output=True, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root folder of a Debian as its image has it."""
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list.d/debian.sources").write_text("Types: deb\nURIs: http://deb.debian.org/debian\n")
    (tmp_path / "etc/os-release").write_text('ID=debian\nVERSION_CODENAME=trixie\nPRETTY_NAME="Debian 13"\n')
    return tmp_path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address of a server of what is in it."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def apt_update(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What the real apt does with the sources of `root`."""
    lists = root / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::Etc::sourcelist": root / "etc/apt/sources.list",
        "Dir::Etc::sourceparts": root / "etc/apt/sources.list.d",
        "Dir::State::lists": lists,
        "APT::Architectures": "amd64",
        "APT::Sandbox::User": "",  # or it drops root's rights, and with them the folder of a test
    }
    command = ["apt-get", "update", *options, *(f"-o{name}={value}" for name, value in settings.items())]
    environment = os.environ | {"LC_ALL": "C", "no_proxy": "127.0.0.1"}
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def uris(root: Path) -> set[str]:
    """The releases that apt would fetch."""
    return set(re.findall(r"'(\S+)/InRelease'", apt_update(root, "--print-uris").stdout))


@pytest.mark.skipif(not DEBIAN.exists(), reason="asks Debian's apt")
def test_apt_takes_the_packages_of_one_day(root: Path) -> None:
    assert run("debian-snapshot", DAY, ARCHIVE, ROOT=str(root)).returncode == 0
    assert uris(root) == {
        f"{ARCHIVE}/debian/{DAY}/dists/trixie",
        f"{ARCHIVE}/debian/{DAY}/dists/trixie-updates",
        f"{ARCHIVE}/debian-security/{DAY}/dists/trixie-security",
    }


@pytest.mark.skipif(not DEBIAN.exists(), reason="asks Debian's apt")
def test_apt_takes_nothing_that_debian_did_not_sign(root: Path, served: tuple[Path, str]) -> None:
    """The archive is asked over plain HTTP: slim Debian has no certificates. Signature and hashes are the check."""
    folder, site = served
    for archive, suite in [("debian", "trixie"), ("debian", "trixie-updates"), ("debian-security", "trixie-security")]:
        release = folder / archive / DAY / "dists" / suite / "Release"
        packages = release.parent / "main/binary-amd64/Packages"
        packages.parent.mkdir(parents=True)
        packages.write_text(
            "Package: openssh-server\nVersion: 666\nArchitecture: all\nFilename: pool/it.deb\nSize: 1\n"
        )
        digest = hashlib.sha256(packages.read_bytes()).hexdigest()
        listed = f"{digest} {packages.stat().st_size} {packages.relative_to(release.parent)}"
        date = "Fri, 18 Sep 2026 00:00:00 UTC"
        release.write_text(f"Suite: {suite}\nCodename: {suite}\nDate: {date}\nSHA256:\n {listed}\n")
    run("debian-snapshot", DAY, site, ROOT=str(root))
    sources = root / "etc/apt/sources.list.d/debian.sources"

    refused = apt_update(root)
    kept = list(root.glob("lists/*Packages*"))
    sources.write_text(re.sub("Signed-By: .*", "Trusted: yes", sources.read_text()))
    trusted = apt_update(root)

    assert refused.returncode != 0
    assert refused.stderr.count("is not signed") == 3
    assert kept == []
    assert trusted.returncode == 0, trusted.stderr
    assert len(list(root.glob("lists/*Packages*"))) == 3


def test_without_a_day_the_sources_stay(root: Path) -> None:
    before = (root / "etc/apt/sources.list.d/debian.sources").read_text()
    assert run("debian-snapshot", "", ARCHIVE, ROOT=str(root)).returncode == 0
    assert (root / "etc/apt/sources.list.d/debian.sources").read_text() == before


def test_a_day_of_debian_is_refused_on_another_system(root: Path) -> None:
    (root / "etc/os-release").write_text('ID=ubuntu\nVERSION_CODENAME=noble\nPRETTY_NAME="Ubuntu 24.04"\n')
    done = run("debian-snapshot", DAY, ARCHIVE, ROOT=str(root))
    assert done.returncode == 2
    assert "BASE is Ubuntu 24.04: --build-arg SNAPSHOT= keeps its own sources" in done.stderr


@pytest.mark.parametrize("day", ["yesterday", "2026-09-18", "20260918"])
def test_a_day_has_one_form(root: Path, day: str) -> None:
    done = run("debian-snapshot", day, ARCHIVE, ROOT=str(root))
    assert done.returncode == 2
    assert f"SNAPSHOT={day}" in done.stderr


def test_no_network_but_those_that_are_known() -> None:
    assert run("install-network", "tcp").returncode == 0
    done = run("install-network", "ib")
    assert (done.returncode, done.stderr) == (2, "NETWORK=ib: there is tcp and efa\n")


@pytest.fixture
def site(tmp_path: Path, served: tuple[Path, str]) -> str:
    """A site that has an installer, which leaves a file where it ran."""
    served_folder, address = served
    folder = tmp_path / "aws-efa-installer"
    folder.mkdir()
    script = folder / "efa_installer.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    with tarfile.open(served_folder / "aws-efa-installer-9.9.9.tar.gz", "w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return address


def test_an_installer_with_another_checksum_is_not_run(site: str, tmp_path: Path) -> None:
    right = hashlib.sha256((tmp_path / "served" / "aws-efa-installer-9.9.9.tar.gz").read_bytes()).hexdigest()
    done = run("install-network", "efa", "9.9.9", "0" * 64, EFA_SITE=site)
    assert right != "0" * 64
    assert done.returncode == 1
    assert "aws-efa-installer-9.9.9.tar.gz is not the file that EFA_INSTALLER_SHA256 names" in done.stderr
    assert not (tmp_path / "ran").exists()


IN_A_COPY = """\
set -eu
mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --bind /dev "$1/root/dev"
printf '#!/bin/sh\\n' >"$1/root/usr/local/sbin/apt-get" && chmod 755 "$1/root/usr/local/sbin/apt-get"
cd "$1/root" && shift && exec chroot . "$@"
"""
"""Runs a command on a copy of this machine's files, which goes with it and has an apt-get that does nothing."""

INSTALLER = """\
#!/bin/sh
set -eu
test "$*" = "-y --skip-kmod --skip-limit-conf --no-verify --skip-mpi"
mkdir -p /opt/amazon/efa/lib /opt/amazon/ofi-nccl/lib
cp libfabric.so.1 /opt/amazon/efa/lib/
cp libnccl-net*.so /opt/amazon/ofi-nccl/lib/
"""


@pytest.mark.skipif(os.geteuid() != 0 or not DEBIAN.exists(), reason="mounts, and asks Debian's linker")
@pytest.mark.parametrize("plugin", ["libnccl-net.so", "libnccl-net-ofi.so"])
def test_the_linker_finds_what_the_installer_leaves(site: str, tmp_path: Path, plugin: str) -> None:
    """In NVIDIA's images, and what it takes for one, the installer leaves the plugin under its second name alone."""
    folder, copy = tmp_path / "aws-efa-installer", tmp_path / "copy"
    for name in ("libfabric.so.1", plugin):
        build_library(folder, name)
    (folder / "efa_installer.sh").write_text(INSTALLER)
    archive = tmp_path / "served" / "aws-efa-installer-9.9.9.tar.gz"
    with tarfile.open(archive, "w:gz") as written:
        written.add(folder, arcname=folder.name)
    copy.mkdir()
    loaded = "import ctypes; [ctypes.CDLL(name) for name in ('libfabric.so.1', 'libnccl-net.so')]"
    loaded += "; print(*sorted({line.split()[-1] for line in open('/proc/self/maps') if '/opt/amazon' in line}))"
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    install = f"{ROOT}/docker/install-network efa 9.9.9 {checksum} >&2"
    script = f"{install} && mount -t proc none /proc && python3 -c {shlex.quote(loaded)}"

    command = ["unshare", "--mount", "sh", "-c", IN_A_COPY, "sh", str(copy), "sh", "-c", script]
    done = subprocess.run(command, env=os.environ | {"EFA_SITE": site}, text=True, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"/opt/amazon/efa/lib/libfabric.so.1 /opt/amazon/ofi-nccl/lib/{plugin}\n"


def test_the_dockerfile_pins_what_it_starts_from() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert re.search(r"^ARG SNAPSHOT=\d{8}T\d{6}Z$", text, re.MULTILINE)
    assert re.search(r"^ARG EFA_INSTALLER_SHA256=[0-9a-f]{64}$", text, re.MULTILINE)


def test_the_dockerfile_takes_the_locked_uv() -> None:
    """It needs uv to read the lock file, so it says the version and the hashes again."""
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    uv = next(package for package in locked if package["name"] == "uv")
    words = re.search(r"'uv==(\S+) (?:.*\n)((?:\s+[0-9a-f]{64}.*\n)+)", (ROOT / "Dockerfile").read_text())
    assert words is not None
    assert words[1] == uv["version"]
    hashes = {wheel["hash"]: wheel["url"] for wheel in uv["wheels"]}
    named = [hashes[f"sha256:{one}"] for one in re.findall(r"[0-9a-f]{64}", words[2])]
    assert [re.search(r"manylinux.*(x86_64|aarch64)", url) is not None for url in named] == [True, True]


def test_nvidias_compiler_is_that_of_torchs_cuda() -> None:
    """One release of CUDA: `cuda-toolkit` is in the lock file once, and the compiler has the version of the runtime."""
    versions: dict[str, set[str]] = {}
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        versions.setdefault(package["name"], set()).add(package["version"])
    assert len(versions["cuda-toolkit"]) == 1
    assert versions["nvidia-cuda-nvcc"] == versions["nvidia-nvvm"] == versions["nvidia-cuda-runtime"]


@pytest.mark.process
@pytest.mark.skipif(not DEBIAN.exists(), reason="lists Debian's packages")
def test_the_bill_of_materials_names_what_is_installed(tmp_path: Path) -> None:
    """The tools are in the development environment, as they are in the image's build."""
    tools = Path(os.environ.get("SBOM_TOOLS") or Path(sys.executable).parent)
    bill = tmp_path / "doc" / "sbom.cdx.json"
    root = _debian_with(tmp_path / "root", packages=("dpkg", "openssh-client", "libc6"))
    python = _environment_with(tmp_path / "environment", {"torch": "2.15.0", "horovod": "0.28.1+hvdelastic.1"})

    done = run("sbom", str(python), str(ROOT / "pyproject.toml"), str(bill), TOOLS=str(tools), ROOT=str(root))

    assert done.returncode == 0, done.stderr
    listed = {(part["name"], part["version"]) for part in json.loads(bill.read_text())["components"]}
    assert {("torch", "2.15.0"), ("horovod", "0.28.1+hvdelastic.1")} <= listed
    assert {(name, _debian_version(name)) for name in ("dpkg", "openssh-client", "libc6")} <= listed
    assert ("hvd-elastic", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]) in listed


def _environment_with(folder: Path, packages: dict[str, str]) -> Path:
    """The interpreter of a Python environment that has these packages, as far as their metadata goes."""
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    for name, version in packages.items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder / "bin" / "python"


def _debian_with(root: Path, *, packages: tuple[str, ...]) -> Path:
    """A root folder with these packages of this machine's: a developer's has thousands."""
    (root / "etc").mkdir(parents=True)
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "etc/os-release").write_text(Path("/etc/os-release").read_text())
    status = subprocess.run(["dpkg-query", "--status", *packages], text=True, capture_output=True, check=True).stdout
    (root / "var/lib/dpkg/status").write_text(status)
    return root


def _debian_version(package: str) -> str:
    query = ["dpkg-query", "--show", "--showformat=${Version}", package]
    return subprocess.run(query, text=True, capture_output=True, check=True).stdout
