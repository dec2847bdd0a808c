"""GPU figures through the real pynvml, over a stand-in for the driver: no GPU is needed, and none is tested."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "fake_nvml.c"
READ = """
import dataclasses, json, sys
from hvd_elastic.trainer.telemetry.gpu_figures import Gpus
index = int(sys.argv[1]) if sys.argv[1] else None
print(json.dumps([dataclasses.asdict(figures) for figures in Gpus().read(index)]))
"""
WHOLE = {
    "uuid": "GPU-11111111-aaaa",
    "utilization": 0.75,
    "memory_used_bytes": 3 << 30,
    "memory_total_bytes": 80 << 30,
    "memory_utilization": 0.0,
    "temperature_celsius": 61,
    "power_watts": 123.5,
}
SLICE = WHOLE | {
    "uuid": "MIG-22222222-bbbb",
    "utilization": None,
    "memory_total_bytes": 10 << 30,
    "memory_utilization": None,
    "power_watts": None,
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the library."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py, of the extra `train`, is not installed")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    library = str(folder / "libnvidia-ml.so.1")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    return folder


def read(driver: Path, *, visible: str | None = None, index: str = "") -> Any:
    environ = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environ["LD_LIBRARY_PATH"] = str(driver)
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible
    done = subprocess.run(
        [sys.executable, "-c", READ, index], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.core
@pytest.mark.process
def test_what_the_driver_says_of_each_gpu(driver: Path) -> None:
    assert read(driver) == [WHOLE, SLICE]


@pytest.mark.core
@pytest.mark.process
@pytest.mark.parametrize(
    ("visible", "index", "expected"),
    [
        ("1", "", [SLICE]),
        ("MIG-22222222-bbbb,GPU-11111111-aaaa", "", [SLICE, WHOLE]),
        ("1,0", "1", [WHOLE]),
        (None, "1", [SLICE]),
        (None, "2", []),
        ("GPU-of-another-machine", "", []),
    ],
)
def test_only_those_of_this_process(driver: Path, visible: str | None, index: str, expected: list[Any]) -> None:
    assert read(driver, visible=visible, index=index) == expected


@pytest.mark.core
@pytest.mark.process
def test_without_a_driver_there_are_none(driver: Path, tmp_path: Path) -> None:
    assert read(tmp_path) == []
