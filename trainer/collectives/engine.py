"""With which engine this process trains: chosen once, by its environment, before anything of Horovod is imported."""

import os
from typing import Final

from hvd_elastic.mpijob.contract import ENV_ENGINE, Engine, Exit, HvdElasticError


class EngineError(HvdElasticError):
    """There is no such engine, or it cannot do what is asked of it."""

    exit_code = Exit.SCRIPT_MISTAKE


def _engine() -> Engine:
    word = os.environ.get(ENV_ENGINE) or Engine.HOROVOD
    try:
        return Engine(word)
    except ValueError as error:
        raise EngineError(f"{ENV_ENGINE}={word}: it is {' or '.join(Engine)}") from error


ENGINE: Final = _engine()
IS_TORCH: Final = ENGINE is Engine.TORCH
