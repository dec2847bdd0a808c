"""The dashboard: each of its queries is run by a real Prometheus that scrapes a job's real exporters."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.setup.monitoring.dashboard_panels import dashboard_rows
from tests.hvd_elastic.setup.monitoring.conftest import Exporter, Job
from tests.hvd_elastic.setup.monitoring.prometheus import VARIABLES, Prometheus, asked, is_idle, serving
from tests.hvd_elastic.worker.pods import eventually
from tests.mpijob import admission


@pytest.fixture
def prometheus(tmp_path: Path, job: Job, others: Exporter) -> Iterator[Prometheus]:
    """Scrapes the job as its PodMonitor has it scraped: labels `namespace`, `job`, `pod`."""
    targets = [
        {"targets": [one.address], "labels": {"namespace": "ml", "job": "bert", "pod": one.pod}}
        for one in job.exporters
    ]
    others_too = {"job_name": "others", "static_configs": [{"targets": [others.address]}]}
    with serving(tmp_path, [{"job_name": "jobs", "static_configs": targets}, others_too]) as server:
        yield server


def dashboard(*arguments: str) -> str:
    pytest.importorskip("grafana_foundation_sdk", reason="the extra `dashboard` is not installed")
    done = CliRunner().invoke(cli, ["dashboard", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def panels(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def test_every_query_has_an_answer(prometheus: Prometheus, job: Job) -> None:
    queries = [query.expression for row in dashboard_rows() for panel in row.panels for query in panel.queries]

    left: list[str] = []

    def all_answered() -> bool:
        job.train()
        answers = {query: prometheus.query(asked(query)) for query in queries}
        left[:] = [query for query, found in answers.items() if not found or is_idle(query, found)]
        return not left

    eventually(all_answered, lambda: "\n".join(left), 60)


def test_gpus_of_dcgm_are_those_of_the_jobs_pods(prometheus: Prometheus, job: Job) -> None:
    gpus = next(row for row in dashboard_rows() if row.title == "GPUs")
    found: dict[tuple[str, str], float] = {}

    def complete() -> bool:
        for panel in gpus.panels:
            for query in panel.queries:
                for series in prometheus.query(asked(query.expression)):
                    labels = series["metric"]
                    assert (labels["namespace"], labels["job"], labels["pod"]) == ("ml", "bert", "bert-worker-0")
                    found[query.legend.rpartition("}}")[2] + panel.title, labels["gpu"]] = float(series["value"][1])
        return len(found) == 12

    eventually(complete, "both kinds of figures of all panels", 60)
    assert found == {
        ("GPU utilization", "GPU-0"): 0.75,
        (" (DCGM)GPU utilization", "GPU-dcgm"): 0.91,
        (" usedGPU memory", "GPU-0"): 3 << 30,
        (" used (DCGM)GPU memory", "GPU-dcgm"): 1 << 30,
        (" totalGPU memory", "GPU-0"): 16 << 30,
        (" total (DCGM)GPU memory", "GPU-dcgm"): 4 << 30,
        ("GPU memory utilization", "GPU-0"): 0.4,
        (" (DCGM)GPU memory utilization", "GPU-dcgm"): 0.4,
        ("GPU temperature", "GPU-0"): 61,
        (" (DCGM)GPU temperature", "GPU-dcgm"): 66,
        ("GPU power", "GPU-0"): 123.5,
        (" (DCGM)GPU power", "GPU-dcgm"): 250,
    }


def test_grafana_gets_every_panel_with_its_queries() -> None:
    document = json.loads(dashboard())
    shown = [(panel["title"], [target["expr"] for target in panel["targets"]]) for panel in panels(document)]
    assert shown == [
        (panel.title, [query.expression for query in panel.queries]) for row in dashboard_rows() for panel in row.panels
    ]
    assert {target["datasource"]["uid"] for panel in panels(document) for target in panel["targets"]} == {
        "${datasource}"
    }
    identities = [panel["id"] for panel in document["panels"]]
    assert len(set(identities)) == len(identities)
    places = [tuple(panel["gridPos"].values()) for panel in document["panels"]]
    assert len(set(places)) == len(places)


def test_every_variable_of_a_query_is_one_of_the_dashboard() -> None:
    document = json.loads(dashboard("--inference-class", "chat-pc"))
    variables = {f"${one['name']}": one.get("current", {}).get("value") for one in document["templating"]["list"]}
    assert variables["$inference_class"] == "chat-pc"
    assert {name for name in VARIABLES if not name.startswith("$__")} <= variables.keys()
    for panel in panels(document):
        for target in panel["targets"]:
            assert "$" not in asked(target["expr"]).replace("$1", ""), target["expr"]


def test_grafana_itself_reads_what_it_gets() -> None:
    """By Grafana's own model of a dashboard: what it does not know would be lost on the way through it."""
    document = json.loads(dashboard())
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    assert json.loads(JSONEncoder().encode(Dashboard.from_json(document))) == document


def test_the_config_map_is_one_that_grafanas_sidecar_takes() -> None:
    made = yaml.safe_load(dashboard("--as", "configmap", "-n", "monitoring", "--label", "team=ml", "-o", "yaml"))
    assert admission.errors(made) == []
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["metadata"]["labels"]["team"] == "ml"
    assert json.loads(made["data"]["hvd-elastic.json"]) == json.loads(dashboard())


def test_for_people_and_for_machines() -> None:
    assert yaml.safe_load(dashboard("-o", "yaml")) == json.loads(dashboard("-o", "json"))
    assert dashboard("-o", "name") == "hvd-elastic\n"
    assert dashboard("--as", "configmap", "-o", "name") == "configmap/hvd-elastic-dashboard\n"


def test_a_namespace_without_an_object_is_refused() -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="the extra `dashboard` is not installed")
    done = CliRunner().invoke(cli, ["dashboard", "-n", "monitoring"])
    assert "add `--as configmap`" in str(done.exception)


def test_without_the_sdk_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hvd_elastic.setup.monitoring.grafana_dashboard", None)
    done = CliRunner().invoke(cli, ["dashboard"])
    assert done.exit_code == 1
    assert "hvd-elastic[dashboard]" in done.output
