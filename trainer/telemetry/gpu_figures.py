"""Utilization, memory, temperature and power of this process's GPUs, from NVML by `pynvml` (nvidia-ml-py)."""

import importlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """The present figures of one GPU. None: this GPU does not report it (a MIG slice has no utilization of its own)."""

    uuid: str
    utilization: float | None
    """Share of the last sample period in which a kernel ran, 0 to 1."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    memory_utilization: float | None
    """Share of the last sample period in which memory was read or written, 0 to 1."""
    temperature_celsius: float | None
    power_watts: float | None


class Gpus:
    """Reads NVML, which is opened at the first read. Without driver or package there are no figures, and no error."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._nvml: Any = None
        self._handles: tuple[Any, ...] | None = None

    def read(self, index: int | None = None) -> Iterator[GpuFigures]:
        """Yield the figures of every GPU that this process may use, or of the `index`-th (the local rank's) only."""
        handles = self._open_once()
        for handle in handles if index is None else handles[index : index + 1]:
            yield self._read_one(handle)

    def _open_once(self) -> tuple[Any, ...]:
        if self._handles is None:
            self._handles = self._open()
        return self._handles

    def _open(self) -> tuple[Any, ...]:
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            return tuple(map(self._handle, self._visible()))
        except ImportError:
            log.debug("no GPU figures: pynvml (nvidia-ml-py) is not installed")
        except self._nvml.NVMLError as error:
            log.debug("no GPU figures: %s", error)
        return ()

    def _visible(self) -> list[str]:
        """List this process's GPUs: NVML numbers all of the machine, CUDA_VISIBLE_DEVICES names the usable ones."""
        visible = self._environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return [str(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        return [name.strip() for name in visible.split(",") if name.strip() not in {"", "-1"}]

    def _handle(self, name: str) -> Any:
        if name.isdecimal():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name.encode())

    def _read_one(self, handle: Any) -> GpuFigures:
        nvml = self._nvml
        rates = self._query(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._query(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._query(nvml.nvmlDeviceGetPowerUsage, handle)
        uuid = self._query(nvml.nvmlDeviceGetUUID, handle)
        return GpuFigures(
            uuid=uuid.decode() if isinstance(uuid, bytes) else str(uuid or ""),
            utilization=rates and rates.gpu / 100,
            memory_used_bytes=memory and memory.used,
            memory_total_bytes=memory and memory.total,
            memory_utilization=rates and rates.memory / 100,
            temperature_celsius=self._query(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_watts=power / 1000 if power is not None else None,
        )

    def _query(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None
