"""Alert rules for Prometheus over what launchers, sidecars and training processes serve: values in, values out.

Every series of a job is known by its labels `namespace` and `job`, as the PodMonitor of `monitor` sets them.

Whether inference waits is known to kube-state-metrics: a job's sidecar has no right to read other pods. It gives
`kube_pod_info` the label `priority_class`, and `kube_pod_status_unschedulable` 1 while the condition PodScheduled is
False (v2.15.0, `internal/store/pod.go`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from hvd_elastic.mpijob.contract import ALERT_CHECKPOINT_LATE
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import DEFAULTS, Problem, Tier

GROUP: Final = "hvd-elastic"

_JOB: Final = "by (namespace, job)"
_CLASS_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertThresholds:
    """When an alert fires. Times are in seconds."""

    stalled_seconds: int = 900
    """Without a new step, though enough workers are offered. Evaluation between epochs must be shorter."""
    below_min_seconds: int = 900
    """With fewer workers than the job's min."""
    late_intervals: int = 3
    """Intervals between checkpoints without one that is durable."""
    failures: int = 5
    """Deaths of training processes within half an hour."""
    launcher_failures: int = 2
    """Launchers that failed by themselves within half an hour."""
    operator_seconds: int = 15
    """While the MPI Operator makes and deletes nothing, though it has pods to make or delete. At ten events a second,
    its default, it is later than that after changes of a hundred workers."""
    waiting_seconds: int = 120
    """While inference waits for a node. Longer than workers need to leave."""
    inference_class: str = next(one.name for one in DEFAULTS if one.tier is Tier.INFERENCE)
    """PriorityClass of inference."""

    def check(self) -> None:
        """Raises InvalidInputError with every problem."""
        problems = list(self._problems())
        if problems:
            raise InvalidInputError(problems)

    def _problems(self) -> Iterator[Problem]:
        for field in fields(self):
            value, path = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if isinstance(value, int) and value < 1:
                yield Problem(path=path, value=value, what="is not above 0", way_out=f"the default is {field.default}")
        if not _CLASS_NAME.fullmatch(self.inference_class):
            what, way_out = "is not the name of a class", "use small letters, digits, `-` and `.`"
            yield Problem(path="--inference-class", value=self.inference_class, what=what, way_out=way_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert."""

    name: str
    expression: str
    """PromQL. Of an alert about a job, the result has the labels `namespace` and `job`."""
    hold_seconds: int
    """How long it must be true until the alert fires."""
    severity: str
    """`critical`: somebody waits. `warning`: a job does not get on, or may lose work."""
    summary: str
    description: str

    def document(self) -> dict[str, Any]:
        """As Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            **({"for": duration(self.hold_seconds)} if self.hold_seconds else {}),
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.description},
        }


def alert_rules(thresholds: AlertThresholds) -> tuple[AlertRule, ...]:
    """All alerts."""
    return (
        _training_stalled(thresholds),
        _below_min(thresholds),
        _checkpoint_late(thresholds),
        _crash_loop(thresholds),
        _operator_waits(thresholds),
        _slow_rank(),
        _inference_waiting(thresholds),
    )


def rule_file(thresholds: AlertThresholds) -> dict[str, Any]:
    """The document of a rule file: one group with all alerts."""
    return {"groups": [{"name": GROUP, "rules": [rule.document() for rule in alert_rules(thresholds)]}]}


def duration(seconds: int) -> str:
    """As Prometheus writes it, in one unit: `15m`, `90s`."""
    unit, length = next((unit, length) for unit, length in (("h", 3600), ("m", 60), ("s", 1)) if seconds % length == 0)
    return f"{seconds // length}{unit}"


def _training_stalled(thresholds: AlertThresholds) -> AlertRule:
    window = duration(thresholds.stalled_seconds)
    step = "hvd_elastic_discovery_step"
    return AlertRule(
        name="HvdElasticTrainingStalled",
        # The second line: the job has trained, and a sidecar has watched it for the whole time.
        expression=f"max {_JOB} (changes({step}[{window}])) == 0\n"
        f"and max {_JOB} ({step} offset {window}) >= 0\n"
        f"and min {_JOB} (min_over_time(hvd_elastic_discovery_hosts[{window}]))"
        f" >= max {_JOB} (hvd_elastic_discovery_min_workers)\n",
        hold_seconds=60,
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.job }} has enough workers, and does not get on.",
        description=f"No worker has reported a new step for {window}. `hvd-elastic status {{{{ $labels.job }}}} -n "
        "{{ $labels.namespace }}` says what the job does, `hvd-elastic logs` what it prints.",
    )


def _below_min(thresholds: AlertThresholds) -> AlertRule:
    return AlertRule(
        name="HvdElasticBelowMinWorkers",
        expression=f"max {_JOB} (hvd_elastic_discovery_hosts) < max {_JOB} (hvd_elastic_discovery_min_workers)\n",
        hold_seconds=thresholds.below_min_seconds,
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.job }} has too few workers to train.",
        description="{{ $value }} workers can be used, fewer than its min. `hvd-elastic status {{ $labels.job }} -n "
        "{{ $labels.namespace }}` says what the others wait for.",
    )


def _checkpoint_late(thresholds: AlertThresholds) -> AlertRule:
    tier = "hvd_elastic_worker_checkpoint"
    limit = f"{thresholds.late_intervals} * {tier}_interval_seconds + {tier}_duration_seconds"
    return AlertRule(
        name=ALERT_CHECKPOINT_LATE,
        # A job that goes on after a week has a checkpoint that is a week old: it gets as long for its first one.
        expression=f"max {_JOB} (({tier}_lag_seconds or {tier}_writer_seconds) > {limit}\n"
        f"and {tier}_writer_seconds > {limit})\n",
        hold_seconds=300,
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.job }} stores no checkpoints.",
        description="The newest durable one is {{ $value | humanizeDuration }} old. If all workers are lost at once, "
        "that much is trained again. `hvd-elastic status {{ $labels.job }} -n {{ $labels.namespace }}` says why.",
    )


def _crash_loop(thresholds: AlertThresholds) -> AlertRule:
    launchers = "hvd_elastic_discovery_launcher_failures"
    return AlertRule(
        name="HvdElasticCrashLoop",
        # With `launcher: launch` the launcher counts; under horovodrun the survivors do. If none survives, the launcher
        # fails: each new one begins with the number of those before.
        expression=f'max {_JOB} (increase(hvd_elastic_worker_pauses_total{{cause="failure"}}[30m])) >= '
        f"{thresholds.failures}\n"
        f'or sum {_JOB} (increase(hvd_elastic_launcher_resizes_total{{cause=~"lost|hung"}}[30m])) >= '
        f"{thresholds.failures}\n"
        f"or max {_JOB} ({launchers}) - min {_JOB} (min_over_time({launchers}[30m])) >= "
        f"{thresholds.launcher_failures}\n",
        hold_seconds=0,
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.job }} fails again and again.",
        description='{{ $value | printf "%.0f" }} failures in half an hour. `hvd-elastic events {{ $labels.job }} -n '
        "{{ $labels.namespace }}` names them with their causes.",
    )


def _operator_waits(thresholds: AlertThresholds) -> AlertRule:
    return AlertRule(
        name="HvdElasticOperatorWaits",
        # Without `for`: the sidecar counts the seconds, and somebody is to know within half a minute.
        expression=f"max {_JOB} (hvd_elastic_discovery_operator_wait_seconds) > {thresholds.operator_seconds}\n",
        hold_seconds=0,
        severity="warning",
        summary="The MPI Operator leaves {{ $labels.namespace }}/{{ $labels.job }} alone.",
        description="It has pods to make or delete, and has done nothing for {{ $value | humanizeDuration }}. After an "
        "error it waits up to 1,000 s: `kubectl rollout restart deployment mpi-operator -n mpi-operator` ends that, "
        "unless `hvd-elastic status {{ $labels.job }} -n {{ $labels.namespace }}` says that a pod was refused.",
    )


def _slow_rank() -> AlertRule:
    return AlertRule(
        name="HvdElasticSlowRank",
        expression="max by (namespace, job, rank, worker, node, slowness) (hvd_elastic_discovery_slow_rank)\n",
        hold_seconds=600,
        severity="warning",
        summary="Rank {{ $labels.rank }} slows {{ $labels.namespace }}/{{ $labels.job }} down.",
        description='{{ $labels.worker }} on {{ $labels.node }} takes {{ $value | printf "%.1f" }} times as long as '
        "the others for its own part of a step: {{ $labels.slowness }}. All others wait for it in each step.",
    )


def _inference_waiting(thresholds: AlertThresholds) -> AlertRule:
    return AlertRule(
        name="HvdElasticInferenceWaiting",
        # Without a training job that could give way, this is no matter of elastic training.
        expression=f"{waiting_inference(thresholds.inference_class)} > 0\n"
        "and on () sum(hvd_elastic_discovery_hosts) > 0\n",
        hold_seconds=thresholds.waiting_seconds,
        severity="critical",
        summary="Inference waits in {{ $labels.namespace }} while training holds workers.",
        description=f"{{{{ $value }}}} pods of class {thresholds.inference_class} find no node. `hvd-elastic doctor` "
        "looks whether they can preempt workers.",
    )


def waiting_inference(inference_class: str) -> str:
    """PromQL: by namespace, the pods of this PriorityClass for which the scheduler finds no node."""
    known = f'group by (namespace, pod, uid) (kube_pod_info{{priority_class="{inference_class}"}})'
    return f"sum by (namespace) (kube_pod_status_unschedulable * on (namespace, pod, uid) {known})"
