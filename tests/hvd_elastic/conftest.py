from pathlib import Path

import pytest

from tests.hvd_elastic.worker.pods import Yard, make_yard


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return make_yard(tmp_path)
