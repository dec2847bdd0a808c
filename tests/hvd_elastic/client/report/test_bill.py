"""Money is what the held GPUs cost; what has no price is said."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hvd_elastic.client.report.bill import Bill, bill_of, repeated_gpu_seconds
from hvd_elastic.client.report.bill_text import bill_text
from hvd_elastic.client.report.prices import MachinePrice, PriceList, read_prices
from hvd_elastic.discovery.ledger.account import JobAccount
from hvd_elastic.discovery.ledger.entries import JobEnded, RecordLost
from hvd_elastic.mpijob.contract import ANNOTATION_GPU_RESOURCE
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.hvd_elastic.client.report.objects import LEDGER, NOW, bound, condition, facts, live, mpijob

PRICES = PriceList(
    currency="USD", machines={"g5.xlarge": MachinePrice(gpus=1, on_demand=3.6, spot=1.8)}, as_of="2026-01-19"
)
HELD = 890.0 + 890.0 + 285.0
"""GPU-seconds: two workers from NOW - 890 on, and one that was preempted."""


def made(**fields: object) -> Bill:
    bill = bill_of(facts(**fields), PRICES)
    assert bill is not None
    return bill


def test_spot_costs_less_than_the_same_on_demand() -> None:
    bill = made()
    assert bill.gpu_seconds == HELD
    assert math.isclose(bill.cost, HELD * 1.8 / 3600)
    assert math.isclose(bill.saved, HELD * 1.8 / 3600)
    assert bill.unpriced_gpu_seconds == 0.0
    assert bill.lent_gpu_seconds == 605.0
    assert bill.stalled_gpu_seconds == 6.0


def test_what_surplus_workers_hold_is_idle() -> None:
    bill = made(ledger=(*LEDGER, bound(NOW - 360, 2, uid="surplus")))
    assert bill.idle_gpu_seconds - made().idle_gpu_seconds == 360.0
    assert "  idle 0.1" in bill_text(bill, PRICES)


def test_a_job_that_has_ended_costs_no_more() -> None:
    ledger = (*LEDGER, JobEnded(unix=NOW - 400, succeeded=True))
    assert made(ledger=ledger).gpu_seconds == HELD - 800.0
    ended = mpijob(conditions=[condition("Succeeded")], ended=NOW - 400)
    assert made(job=ended).gpu_seconds == HELD - 800.0


def test_a_suspended_job_without_pods_costs_no_more() -> None:
    suspended = mpijob(suspend=True, conditions=[condition("Suspended", at=NOW - 400)])
    assert made(job=suspended, pods=()).gpu_seconds == HELD - 800.0
    assert made(job=suspended).gpu_seconds == HELD


@pytest.mark.parametrize("unknown", [bound(NOW - 100, 2, uid="new", spot=None)])
def test_what_is_not_known_is_said_and_not_guessed(unknown: object) -> None:
    bill = made(ledger=(*LEDGER, unknown))
    assert bill.unpriced_gpu_seconds == 100.0
    assert math.isclose(bill.cost, HELD * 1.8 / 3600)
    text = bill_text(bill, PRICES)
    assert "g5.xlarge, spot or on-demand is not known: 0.03 GPU-hours, no price is known" in text
    assert "not in the cost: 0.03 GPU-hours. No label of a node, g5.xlarge, says whether it is spot\n" in text


def test_a_part_of_a_gpu_costs_its_share_of_the_machine() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    template = {"metadata": {"annotations": {ANNOTATION_GPU_RESOURCE: mig}}}
    job = mpijob(status=live())
    job["spec"]["mpiReplicaSpecs"]["Worker"]["template"] = template
    bill = made(job=job)
    assert (bill.cost, bill.unpriced_gpu_seconds) == (0.0, HELD)
    assert f"Give the number of {mig} of g5.xlarge, under `parts`, with --prices" in bill_text(bill, PRICES)
    cut = MachinePrice(gpus=1, on_demand=3.6, spot=1.8, parts={mig: 7})
    priced = bill_of(facts(job=job), replace(PRICES, machines={"g5.xlarge": cut}))
    assert priced is not None
    assert math.isclose(priced.cost, HELD * 1.8 / 3600 / 7)


def test_what_would_price_the_rest_is_named() -> None:
    unread = bound(NOW - 100, 2, uid="new", machine="", spot=None)
    bill = made(ledger=(*LEDGER, unread))
    assert "not in the cost: 0.03 GPU-hours. `read_nodes: true` in the job reads from then on" in bill_text(
        bill, PRICES
    )
    other = made(ledger=(*LEDGER, bound(NOW - 100, 2, uid="new", machine="our-box", spot=False)))
    assert "Give the price of our-box, on-demand, with --prices" in bill_text(other, PRICES)


def test_a_job_that_lent_nothing_is_not_told_so() -> None:
    assert "lent" not in bill_text(replace(made(), preemptions=0), PRICES)


def test_a_spot_price_that_is_not_known_is_not_the_on_demand_price() -> None:
    prices = PriceList(currency="USD", machines={"g5.xlarge": MachinePrice(gpus=1, on_demand=3.6)})
    bill = bill_of(facts(), prices)
    assert bill is not None
    assert (bill.cost, bill.on_demand_cost, bill.unpriced_gpu_seconds) == (0.0, 0.0, HELD)
    assert "  cost" not in bill_text(bill, prices)


def test_a_job_without_a_ledger_has_no_bill() -> None:
    assert bill_of(facts(ledger=None, job=mpijob()), PRICES) is None


@pytest.mark.parametrize("ledger", [None, (), LEDGER[:1]])
def test_where_the_ledger_is_gone_the_bill_is_what_the_sidecar_told(ledger: object) -> None:
    told = live(gpu_seconds=7200.0, training_seconds=2400.0, launchers=1, unix=NOW - 20)
    bill = made(ledger=ledger, job=mpijob(status=told))
    assert (bill.gpu_seconds, bill.unpriced_gpu_seconds, bill.told) == (7200.0, 7200.0, NOW - 20)
    text = bill_text(bill, PRICES)
    assert "held 2.00 GPU-hours, trained 40 min 00 s" in text
    assert "On which machines they were held stood in the ledger" in text
    assert "  the ledger is gone or lacks entries: this is what the job's sidecar told at 2027-01-1" in text


def test_a_bill_of_which_a_part_was_lost_says_since_when_it_counts() -> None:
    assert (made().counts_since, made().told) == (None, None)
    bill = made(ledger=(RecordLost(unix=NOW - 900), *LEDGER))
    assert (bill.gpu_seconds, bill.counts_since) == (HELD, NOW - 900)
    assert "  counted since 2027-01-1" in bill_text(bill, PRICES)


def test_repeated_steps_cost_their_share_of_all_steps() -> None:
    account = JobAccount(step=90, repeated_steps=10, gpu_seconds={"a|spot": 1100.0}, stalled_gpu_seconds=100.0)
    assert repeated_gpu_seconds(account) == 100.0
    assert repeated_gpu_seconds(JobAccount(repeated_steps=10)) == 0.0
    assert repeated_gpu_seconds(JobAccount(step=0)) == 0.0


def test_the_text_names_what_was_held_lent_lost_and_saved() -> None:
    text = bill_text(made(), PRICES)
    assert text.startswith("default/train: held 0.57 GPU-hours, trained 13 min 20 s\n")
    assert "  g5.xlarge, spot: 0.57 GPU-hours, 1.03 USD\n" in text
    assert "cost 1.03 USD; on demand 2.06, saved 1.03 (prices of 2026-01-19)" in text


def test_the_prices_that_ship_are_dated_and_each_is_one() -> None:
    shipped = read_prices()
    assert shipped.as_of
    assert shipped.machines["p4d.24xlarge"].gpus == 8
    assert shipped.machines["Standard_NC48ads_A100_v4"].gpus == 2
    for price in shipped.machines.values():
        assert price.on_demand > 0
        assert price.spot is None or 0 < price.spot < price.on_demand


def test_a_price_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("currency: EUR\nmachines:\n  our-box: {gpus: 4, on_demand: 7.2}\n")
    prices = read_prices(path)
    assert (prices.currency, prices.as_of) == ("EUR", "")
    assert prices.machines["our-box"].per_gpu_second(spot=False) == 7.2 / 4 / 3600
    assert prices.machines["our-box"].per_gpu_second(spot=True) is None


def test_all_problems_of_a_price_file_are_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "currency: 3\nas_of: [2026]\nmachines:\n  a: {gpus: 0, on_demand: 1}\n  b: {gpus: 2}\n  c: 4\n"
        "  d: {gpus: 1, on_demand: .nan}\n  e: {gpus: 1, parts: {a/b: 0}, on_demand: 1}\n"
        "  f: {gpus: 1, parts: 7, on_demand: 1}\n"
    )
    with pytest.raises(InvalidInputError) as caught:
        read_prices(path)
    paths = [problem.path for problem in caught.value.problems]
    assert paths == [
        "currency",
        "as_of",
        "machines.a.gpus",
        "machines.b.on_demand",
        "machines.c",
        "machines.d.on_demand",
        "machines.e.parts.a/b",
        "machines.f.parts",
    ]


@pytest.mark.parametrize("text", ["[", "[]", "currency: USD\n", "\0"])
def test_what_is_no_price_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError):
        read_prices(path)
