import os
import subprocess
from pathlib import Path

import pytest

from testbed.debian_programs import needed_go
from tests.hvd_elastic.worker.pods import Yard, make_yard
from tests.mpijob.modules import cache_folder

KUSTOMIZE = "v5.7.1"
"""The release that kubectl 1.34 has in it."""


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return make_yard(tmp_path)


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """The program, built once from its Go module and kept outside the checkout."""
    kept = cache_folder() / "sigs.k8s.io_kustomize_kustomize_v5" / KUSTOMIZE / "kustomize"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        install = [needed_go(), "install", f"sigs.k8s.io/kustomize/kustomize/v5@{KUSTOMIZE}"]
        environment = os.environ | {"GOBIN": str(kept.parent)}
        done = subprocess.run(
            install, cwd="/", env=environment, capture_output=True, text=True, timeout=840, check=False
        )
        if done.returncode:
            pytest.skip(f"kustomize cannot be built: {done.stderr}")
    return kept
