"""How each way of training meets a cluster that changes: which workers it asks for, what it makes of each change."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from hvd_elastic.decide.simulate.engine.job_run import Response
from hvd_elastic.decide.simulate.ways.elastic_way import ElasticWay
from hvd_elastic.decide.simulate.ways.restart_way import RestartWay
from hvd_elastic.decide.simulate.ways.static_way import StaticWay
from hvd_elastic.decide.simulate.ways.stock_way import StockWay
from hvd_elastic.decide.simulate.workload import Way

RESPONSES: Final[Mapping[Way, Callable[[], Response]]] = MappingProxyType(
    {Way.STATIC: StaticWay, Way.STOCK: StockWay, Way.RESTART: RestartWay, Way.OURS: ElasticWay}
)
"""One response for each job; the oracle needs none."""
