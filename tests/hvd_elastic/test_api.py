import subprocess
import sys

import pytest

import hvd_elastic
from hvd_elastic import trainer


def test_the_public_names() -> None:
    assert hvd_elastic.__all__ == ["State", "Trainer", "init", "run"]
    for name in hvd_elastic.__all__:
        assert callable(getattr(hvd_elastic, name))
        assert name in dir(hvd_elastic)
    for name in trainer.__all__:
        assert callable(getattr(trainer, name))


def test_an_unknown_name_is_said_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'hvd_elastic' has no attribute 'Stat'"):
        _ = hvd_elastic.Stat


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, hvd_elastic, trainer; print(*{'torch', 'horovod', 'numpy', 'boto3'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == ""


def test_horovod_is_cured_where_it_is_there_already() -> None:
    code = (
        "import horovod.torch as hvd, hvd_elastic, hvd_elastic.trainer.elastic.run; "
        "print(getattr(hvd.init, 'patched', False), hvd.elastic.run is hvd_elastic.trainer.elastic.run.run)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True True"
