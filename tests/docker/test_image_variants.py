"""The image without Horovod, the one for GPUs, and the one for Elastic Fabric Adapters, too: built whole, on a machine
that has neither.

Horovod is compiled in its stage, once for both. AWS's installer cannot be fetched by everyone, so one of ours leaves
libraries where that leaves its own. With EFA_SITE set, AWS's comes from there: in the version that the Dockerfile
names, or the one of EFA_INSTALLER and EFA_INSTALLER_SHA256.
"""

import functools
import hashlib
import http.server
import os
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from testbed.kube import buildah, host, images
from testbed.kube.buildah import Container
from testbed.kube.errors import ClusterError
from tests.hvd_elastic.worker.test_efa_libraries import build as build_library

# The first test compiles Horovod.
pytestmark = [pytest.mark.image, pytest.mark.timeout(7200)]

AWS: Final = {
    name: os.environ[name] for name in ("EFA_SITE", "EFA_INSTALLER", "EFA_INSTALLER_SHA256") if name in os.environ
}
needs_aws = pytest.mark.skipif("EFA_SITE" not in AWS, reason="EFA_SITE names no site that has AWS's installer")

INSTALLER: Final = """\
#!/bin/sh
# Leaves what AWS's leaves: its libfabric, and the plugin under the name that it has in NVIDIA's images.
set -eu
test "$*" = "-y --skip-kmod --skip-limit-conf --no-verify --skip-mpi"
mkdir -p /opt/amazon/efa/lib /opt/amazon/ofi-nccl/lib
cp libfabric.so.1 /opt/amazon/efa/lib/
cp libnccl-net-ofi.so /opt/amazon/ofi-nccl/lib/
"""


@pytest.fixture(scope="module")
def torch() -> Iterator[Container]:
    host.require_builders()
    with buildah.container(images.build_variant("torch", {"ENGINE": "torch"})) as opened:
        yield opened


@pytest.fixture(scope="module")
def cuda() -> Iterator[Container]:
    host.require_builders()
    with buildah.container(images.build_variant("cuda", {"ACCELERATOR": "cuda"})) as opened:
        yield opened


@pytest.fixture(scope="module")
def efa(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    host.require_builders()
    with installer(tmp_path_factory.mktemp("site")) as arguments:
        image = images.build_variant("cuda-efa", {"ACCELERATOR": "cuda", "NETWORK": "efa", **arguments})
    with buildah.container(image) as opened:
        yield opened
    buildah.call("rmi", image)  # another run has another site, and would take none of its layers


@pytest.fixture(params=["cuda", "efa"])
def variant(request: pytest.FixtureRequest) -> Container:
    opened: Container = request.getfixturevalue(request.param)
    return opened


def test_without_horovod_two_workers_train_over_torch(torch: Container) -> None:
    assert "No module named 'horovod'" in torch.shell("python -c 'import horovod' 2>&1; true")
    assert torch.shell('grep -ic \'"name": "horovod"\' /usr/share/doc/hvd-elastic/sbom.cdx.json; true') == "0\n"
    assert torch.shell("command -v cc1plus g++ make; true") == ""
    said = torch.shell("hvd-elastic run --workers 2 -- python examples/digits_ddp.py --epochs 2")
    accuracies = [float(line.split()[-1]) for line in said.splitlines() if "accuracy" in line]
    assert len(accuracies) == 4, said
    assert min(accuracies[2:]) > 0.6


def test_horovod_has_nccl_beside_gloo(cuda: Container) -> None:
    program = "import torch, horovod.torch as hvd; print(hvd.nccl_built() > 0, hvd.gloo_built(), hvd.mpi_built())"
    assert cuda.shell(f"python -c '{program}'") == "True True False\n"
    said = cuda.shell("horovodrun --check-build")
    for line in ("[X] PyTorch", "[X] Gloo", "[X] NCCL", "[ ] MPI"):
        assert line in said


@pytest.mark.parametrize("launcher", ["horovodrun -np 2", "hvd-elastic run --workers 2 --"])
def test_two_workers_train_over_gloo_where_there_is_no_gpu(variant: Container, launcher: str) -> None:
    """So it does on a machine without a driver, and beside the adapters' libraries."""
    said = variant.shell(f"{launcher} python examples/digits_elastic.py --epochs 2")
    accuracies = [float(line.split()[-1]) for line in said.splitlines() if "accuracy" in line]
    assert len(accuracies) == 4, said
    assert min(accuracies[2:]) > 0.6


def test_the_compiler_and_its_log_stay_behind(cuda: Container) -> None:
    assert cuda.shell("find / -xdev \\( -name nvcc -o -name cc1plus \\) -print 2>/dev/null; true") == ""
    assert {Path(file).suffix for file in cuda.shell("find /opt/wheels -type f").split()} == {".whl"}


def test_the_linker_takes_awss_libraries(efa: Container) -> None:
    """Debian's Open MPI brings a libfabric, too."""
    program = """import ctypes, re
for name in ("libfabric.so.1", "libnccl-net.so"):
    ctypes.CDLL(name)
print(*sorted(set(re.findall(r"/\\S+/lib(?:fabric|nccl-net)\\S*", open("/proc/self/maps").read()))))"""
    loaded = efa.shell(f"env --ignore-environment /opt/hvd-elastic/bin/python - <<'EOF'\n{program}\nEOF").split()
    assert len(loaded) == 2
    assert loaded[0].startswith("/opt/amazon/efa/lib/libfabric.so.1")
    assert loaded[1].startswith("/opt/amazon/ofi-nccl/")


def test_a_worker_with_adapters_starts_in_its_image_alone(efa: Container, cuda: Container) -> None:
    program = "import os; from hvd_elastic.worker import efa_libraries as efa; efa.require(32, os.environ)"
    efa.shell(f"python -c '{program}'")
    with pytest.raises(ClusterError, match=r"this image lacks .*libnccl-net\.so \(aws-ofi-nccl\)"):
        cuda.shell(f"python -c '{program}'")


@needs_aws
def test_torchs_nccl_accepts_the_plugin(efa: Container) -> None:
    """NCCL looks for the symbols that it knows, from the newest on. Without a GPU it does not get so far."""
    program = """import ctypes, os, pathlib, re, nvidia.nccl, torch
said = (pathlib.Path(nvidia.nccl.__path__[0]) / "lib/libnccl.so.2").read_bytes()
known = {int(number) for number in re.findall(rb"ncclNetPlugin_v(\\d+)", said)}
plugin = ctypes.CDLL("libnccl-net.so", mode=os.RTLD_NOW)  # every symbol is resolved
print(max(known), max(number for number in known if hasattr(plugin, f"ncclNetPlugin_v{number}")))"""
    newest, accepted = efa.shell(f"python - <<'EOF'\n{program}\nEOF").split()
    assert newest == accepted


@needs_aws
def test_libfabric_tells_of_its_providers(efa: Container) -> None:
    assert "efa" in efa.shell("/opt/amazon/efa/bin/fi_info --list")


@contextmanager
def installer(folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield the build arguments that name an installer."""
    if AWS:
        yield AWS
        return
    archive = _pack(folder / "aws-efa-installer")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "EFA_SITE": f"http://127.0.0.1:{server.server_port}",
            "EFA_INSTALLER": "0.0.0",
            "EFA_INSTALLER_SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        }
        server.shutdown()


def _pack(folder: Path) -> Path:
    """Make the archive of an installer beside `folder`, with libraries that hold nothing."""
    folder.mkdir()
    fabric = build_library(folder, "libfabric.so.1")
    build_library(folder, "libnccl-net-ofi.so", needs=fabric)
    (folder / "efa_installer.sh").write_text(INSTALLER)
    (folder / "efa_installer.sh").chmod(0o755)
    archive = folder.with_name("aws-efa-installer-0.0.0.tar.gz")
    with tarfile.open(archive, "w:gz") as written:
        written.add(folder, arcname=folder.name)
    return archive
