"""Libraries that the real linker loads, or does not find."""

import os
import subprocess
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_EFA
from hvd_elastic.worker import efa_libraries
from hvd_elastic.worker.efa_libraries import MissingEfaError
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Yard
from tests.hvd_elastic.worker.test_adoption import WAITER

FABRIC, PLUGIN = "libfabric.so.1", "libnccl-net.so"


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the linker looks."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.delenv("NCCL_NET_PLUGIN", raising=False)
    return folder


def build(folder: Path, name: str, *, needs: Path | None = None) -> Path:
    """An empty library, which needs another one."""
    library, linked = folder / name, [str(needs), "-Wl,--no-as-needed"] if needs else []
    command = ["g++", "-shared", "-x", "c++", "/dev/null", "-x", "none", *reversed(linked), f"-Wl,-soname,{name}"]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


@pytest.mark.process
def test_an_image_with_both_starts(libraries: Path) -> None:
    build(libraries, FABRIC)
    build(libraries, PLUGIN)
    efa_libraries.require(4, os.environ)


@pytest.mark.process
@pytest.mark.parametrize("there", [(), (FABRIC,), (PLUGIN,)])
def test_every_missing_library_is_named_with_the_way_out(libraries: Path, there: tuple[str, ...]) -> None:
    for name in there:
        build(libraries, name)

    with pytest.raises(MissingEfaError) as raised:
        efa_libraries.require(32, os.environ)

    message = str(raised.value)
    assert [name in message for name in (FABRIC, PLUGIN)] == [name not in there for name in (FABRIC, PLUGIN)]
    assert "workers.efa is 32" in message
    assert "NETWORK=efa" in message
    assert raised.value.exit_code == 2


@pytest.mark.process
@pytest.mark.parametrize("chosen", ["ofi", "/the/libnccl-net-ofi.so", "other,ofi"])
def test_the_plugin_is_the_one_that_nccl_would_open(
    libraries: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    build(libraries, FABRIC)
    plugin = build(libraries, "libnccl-net-ofi.so")
    with pytest.raises(MissingEfaError, match=PLUGIN):
        efa_libraries.require(4, os.environ)

    monkeypatch.setenv("NCCL_NET_PLUGIN", chosen.replace("/the/libnccl-net-ofi.so", str(plugin)))
    efa_libraries.require(4, os.environ)


@pytest.mark.process
def test_a_plugin_that_needs_what_torch_brings_is_there(libraries: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(libraries, FABRIC)
    cuda = build(libraries, "libcudart.so.13")
    build(libraries, PLUGIN, needs=cuda)
    cuda.unlink()

    efa_libraries.require(4, os.environ)

    assert "libcudart.so.13" in caplog.text


@pytest.mark.process
def test_a_worker_without_them_does_not_start(yard: Yard, libraries: Path) -> None:
    yard.write(WAITER)
    with yard.pod(env={ENV_EFA: "4", "LD_LIBRARY_PATH": str(libraries)}) as pod:
        assert pod.process.wait(DEADLINE_SECONDS) == 2
        assert "this image lacks libfabric.so.1 (libfabric) and libnccl-net.so (aws-ofi-nccl)" in pod.log_text


@pytest.mark.core
@pytest.mark.process
def test_a_worker_with_them_becomes_ready(yard: Yard, libraries: Path) -> None:
    yard.write(WAITER)
    for name in (FABRIC, PLUGIN):
        build(libraries, name)
    with yard.pod(env={ENV_EFA: "4", "LD_LIBRARY_PATH": str(libraries)}) as pod:
        pod.ready()


@pytest.mark.process
def test_adapters_are_a_number(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(env={ENV_EFA: "many"}) as pod:
        assert pod.process.wait(DEADLINE_SECONDS) == 2
        assert f"{ENV_EFA}: 'many' is not a whole number" in pod.log_text
