"""What is in a scrape: from events, real checkpoints and a stand-in for NVML."""

import sys
import time
import types
from pathlib import Path

import pytest
import torch
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hvd_elastic.trainer.checkpoint import SaveCounts, open_checkpoints
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.gpu_figures import Gpus
from hvd_elastic.trainer.telemetry.training_counts import TrainingCounts
from hvd_elastic.trainer.telemetry.worker_metrics import (
    PREFIX,
    CheckpointCollector,
    GpuCollector,
    TrainingCollector,
    worker_registry,
)


class Process:
    """A training process, as far as its events and its scrapes go."""

    def __init__(self) -> None:
        self._counts = TrainingCounts()
        self._registry = worker_registry(self._counts, 3, environ={})

    def emit(self, kind: events.Kind, *, size: int = 4, **fields: object) -> None:
        self._counts.on_event({"time": 1.0, "event": kind.value, "size": size, "rank": 1, **fields})

    def step(self, number: int, position: int, *, epoch: int = 0, seconds: float = 0.5) -> None:
        self.emit(events.Kind.STEP, step=number, epoch=epoch, samples=position, seconds=seconds)

    def scrape(self) -> dict[str, float]:
        return {
            f"{sample.name.removeprefix(PREFIX)}{''.join(sorted(sample.labels.values()))}": sample.value
            for family in text_string_to_metric_families(generate_latest(self._registry).decode())
            for sample in family.samples
        }


@pytest.fixture
def process() -> Process:
    return Process()


def test_events_become_metrics(process: Process) -> None:
    process.step(1, 64)
    process.step(2, 128)
    process.emit(events.Kind.RESET, size=3, step=2, cause="hosts", seconds=0.25, **{"from": 4})
    process.emit(events.Kind.EPOCH, size=3, step=2, epoch=1)
    process.step(3, 96, epoch=1, seconds=2.0)
    read = process.scrape()
    assert read["commits_total"] == 3
    assert read["samples_total"] == 128 + 96
    assert read["samples_per_second"] == 48
    assert (read["step_seconds_sum"], read["step_seconds_count"]) == (3.0, 3)
    assert read["pauses_totalhosts"] == 1
    assert read["pause_seconds_totalhosts"] == 0.25
    assert read["pauses_totalfailure"] == 0
    assert (read["world_size"], read["rank"], read["epoch"], read["step"]) == (4, 1, 1, 3)


def test_steps_are_counted_by_how_long_they_took(process: Process) -> None:
    for seconds in (0.001, 0.005, 0.02, 0.02, 299.0, 301.0):
        process.step(1, 64, seconds=seconds)
    read = process.scrape()
    buckets = {bound: read[f"step_seconds_bucket{bound}"] for bound in ("0.005", "0.01", "0.025", "300.0", "+Inf")}
    assert buckets == {"0.005": 2, "0.01": 2, "0.025": 4, "300.0": 5, "+Inf": 6}


def test_samples_taken_again_are_not_counted_as_negative(process: Process) -> None:
    process.step(1, 128)
    process.step(1, 64)
    process.step(2, 128)
    assert process.scrape()["samples_total"] == 192


def test_a_state_of_horovods_own_says_less(process: Process) -> None:
    process.emit(events.Kind.STEP, step=5)
    read = process.scrape()
    assert (read["commits_total"], read["step"], read["samples_total"]) == (1, 5, 0)


def test_checkpoints_are_read_when_scraped(tmp_path: Path, process: Process) -> None:
    assert "checkpoint_lag_seconds" not in process.scrape()
    checkpoints = open_checkpoints(f"file://{tmp_path}/a", job="a", incarnation="one")
    began = time.time()
    checkpoints.save({"weight": torch.zeros(1000)}, step=7, world_size=1, reason="interval")
    assert checkpoints.flush(30)
    read = process.scrape()
    checkpoints.close()
    assert (read["checkpoint_step"], read["checkpoints_totaldurable"], read["checkpoints_totalfailed"]) == (7, 1, 0)
    assert read["checkpoint_interval_seconds"] == 60
    assert 0 <= read["checkpoint_writer_seconds"] <= time.time() - began + 1
    assert read["checkpoint_size_bytes"] > 4000
    assert 0 <= read["checkpoint_lag_seconds"] <= time.time() - began
    assert "checkpoint_step" not in process.scrape(), "a process that is no longer the writer reports nothing"


def test_an_interval_in_steps_alone_has_no_seconds(tmp_path: Path, process: Process) -> None:
    checkpoints = open_checkpoints(
        f"file://{tmp_path}/a", job="a", incarnation="one", interval_seconds=None, interval_steps=10
    )
    read = process.scrape()
    checkpoints.set_interval(77.0)
    assert "checkpoint_interval_seconds" not in read
    assert "checkpoint_writer_seconds" in read
    assert process.scrape()["checkpoint_interval_seconds"] == 77
    checkpoints.close()


def test_the_loss_is_the_last_one_that_is_known() -> None:
    known: list[float | None] = [None]
    collector = TrainingCollector(TrainingCounts(), lambda: known[0])
    assert f"{PREFIX}loss" not in {metric.name for metric in collector.collect()}
    known[0] = 0.25
    assert {m.name: m.samples[0].value for m in collector.collect()}[f"{PREFIX}loss"] == 0.25


def test_the_lag_grows_while_saves_fail() -> None:
    counts = SaveCounts(started=3, durable=1, failed=2, durable_step=5, durable_time=100.0, error="503")
    found = {m.name: m.samples[0].value for m in CheckpointCollector(lambda: counts, wall=lambda: 160.0).collect()}
    assert found[f"{PREFIX}checkpoint_lag_seconds"] == 60


class NvmlError(Exception):
    pass


def nvml(*, mig: bool = False) -> types.ModuleType:
    """A stand-in that answers as NVML's documentation says: milliwatts, percent, bytes. A MIG slice lacks some."""

    def refuse(_: object) -> object:
        raise NvmlError("Not Supported")

    module = types.ModuleType("pynvml")
    module.__dict__.update(
        NVMLError=NvmlError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetUtilizationRates=refuse if mig else lambda _: types.SimpleNamespace(gpu=75, memory=40),
        nvmlDeviceGetMemoryInfo=lambda _: types.SimpleNamespace(used=3 << 30, total=16 << 30),
        nvmlDeviceGetTemperature=lambda _, sensor: 61,
        nvmlDeviceGetPowerUsage=refuse if mig else lambda _: 123_500,
    )
    return module


def test_the_gpu_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    found = {m.name: m.samples for m in GpuCollector(Gpus({}), 1).collect()}
    values = {name.removeprefix(f"{PREFIX}gpu_"): samples[0].value for name, samples in found.items()}
    assert values == {
        "utilization": 0.75,
        "memory_used_bytes": 3 << 30,
        "memory_total_bytes": 16 << 30,
        "memory_utilization": 0.4,
        "temperature_celsius": 61,
        "power_watts": 123.5,
    }
    assert {sample.labels["gpu"] for samples in found.values() for sample in samples} == {"GPU-1"}


def test_what_a_gpu_does_not_report_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(mig=True))
    names = {m.name.removeprefix(f"{PREFIX}gpu_") for m in GpuCollector(Gpus({}), 0).collect()}
    assert names == {"memory_used_bytes", "memory_total_bytes", "temperature_celsius"}


@pytest.mark.parametrize(
    ("visible", "expected"), [("1", ["GPU-1"]), ("GPU-x,MIG-y", ["GPU-x", "MIG-y"]), ("", []), ("-1", [])]
)
def test_only_the_visible_gpus(monkeypatch: pytest.MonkeyPatch, visible: str, expected: list[str]) -> None:
    module = nvml()
    module.__dict__["nvmlDeviceGetUUID"] = lambda h: h if isinstance(h, bytes) else f"GPU-{h}"
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert [figures.uuid for figures in Gpus({"CUDA_VISIBLE_DEVICES": visible}).read()] == expected


def test_without_a_driver_or_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nvml()

    def no_driver() -> None:
        raise NvmlError("Driver Not Loaded")

    module.__dict__["nvmlInit"] = no_driver
    for present in (module, None):
        monkeypatch.setitem(sys.modules, "pynvml", present)
        assert list(Gpus({}).read()) == []
        assert list(GpuCollector(Gpus({}), 0).collect()) == []
