"""A real Prometheus (Debian's), its HTTP API, and what a query must answer to say something."""

import contextlib
import json
import math
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.debian_programs import debian_program
from tests.hvd_elastic.worker.pods import eventually

VARIABLES: Final = {"$namespace": ".+", "$job": ".+", "$inference_class": "inference-pc", "$__rate_interval": "1m"}
"""What Grafana puts in their places; these are the dashboard's first values."""


class Prometheus:
    """A server with its HTTP API."""

    def __init__(self, base: str) -> None:
        self._base = base

    @property
    def is_ready(self) -> bool:
        try:
            return bool(urllib.request.urlopen(f"{self._base}/-/ready", timeout=10).status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """Series, each with its `value` now."""
        found: list[Mapping[str, Any]] = self._asked("query", query=expression)["result"]
        return found

    def query_range(self, expression: str, since: float, until: float, step: int = 2) -> list[Mapping[str, Any]]:
        """Series, each with its `values` in that time, as Grafana asks for a chart."""
        found: list[Mapping[str, Any]] = self._asked(
            "query_range", query=expression, start=since, end=until, step=step
        )["result"]
        return found

    def targets(self) -> list[Mapping[str, Any]]:
        """What it scrapes now."""
        found: list[Mapping[str, Any]] = self._asked("targets", state="active")["activeTargets"]
        return found

    def _asked(self, what: str, **parameters: Any) -> Any:
        url = f"{self._base}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]


@contextlib.contextmanager
def serving(folder: Path, scrape_configs: Sequence[Mapping[str, Any]]) -> Iterator[Prometheus]:
    """A Prometheus that scrapes each second, and keeps what it has in `folder`."""
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [*scrape_configs]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        str(debian_program("prometheus", "prometheus")),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/prometheus",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    server = Prometheus(f"http://127.0.0.1:{port}")
    try:
        eventually(lambda: server.is_ready or process.poll() is not None, "Prometheus", 60)
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        yield server
    finally:
        process.kill()
        process.wait()


def asked(text: str) -> str:
    """A query of the dashboard with values in the places of Grafana's variables."""
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    return text


def is_idle(query: str, found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an answer says nothing: that what grows did not, or a quantile of no pause."""
    values = [float(value) for series in found for _, value in series.get("values") or [series["value"]]]
    grows = "rate(" in query or "increase(" in query
    return all(math.isnan(value) or (grows and value == 0) for value in values)
