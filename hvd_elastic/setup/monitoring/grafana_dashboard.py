"""Grafana's JSON of the dashboard, made with Grafana's own builders. Only `hvd-elastic dashboard` imports this."""

import itertools
import json
from typing import Any, Final

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboards
from grafana_foundation_sdk.builders import prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableHide,
    VariableOption,
    VariableRefresh,
)

from hvd_elastic.setup.monitoring.dashboard_panels import DashboardPanel, dashboard_rows

UID: Final = "hvd-elastic"
_PANEL_WIDTH: Final = 8
"""Of Grafana's 24 columns."""
_PANEL_HEIGHT: Final = 8
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")


def grafana_dashboard(inference_class: str) -> dict[str, Any]:
    """The dashboard as plain data. `inference_class`: the PriorityClass that the viewer's variable begins with."""
    builder = (
        dashboards.Dashboard("hvd-elastic")
        .uid(UID)
        .description("Elastic Horovod training: size, speed, pauses, checkpoints, workers, GPUs.")
        .tags(["hvd-elastic", "horovod", "training"])
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboards.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_choice("namespace", "hvd_elastic_discovery_hosts"))
        .with_variable(_choice("job", 'hvd_elastic_discovery_hosts{namespace=~"$namespace"}'))
        .with_variable(
            dashboards.TextBoxVariable("inference_class")
            .label("Class of inference")
            .default_value(inference_class)
            .current(VariableOption(text=inference_class, value=inference_class))
            .hide(VariableHide.DONT_HIDE)
        )
    )
    numbers = itertools.count(1)
    for row in dashboard_rows():
        builder.with_row(dashboards.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            builder.with_panel(_panel(panel).id(next(numbers)))
    document: dict[str, Any] = json.loads(JSONEncoder().encode(builder.build()))
    return document


def _choice(label: str, series: str) -> dashboards.QueryVariable:
    return (
        dashboards.QueryVariable(label)
        .label(label.capitalize())
        .datasource(_SOURCE)
        .query(f"label_values({series}, {label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(VariableOption(text="All", value="$__all"))
    )


def _panel(panel: DashboardPanel) -> timeseries.Panel:
    builder = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .axis_soft_min(0)
        .span(_PANEL_WIDTH)
        .height(_PANEL_HEIGHT)
        .fill_opacity(30 if panel.stacked else 0)
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    if panel.stacked:
        builder.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        builder.with_target(
            prometheus.Dataquery()
            .ref_id(letter)
            .datasource(_SOURCE)
            .expr(query.expression)
            .legend_format(query.legend)
            .range()
        )
    return builder
