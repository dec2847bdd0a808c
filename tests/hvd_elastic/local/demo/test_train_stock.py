import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


def test_the_stock_script_runs_horovod_as_it_ships() -> None:
    """Up to `hvd.init()`: importing this package must not have changed Horovod, which the script is to show."""
    spec = find_spec("hvd_elastic.local.demo.train_stock")
    assert spec is not None
    assert spec.origin is not None
    imports = Path(spec.origin).read_text(encoding="utf-8").partition("parser = ")[0]

    code = f"{imports}\nprint(hvd.init.__module__, hvd.elastic.run.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout.split() == ["horovod.torch.mpi_ops", "horovod.torch.elastic"]
