"""What its environment tells a process of its world before anything of Horovod is imported: engine, and launcher."""

import os
from typing import Final

from hvd_elastic.mpijob.contract import ENV_ENGINE, ENV_RENDEZVOUS_ADDRESS, Engine, Exit, HvdElasticError


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


def has_server() -> bool:
    """Whether a launcher has given this process a rendezvous server: a standby learns of it when it is adopted."""
    return ENV_RENDEZVOUS_ADDRESS in os.environ
