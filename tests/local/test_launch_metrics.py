"""What a running launcher serves over HTTP."""

import http.client
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.local.harness import Job
from testbed.local.harness import job as make_job

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job that has grown from one to three, and lost one of them."""
    with make_job(tmp_path_factory.mktemp("job")) as made:
        made.hosts("a")
        made.launch("-np", "1", "--max-np", "3", "--metrics-port", "0")
        made.trains("a:0")
        made.hosts("a", "b")
        made.trains("a:0", "b:0")
        made.hosts("a", "b", "c")
        made.trains("a:0", "b:0", "c:0")
        made.kill("c:0")
        made.trains("a:0", "b:0")
        yield made


def port(job: Job) -> int:
    found = re.search(r"metrics on port (\d+)", job.said())
    assert found, job.said()
    return int(found[1])


def get(job: Job, path: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port(job), timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, response.headers["Content-Type"], body


@pytest.mark.core
def test_the_metrics_count_what_has_happened(job: Job) -> None:
    status, kind, body = get(job, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples = {
        (sample.name.removeprefix("hvd_elastic_launcher_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    assert samples["world_size",] == samples["wanted_size",] == 2
    assert samples["generation",] == 4
    assert samples["blacklisted_hosts",] == 1
    assert samples["resizes_total", "joined"] == 2
    assert samples["resizes_total", "lost"] == 1
    assert samples["resets_total",] == samples["pause_seconds_count",] == 3
    assert samples["restarts_total",] == 2
    assert 0 < samples["pause_seconds_sum",] < time.time() - job.events("started")[0]["time"]
    buckets = [value for (name, *_), value in samples.items() if name == "pause_seconds_bucket"]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 3


def test_the_status_is_that_of_the_file(job: Job) -> None:
    status, kind, body = get(job, "/status")
    assert (status, kind) == (200, "application/json")
    document = json.loads(body)
    assert document == job.status()
    assert [host["alias"] for host in document["hosts"]] == ["a", "b"]
    assert document["blacklisted"] == ["c"]
    assert [(resize["before"], resize["after"]) for resize in document["resizes"]] == [(0, 1), (1, 2), (2, 3), (3, 2)]
    assert document["resizes"][-1]["causes"] == ["c[0] lost: signal 9 (SIGKILL)"]


def test_nothing_else_is_served(job: Job) -> None:
    assert get(job, "/")[0] == get(job, "/metrics/../status")[0] == 404


def test_the_server_ends_with_the_job(tmp_path: Path) -> None:
    with make_job(tmp_path, steps=5) as made:
        made.hosts("a")
        made.launch("-np", "1", "--metrics-port", "0")
        assert made.ends() == 0
        with pytest.raises(ConnectionRefusedError):
            get(made, "/status")
