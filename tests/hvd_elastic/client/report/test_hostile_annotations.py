"""What a tenant writes into his MPIJob, Events and ledger ends no `list -A`, `status` or `cost` of an administrator."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.cli.inspection.list import _row
from hvd_elastic.client.connection.cluster_client import ClusterError
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob
from hvd_elastic.client.report.bill import bill_of
from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.client.report.job_list import listed, total
from hvd_elastic.client.report.job_status import job_status
from hvd_elastic.client.report.prices import PriceList
from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.client.report.stage_status import wanted_stage
from hvd_elastic.client.report.status_text import status_text
from hvd_elastic.client.report.story import tell
from hvd_elastic.client.report.words.time_words import clock_words, date_words
from hvd_elastic.client.sweep.sweep_record import SweepRecord
from hvd_elastic.client.sweep.turns import SweepJob
from hvd_elastic.discovery.ledger.entries import Entry, LedgerSums, Totals, WorkerBound, from_lines
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.discovery.rules.cluster_views import JobView
from hvd_elastic.discovery.rules.scale_down import plan_scale
from hvd_elastic.mpijob.contract import (
    ANNOTATION_AUTOSCALER,
    ANNOTATION_SPEC,
    ANNOTATION_STATUS,
    ANNOTATION_TURN,
    ANNOTATION_WANTED_WORKERS,
)
from hvd_elastic.system.untrusted_values import END_OF_DATES
from tests import hostile_values
from tests.hvd_elastic.client.report.objects import NOW, event, mpijob

Json = dict[str, Any]

ANNOTATIONS = (ANNOTATION_AUTOSCALER, ANNOTATION_SPEC, ANNOTATION_STATUS, ANNOTATION_TURN, ANNOTATION_WANTED_WORKERS)
STATUS = {"unix": NOW, "activity": "training", "since": NOW}

statuses = hostile_values.documents(LiveStatus)
descriptions = hostile_values.altered(
    {"name": "j", "workers": {"min": 1, "max": 4, "gpus": 1}, "stage": {"source": "s3://b/c", "rearrange": "x"}}
).map(json.dumps)
notes = hostile_values.documents(ScalingNote, speeds=hostile_values.altered({"4": [1.0, 2]}))


def annotated(**annotations: str) -> Json:
    job = mpijob()
    job["metadata"]["annotations"] |= {f"hvd-elastic.dev/{key}": value for key, value in annotations.items()}
    return job


def told(job: Json) -> None:
    """All that is said of an MPIJob alone, and of one whose ledger is gone."""
    found = listed(job, NOW)
    assert _row(found)
    assert total([found])
    facts = JobFacts(job=job, now=NOW)
    assert status_text(job_status(facts))
    bill_of(facts, PriceList(currency="USD", machines={}))
    wanted_stage(job)
    ScalingNote.of_job(job)
    SweepJob.from_json(job)
    view = JobView.from_json(job)
    assert plan_scale(view, (), {}, min_workers=1, max_workers=8)
    submitted = SubmittedJob.from_json(job)
    assert submitted.asked >= 0
    with contextlib.suppress(JobStateError):
        assert submitted.description


@pytest.mark.parametrize("text", hostile_values.TEXTS)
@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_no_annotation_ends_what_is_told_of_a_job(annotation: str, text: str) -> None:
    job = mpijob()
    job["metadata"]["annotations"][annotation] = hostile_values.TEXTS[text]
    told(job)


@pytest.mark.parametrize(
    "status",
    [{"step": "x"}, {"unix": "x"}, {"gpu_seconds": "x"}, {"gpu_seconds": 1e300}, {"pause_seconds": -1e300}],
)
def test_a_status_with_a_value_that_it_cannot_have_is_none(status: Json) -> None:
    job = annotated(status=json.dumps({**STATUS, **status}))
    assert listed(job, NOW).gpu_seconds is None
    told(job)


@given(
    status=statuses | hostile_values.texts,
    job=descriptions | hostile_values.texts,
    autoscaler=notes | hostile_values.texts,
    wanted=hostile_values.words,
)
def test_whatever_stands_there_it_is_told(status: str, job: str, autoscaler: str, wanted: str) -> None:
    told(annotated(status=status, job=job, autoscaler=autoscaler, **{"wanted-workers": wanted, "sweep-turn": wanted}))


def test_a_description_in_yaml_is_none_of_ours() -> None:
    """One of 377 bytes took 2.3 s and 167 MiB: each level is four times the one before."""
    lines = ["name: x", "image: a/b:1", "command: [python, t.py]", '"autoscale": {}', "a0: &a0 {k0: 1, k1: 1, k2: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 4)}]}}" for n in range(1, 30)]
    with pytest.raises(JobStateError, match="job description of another release"):
        SubmittedJob.from_json(annotated(job="\n".join(lines))).description  # noqa: B018


def test_more_replicas_than_a_job_can_have_fill_no_memory() -> None:
    job = mpijob(replicas=2**31 - 1)
    assert len(JobFacts(job=job, now=NOW).asked_workers) == 100_000


@pytest.fixture(params=["XXX-14", "XXX+12"])
def far_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone in which a day begins first, and the one in which it ends last."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_zone")
@pytest.mark.parametrize("year", ["0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01"])
def test_a_year_that_no_clock_shows_ends_nothing(year: str) -> None:
    said = event("train", "Odd", "said", unix=NOW) | {"lastTimestamp": f"{year}T13:59:59Z"}
    job = mpijob()
    job["status"]["completionTime"] = said["lastTimestamp"]
    told(job)
    facts = JobFacts(job=job, now=NOW, events=(said,))
    assert status_text(job_status(facts))
    assert [clock_words(one.unix, NOW) for one in tell(facts)]


@pytest.mark.usefixtures("far_zone")
def test_the_last_time_that_a_ledger_may_have_is_shown() -> None:
    (last,) = from_lines([json.dumps({"kind": "world-changed", "unix": END_OF_DATES - 1, "workers": []})])
    assert clock_words(last.unix, NOW)
    assert date_words(last.unix).startswith("9999-12-")


ENTRIES = st.one_of(*(hostile_values.documents(made, kind=st.just(made.kind)) for made in Entry.__args__))
MANY = hostile_values.altered(
    {
        "kind": "many",
        "each": WorkerBound.kind,
        "same": {"unix": 1.0, "node": "n"},
        "columns": {"pod": ["p-", ["1", "2"]], "uid": ["a", "b"]},
    }
).map(json.dumps)
WORLD = hostile_values.altered(
    {"kind": "world-changed", "unix": 1.0, "rank0": "p-1", "pods": {"p-": "0-3,5"}}
).map(json.dumps)  # fmt: skip


@given(st.lists(ENTRIES | MANY | WORLD | hostile_values.texts, max_size=8))
def test_any_ledger_has_a_bill(lines: list[str]) -> None:
    facts = JobFacts(job=mpijob(), now=NOW, ledger=tuple(from_lines(lines)))
    assert bill_of(facts, PriceList(currency="USD", machines={}))
    assert status_text(job_status(facts))


def test_sums_that_no_job_can_have_cost_their_line() -> None:
    line = {"kind": Totals.kind, "unix": 1.0, "began": 1.0, "gpu_seconds": {"m|spot": 1e300}}
    assert list(from_lines([json.dumps(line)])) == []
    assert len(list(from_lines([json.dumps({**line, "gpu_seconds": {"m|spot": 1e12}})]))) == 1
    assert {each.name for each in fields(LedgerSums)} >= {"pause_seconds", "gpu_seconds"}


RECORD = {
    "name": "s",
    "at_once": 2,
    "kueue": False,
    "complete": True,
    "description": {"name": "s"},
    "jobs": [{"job": "s-1", "values": {"lr": "0.1"}}],
}


@given(hostile_values.altered(RECORD).map(json.dumps) | hostile_values.texts)
def test_a_sweep_is_read_whole_or_not_at_all(text: str) -> None:
    config_map = {"metadata": {"name": "s-sweep", "uid": "u"}, "data": {"sweep.json": text}}
    try:
        record = SweepRecord.from_json(config_map)
    except ClusterError:
        return
    assert all(isinstance(value, str) for job in record.jobs for value in job.point.values())
    assert record.manifest("team")
    assert record.needs_runner in {True, False}
