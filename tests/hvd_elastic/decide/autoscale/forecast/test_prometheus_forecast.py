"""A forecast from Prometheus, over real HTTP; one that is away says nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.decide.autoscale.forecast.prometheus_forecast import PrometheusForecast, forecast_of
from testbed.kube_api import KubeApi, Request

QUERY = 'predict_linear(sum(gpus{kind="inference"})[30m:1m], 300)'


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {"n": str(n)}, "value": [1e9, value]} for n, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@pytest.fixture
def server() -> Iterator[KubeApi]:
    server = KubeApi()
    yield server
    server.stop()


def test_the_query_is_asked_and_its_values_added_up(server: KubeApi) -> None:
    def answer(request: Request) -> dict[str, Any]:
        assert request.query == {"query": QUERY}
        return vector("1.2", "2")

    server.answers["/api/v1/query"] = answer
    assert PrometheusForecast(url=f"http://127.0.0.1:{server.port}/", query=QUERY).gpus() == 4


@pytest.mark.parametrize(
    ("answer", "gpus"),
    [
        (vector(), 0),
        (vector("NaN", "3"), 3),
        (vector("-2"), 0),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1e9, "2.5"]}}, 3),
    ],
)
def test_what_an_answer_says(answer: dict[str, Any], gpus: int) -> None:
    assert forecast_of(answer) == gpus


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "error", "error": "parse error"},
        {"status": "success", "data": {"resultType": "matrix", "result": []}},
        {"nothing": 1},
        {"status": "success", "data": {"resultType": "vector", "result": [{"value": []}]}},
    ],
)
def test_an_answer_that_is_none_says_nothing(server: KubeApi, answer: dict[str, Any]) -> None:
    server.answers["/api/v1/query"] = lambda _request: answer
    assert PrometheusForecast(url=f"http://127.0.0.1:{server.port}", query=QUERY).gpus() == 0


def test_a_server_that_is_away_says_nothing(server: KubeApi) -> None:
    url = f"http://127.0.0.1:{server.port}"
    server.stop()
    assert PrometheusForecast(url=url, query=QUERY).gpus() == 0
