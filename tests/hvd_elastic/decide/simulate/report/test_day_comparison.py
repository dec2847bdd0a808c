"""Ways side by side, their bill, and their picture."""

import csv
import json
from dataclasses import fields, replace
from xml.etree import ElementTree

import pytest

from hvd_elastic.client.report.prices import MachinePrice, PriceList
from hvd_elastic.decide.simulate.day import Day, NodeLife
from hvd_elastic.decide.simulate.outcome import DayOutcome, JobOutcome
from hvd_elastic.decide.simulate.report.day_bill import gpu_second_price, price_remark, priced
from hvd_elastic.decide.simulate.report.day_comparison import as_plain, compared, comparison_csv
from hvd_elastic.decide.simulate.report.day_picture import day_picture
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls, Way
from hvd_elastic.policy.job_demand import Speeds
from tests.hvd_elastic.decide.simulate.even_simulator import even_simulator

DAY = Day(source="a <day>", seconds=7200, nodes=(NodeLife(name="n", gpus=8, machine="box", spot=False),))
STALLS = Stalls(
    pod_start=1, first_step=720, grow=1, shrink=1, death=1, node_lost=1, node_replaced=1, gpu_free=1, bind=1, restart=1
)
JOB = SimulatedJob(name="a", min=1, start=1, max=4, speeds=Speeds((0.0, 1.0, 2.0, 3.0, 4.0)), samples_per_step=8)
PRICES = PriceList(currency="USD", machines={"box": MachinePrice(gpus=8, on_demand=16, spot=8)}, as_of="2026-01-01")


def played(*jobs: SimulatedJob) -> list[DayOutcome]:
    return [priced(even_simulator(DAY, jobs, way, STALLS), DAY, PRICES) for way in (Way.OURS, Way.STOCK)]


def test_one_job_has_one_row_a_way() -> None:
    ours, stock = compared(played(JOB))
    assert (ours.way, ours.job, stock.way) == ("ours", "all", "stock")
    assert ours.goodput == pytest.approx(0.9)
    assert (ours.useful_gpu_hours, ours.held_gpu_hours, ours.given_gpu_hours) == pytest.approx((7.2, 8, 8))
    assert (ours.pauses, ours.paused_seconds) == (2, 3.5)
    assert ours.cost == pytest.approx(16)


def test_several_jobs_have_a_row_each_and_their_sum() -> None:
    rows = compared(played(JOB, replace(JOB, name="b", samples=360)))[:3]
    assert [row.job for row in rows] == ["all", "a", "b"]
    together, a, b = rows
    assert together.useful_gpu_hours == pytest.approx(a.useful_gpu_hours + b.useful_gpu_hours)
    assert together.cost == pytest.approx((a.cost or 0) + (b.cost or 0))
    assert together.completed is a.completed is None
    assert b.completed == pytest.approx(810)


def test_csv_and_json_have_all_of_it() -> None:
    outcomes = played(JOB)
    rows = list(csv.DictReader(comparison_csv(compared(outcomes)).splitlines()))
    assert [(row["way"], row["job"], row["completed"]) for row in rows] == [("ours", "all", ""), ("stock", "all", "")]
    plain = json.loads(json.dumps(as_plain(outcomes), allow_nan=False))
    assert plain[0]["jobs"][0]["sizes"] == [{"second": 0.0, "workers": 4}]
    assert plain[0]["jobs"][0].keys() == {column.name for column in fields(JobOutcome)}
    assert plain[0]["goodput"] == pytest.approx(0.9)


def test_nodes_of_several_prices_cost_their_mean() -> None:
    spot = NodeLife(name="s", gpus=8, machine="box", since=3600, until=9999)
    mixed = replace(DAY, nodes=(*DAY.nodes, spot))
    assert gpu_second_price(mixed, PRICES) == pytest.approx((2 * 2 + 1 * 1) / 3 / 3600)
    assert price_remark(mixed, PRICES) == "cost in USD, at the mean price of the nodes, prices of 2026-01-01"


@pytest.mark.parametrize(
    ("machine", "prices", "said"),
    [
        ("", PRICES, "--machine names the type of the nodes"),
        ("crate", PRICES, "the price list lacks the price of crate"),
        ("box", replace(PRICES, machines={"box": MachinePrice(gpus=8, on_demand=16)}), "lacks the spot price"),
    ],
)
def test_nothing_is_guessed_where_a_price_is_not_known(machine: str, prices: PriceList, said: str) -> None:
    day = replace(DAY, nodes=(NodeLife(name="n", gpus=8, machine=machine),))
    (outcome,) = [priced(even_simulator(day, [JOB], Way.OURS, STALLS), day, prices)]
    assert outcome.jobs[0].cost is None
    assert compared([outcome])[0].cost is None
    assert said in price_remark(day, prices)


def test_the_picture_has_a_line_for_each_job_of_each_way() -> None:
    svg = ElementTree.fromstring(day_picture(played(JOB, replace(JOB, name="b<"))))
    space = "{http://www.w3.org/2000/svg}"
    assert [path.findtext(f"{space}title") for path in svg.iter(f"{space}path")] == ["a", "b<"] * 2
    words = [text.text or "" for text in svg.iter(f"{space}text")]
    assert any("a <day>" in word for word in words)
    assert words[1:3] == ["a", "b<"]
    assert "ours: goodput 90.0%" in words
    assert len(list(svg.iter(f"{space}rect"))) == 1 + 2 * 2
