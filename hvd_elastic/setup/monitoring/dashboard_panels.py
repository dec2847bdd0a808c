"""What the dashboard shows: panels and their queries, as values. `grafana_dashboard` makes Grafana's JSON of them.

GPUs are measured twice where both are there: by NVML in each training process, and by NVIDIA's DCGM exporter on each
node (its `etc/default-counters.csv`, labels as in its `internal/pkg/rendermetrics`). A GPU that both know is shown
once: NVML's `gpu` and DCGM's `UUID` are the same.
"""

from dataclasses import dataclass
from typing import Final

from hvd_elastic.setup.monitoring.alert_rules import waiting_inference

CHOSEN: Final = 'namespace=~"$namespace", job=~"$job"'
"""Selects the series of the jobs that the viewer has chosen, by Grafana's variables."""

_JOB: Final = "by (namespace, job)"
_NAME: Final = "{{namespace}}/{{job}}"
_MIB: Final = 1048576
_WINDOW: Final = "$__rate_interval"
"""Grafana's: four scrapes at least, so that a rate has values (its page on template variables of Prometheus)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelQuery:
    """One query of a panel, and how its lines are named."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPanel:
    """A chart over time."""

    title: str
    description: str
    queries: tuple[PanelQuery, ...]
    unit: str = "short"
    """A unit id of Grafana."""
    stacked: bool = False
    """Whether the lines are parts of one sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardRow:
    """Panels under one heading."""

    title: str
    panels: tuple[DashboardPanel, ...]


def dashboard_rows() -> tuple[DashboardRow, ...]:
    """The whole dashboard, from top to bottom."""
    return (
        DashboardRow(title="Training", panels=_training()),
        DashboardRow(title="Workers", panels=_workers()),
        DashboardRow(title="Pauses", panels=_pauses()),
        DashboardRow(title="Checkpoints", panels=_checkpoints()),
        DashboardRow(title="GPUs", panels=_gpus()),
    )


def _training() -> tuple[DashboardPanel, ...]:
    return (
        DashboardPanel(
            title="World size",
            description="Processes that train, and how many the usable hosts allow (counted with `launcher: launch`).",
            queries=(
                _of_job("max", "hvd_elastic_worker_world_size", "train"),
                _of_job("max", "hvd_elastic_launcher_wanted_size", "allowed"),
            ),
        ),
        DashboardPanel(
            title="Throughput",
            description="Samples of all workers between commits.",
            queries=(
                PanelQuery(
                    expression=f"max {_JOB} (rate(hvd_elastic_worker_samples_total{{{CHOSEN}}}[{_WINDOW}]))",
                    legend=_NAME,
                ),
            ),
            unit="suffix: samples/s",
        ),
        DashboardPanel(
            title="Loss",
            description="The last value that the script has logged as `loss`.",
            queries=(_of_job("max", "hvd_elastic_worker_loss", ""),),
        ),
        DashboardPanel(
            title="Step",
            description="The newest step that a worker has reported. A flat line is a job that stands still.",
            queries=(_of_job("max", "hvd_elastic_discovery_step", ""),),
        ),
    )


def _workers() -> tuple[DashboardPanel, ...]:
    return (
        DashboardPanel(
            title="Workers asked for and offered",
            description="Below its min a job does not train.",
            queries=(
                _of_job("max", "hvd_elastic_discovery_hosts", "offered"),
                _of_job("max", "hvd_elastic_discovery_wanted_workers", "asked for"),
                _of_job("max", "hvd_elastic_discovery_min_workers", "min"),
                _of_job("max", "hvd_elastic_discovery_max_workers", "max"),
            ),
        ),
        DashboardPanel(
            title="Workers by state",
            description="Offered to the launcher, or left out with the reason.",
            queries=(
                _of_job("max", "hvd_elastic_discovery_hosts", "offered"),
                PanelQuery(
                    expression=f"max by (namespace, job, reason) (hvd_elastic_discovery_left_out{{{CHOSEN}}})",
                    legend=f"{_NAME} {{{{reason}}}}",
                ),
            ),
            stacked=True,
        ),
        DashboardPanel(
            title="Inference that waits",
            description="Pods of the class of inference for which the scheduler finds no node, of all namespaces.",
            queries=(PanelQuery(expression=waiting_inference("$inference_class"), legend="{{namespace}}"),),
        ),
        DashboardPanel(
            title="Failed launchers",
            description="Launchers that failed by themselves; those that were taken away are not counted.",
            queries=(_of_job("max", "hvd_elastic_discovery_launcher_failures", ""),),
        ),
    )


def _pauses() -> tuple[DashboardPanel, ...]:
    return (
        DashboardPanel(
            title="Time stood still, by cause",
            description="As the training processes see it. `hosts`: the world changed; `failure`: a process died.",
            queries=(
                PanelQuery(
                    expression="max by (namespace, job, cause) "
                    f"(increase(hvd_elastic_worker_pause_seconds_total{{{CHOSEN}}}[{_WINDOW}]))",
                    legend=f"{_NAME} {{{{cause}}}}",
                ),
            ),
            unit="s",
            stacked=True,
        ),
        DashboardPanel(
            title="Resizes by cause",
            description="As the launcher of `launcher: launch` counts them.",
            queries=(
                PanelQuery(
                    expression="sum by (namespace, job, cause) "
                    f"(increase(hvd_elastic_launcher_resizes_total{{{CHOSEN}}}[{_WINDOW}]))",
                    legend=f"{_NAME} {{{{cause}}}}",
                ),
            ),
            stacked=True,
        ),
        DashboardPanel(
            title="Length of a pause",
            description="95% of the pauses that the launcher of `launcher: launch` saw were shorter.",
            queries=(
                PanelQuery(
                    expression="histogram_quantile(0.95, sum by (namespace, job, le) "
                    f"(rate(hvd_elastic_launcher_pause_seconds_bucket{{{CHOSEN}}}[{_WINDOW}])))",
                    legend=_NAME,
                ),
            ),
            unit="s",
        ),
    )


def _checkpoints() -> tuple[DashboardPanel, ...]:
    return (
        DashboardPanel(
            title="Age of the newest durable checkpoint",
            description="What is trained again if all workers are lost at once, beside the interval between two.",
            queries=(
                _of_job("max", "hvd_elastic_worker_checkpoint_lag_seconds", "age"),
                _of_job("max", "hvd_elastic_worker_checkpoint_interval_seconds", "interval"),
            ),
            unit="s",
        ),
        DashboardPanel(
            title="Duration of a save",
            description="Of the last one that finished. Training goes on meanwhile.",
            queries=(_of_job("max", "hvd_elastic_worker_checkpoint_duration_seconds", ""),),
            unit="s",
        ),
        DashboardPanel(
            title="Saves by outcome",
            description="Failed ones are tried again.",
            queries=(
                PanelQuery(
                    expression="sum by (namespace, job, outcome) "
                    f"(increase(hvd_elastic_worker_checkpoints_total{{{CHOSEN}}}[{_WINDOW}]))",
                    legend=f"{_NAME} {{{{outcome}}}}",
                ),
            ),
            stacked=True,
        ),
    )


def _gpus() -> tuple[DashboardPanel, ...]:
    used, free = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
    return (
        DashboardPanel(
            title="GPU utilization",
            description="Share of time in which a kernel ran.",
            queries=_of_gpus("utilization", "DCGM_FI_DEV_GPU_UTIL / 100"),
            unit="percentunit",
        ),
        DashboardPanel(
            title="GPU memory",
            description="Used, and all there is.",
            queries=(
                *_of_gpus("memory_used_bytes", f"{used} * {_MIB}", " used"),
                *_of_gpus("memory_total_bytes", f"({used} + {free}) * {_MIB}", " total"),
            ),
            unit="bytes",
        ),
        DashboardPanel(
            title="GPU memory utilization",
            description="Share of time in which memory was read or written.",
            queries=_of_gpus("memory_utilization", "DCGM_FI_DEV_MEM_COPY_UTIL / 100"),
            unit="percentunit",
        ),
        DashboardPanel(
            title="GPU temperature",
            description="Of the chip.",
            queries=_of_gpus("temperature_celsius", "DCGM_FI_DEV_GPU_TEMP"),
            unit="celsius",
        ),
        DashboardPanel(
            title="GPU power",
            description="Drawn at this moment.",
            queries=_of_gpus("power_watts", "DCGM_FI_DEV_POWER_USAGE"),
            unit="watt",
        ),
    )


def _of_job(aggregation: str, metric: str, what: str) -> PanelQuery:
    return PanelQuery(expression=f"{aggregation} {_JOB} ({metric}{{{CHOSEN}}})", legend=f"{_NAME} {what}".strip())


def _of_gpus(figure: str, dcgm: str, what: str = "") -> tuple[PanelQuery, ...]:
    """A figure of each GPU of the chosen jobs: from NVML, and of GPUs that it does not tell of from DCGM."""
    nvml = f"hvd_elastic_worker_gpu_{figure}"
    legend = f"{_NAME} {{{{pod}}}} {{{{gpu}}}}{what}"
    # A Prometheus that scrapes DCGM's exporter without honorLabels calls the GPU's pod `exported_pod`.
    named = f'label_replace({dcgm}, "gpu", "$1", "UUID", "(.+)")'
    for label in ("namespace", "pod"):
        named = f'label_replace({named}, "{label}", "$1", "exported_{label}", "(.+)")'
    pods = f"group by (namespace, pod, job) (hvd_elastic_worker_world_size{{{CHOSEN}}})"
    return (
        PanelQuery(expression=f"max by (namespace, job, pod, gpu) ({nvml}{{{CHOSEN}}})", legend=legend),
        PanelQuery(
            expression=f"max by (namespace, job, pod, gpu) ({named} * on (namespace, pod) group_left (job) {pods}"
            f" unless on (gpu) {nvml})",
            legend=f"{legend} (DCGM)",
        ),
    )
