"""The settings of a worker's entry point, from the pod's environment."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

from hvd_elastic.mpijob.contract import (
    ENV_COMPILER,
    ENV_EFA,
    ENV_GRACE_SECONDS,
    ENV_LAUNCHER_SECONDS,
    ENV_POD_UID,
    ENV_READY_ADDRESS,
    ENV_RUN_DIR,
    ENV_SLOTS,
    ENV_STANDBY,
    ENV_TENSORBOARD,
    ENV_TENSORBOARD_COPY,
    RUN_DIR,
    SSH_KEY,
    CompilerImport,
    Exit,
    HvdElasticError,
    Standby,
)

_Value = TypeVar("_Value")

_GRACE_SECONDS: Final = 30.0
"""Kubernetes' default of terminationGracePeriodSeconds."""

_SLOTS_LIMIT: Final = 1024


class BadEnvironmentError(HvdElasticError):
    """The pod's environment holds values that the entry point cannot use. The message lists all of them."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """How the entry point runs. Read once, at the start."""

    run_dir: Path
    ready_address: str | None
    """None: all interfaces."""

    slots: int
    standby: Standby
    grace_seconds: float
    ssh_key: Path
    """The job's own; it need not exist."""

    launcher_seconds: float
    """How long it waits for a launcher, or for news of one."""

    compiler: CompilerImport = CompilerImport.LATER
    """It is read again by the processes that it concerns, which have this environment."""

    efa: int = 0
    """Elastic Fabric Adapters that the job asked for."""

    pod_uid: str = ""
    """Empty: the pod's address tells it from others."""

    events: tuple[Path, Path] | None = None
    """The folder of TensorBoard events, and where they are copied to. None: they are kept where they are written."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Read the variables of `hvd_elastic.mpijob.contract`. Raises BadEnvironmentError with every problem."""
        reader = _Reader(environment)
        settings = cls(
            run_dir=Path(environment.get(ENV_RUN_DIR) or RUN_DIR).absolute(),
            ready_address=environment.get(ENV_READY_ADDRESS) or None,
            ssh_key=Path(environment.get("HOME") or "/") / SSH_KEY,
            slots=reader.value(ENV_SLOTS, 1, _slots, f"a whole number from 1 to {_SLOTS_LIMIT}"),
            standby=reader.value(ENV_STANDBY, Standby.INIT, Standby, ", ".join(Standby)),
            grace_seconds=reader.value(ENV_GRACE_SECONDS, _GRACE_SECONDS, _seconds, "a number of seconds, 0 or more"),
            compiler=reader.value(ENV_COMPILER, CompilerImport.LATER, CompilerImport, ", ".join(CompilerImport)),
            efa=reader.value(ENV_EFA, 0, _adapters, "a whole number, 0 or more"),
            pod_uid=environment.get(ENV_POD_UID, ""),
            events=_events(environment),
            launcher_seconds=reader.value(ENV_LAUNCHER_SECONDS, math.inf, _seconds, "a number of seconds, 0 or more"),
        )
        if reader.problems:
            raise BadEnvironmentError("\n".join(reader.problems))
        return settings


def _events(environment: Mapping[str, str]) -> tuple[Path, Path] | None:
    source, target = environment.get(ENV_TENSORBOARD), environment.get(ENV_TENSORBOARD_COPY)
    return (Path(source), Path(target)) if source and target else None


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def value(self, name: str, default: _Value, parse: Callable[[str], _Value], meaning: str) -> _Value:
        text = self._environment.get(name, "")
        try:
            return parse(text) if text else default
        except ValueError:
            self.problems.append(f"{name}: {text!r} is not {meaning}")
            return default


def _slots(text: str) -> int:
    if not 1 <= int(text) <= _SLOTS_LIMIT:
        raise ValueError(text)
    return int(text)


def _adapters(text: str) -> int:
    if int(text) < 0:
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> float:
    if not 0 <= float(text) < float("inf"):
        raise ValueError(text)
    return float(text)
