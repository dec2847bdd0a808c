"""`hvd-elastic alerts`: the alert rules, which are applied once per cluster."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from hvd_elastic.cli.clusters.monitoring_options import check_no_metadata, metadata_options, parsed_labels
from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, show
from hvd_elastic.setup.monitoring.alert_rules import AlertThresholds, alert_rules, duration, rule_file
from hvd_elastic.setup.monitoring.monitoring_manifests import prometheus_rule

_Command = TypeVar("_Command", bound=Callable[..., Any])
_COLUMNS = (
    Column(title="alert", key="alert"),
    Column(title="severity", key="severity"),
    Column(title="after", key="after", right=True),
    Column(title="what for", key="summary"),
)
_DEFAULTS = {field.name: field.default for field in fields(AlertThresholds)}


def _threshold(flag: str, text: str) -> Callable[[_Command], _Command]:
    default = _DEFAULTS[flag.removeprefix("--").replace("-", "_")]
    return click.option(flag, type=type(default), default=default, show_default=True, help=text)


def _shown(summary: str) -> str:
    return summary.replace("{{ $labels.namespace }}", "NAMESPACE").replace("{{ $labels.job }}", "JOB")


@click.command
@click.option("--as", "kind", type=click.Choice(["prometheusrule", "rules"]), default="prometheusrule",
              show_default=True, help="An object for the Prometheus Operator, or a rule file.")  # fmt: skip
@metadata_options("PrometheusRule")
@_threshold("--stalled-seconds", "Seconds without a step, though there are enough workers.")
@_threshold("--below-min-seconds", "Seconds with fewer workers than the job's min.")
@_threshold("--late-intervals", "Intervals between checkpoints without a durable one.")
@_threshold("--failures", "Deaths of training processes in half an hour.")
@_threshold("--launcher-failures", "Failures of the launcher in half an hour.")
@_threshold("--operator-seconds", "Seconds while the MPI Operator leaves a job alone that needs it.")
@_threshold("--waiting-seconds", "Seconds while inference waits for a node.")
@_threshold("--inference-class", "The PriorityClass of inference.")
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, default=Format.YAML)
def command(*, kind: str, namespace: str | None, labels: tuple[str, ...], output: Format, **values: Any) -> None:
    """Print alert rules for Prometheus: what keeps a job from training, loses its work, or lets inference wait.

    hvd-elastic alerts --label release=kube-prometheus-stack | kubectl apply -n monitoring -f -

    hvd-elastic alerts --as rules > /etc/prometheus/rules/hvd-elastic.yml
    """
    thresholds = AlertThresholds(**values)
    thresholds.check()
    rows = [
        {
            "alert": rule.name,
            "severity": rule.severity,
            "after": duration(rule.hold_seconds) if rule.hold_seconds else None,
            "summary": _shown(rule.summary),
        }
        for rule in alert_rules(thresholds)
    ]
    rules = rule_file(thresholds)
    if kind == "rules":
        check_no_metadata(namespace, labels, way_out="leave out `--as rules`")
        show(
            Result(rows=rows, columns=_COLUMNS, data=rules, names=[rule.name for rule in alert_rules(thresholds)]),
            output,
        )
    else:
        manifest = prometheus_rule(rules, namespace=namespace, labels=parsed_labels(labels))
        show(of_manifests([manifest], rows=rows, columns=_COLUMNS), output)
