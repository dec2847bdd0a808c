"""`hvd-elastic dashboard`: the Grafana dashboard, which is applied once per cluster."""

import click

from hvd_elastic.cli.clusters.monitoring_options import check_no_metadata, metadata_options, parsed_labels
from hvd_elastic.cli.output import Format, Result, of_manifests, output_option, show
from hvd_elastic.setup.monitoring.alert_rules import AlertThresholds
from hvd_elastic.setup.monitoring.monitoring_manifests import dashboard_config_map


@click.command
@click.option("--as", "kind", type=click.Choice(["dashboard", "configmap"]), default="dashboard", show_default=True,
              help="Grafana's own document, or a ConfigMap for the sidecar of its Helm chart.")  # fmt: skip
@metadata_options("ConfigMap")
@click.option("--inference-class", default=AlertThresholds().inference_class, show_default=True,
              help="The PriorityClass of inference.")  # fmt: skip
@output_option(Format.JSON, Format.YAML, Format.NAME, default=Format.JSON)
def command(*, kind: str, namespace: str | None, labels: tuple[str, ...], inference_class: str, output: Format) -> None:
    """Print a Grafana dashboard over all jobs: size, throughput, loss, pauses, checkpoints, workers, inference, GPUs.

    hvd-elastic dashboard > hvd-elastic.json

    hvd-elastic dashboard --as configmap -o yaml | kubectl apply -n monitoring -f -
    """
    AlertThresholds(inference_class=inference_class).check()
    try:
        from hvd_elastic.setup.monitoring.grafana_dashboard import UID, grafana_dashboard
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'hvd-elastic[dashboard]'") from error

    dashboard = grafana_dashboard(inference_class)
    if kind == "dashboard":
        check_no_metadata(namespace, labels, way_out="add `--as configmap`")
        show(Result(data=dashboard, names=[UID]), output)
    else:
        show(of_manifests([dashboard_config_map(dashboard, namespace=namespace, labels=parsed_labels(labels))]), output)
