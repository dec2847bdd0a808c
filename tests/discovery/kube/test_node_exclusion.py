"""An exclusion stands in each required term, is taken out without a trace, and is read back from the annotation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.kube.node_exclusion import (
    HOSTNAME,
    MOST_NODES,
    REQUIRED,
    excluded_nodes,
    excluding,
    exclusion_text,
)
from hvd_elastic.mpijob.contract import ANNOTATION_EXCLUDED_NODES
from tests import hostile_values

NOT_THERE = {"key": HOSTNAME, "operator": "NotIn", "values": ["node-7"]}
POOL = {"key": "pool", "operator": "In", "values": ["a"]}
SPOT = {"key": "spot", "operator": "Exists"}
BY_NAME = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [*terms]}}}


@pytest.mark.parametrize(
    ("affinity", "excluded"),
    [
        ({}, required({"matchExpressions": [NOT_THERE]})),
        (
            {"podAffinity": {"a": []}, "nodeAffinity": {"preferred": []}},
            {
                "podAffinity": {"a": []},
                "nodeAffinity": {"preferred": [], **required({"matchExpressions": [NOT_THERE]})["nodeAffinity"]},
            },
        ),
        (
            required({"matchExpressions": [POOL]}, {"matchExpressions": [SPOT], "matchFields": [BY_NAME]}),
            required(
                {"matchExpressions": [POOL, NOT_THERE]},
                {"matchExpressions": [SPOT, NOT_THERE], "matchFields": [BY_NAME]},
            ),
        ),
        (
            required({"matchFields": [BY_NAME]}, {}),
            required({"matchExpressions": [NOT_THERE], "matchFields": [BY_NAME]}, {}),
        ),
    ],
    ids=["none", "others", "terms", "a term that matches nothing"],
)
def test_it_is_put_into_each_term_and_taken_out_again(affinity: dict[str, Any], excluded: dict[str, Any]) -> None:
    assert excluding(affinity, ["node-7"]) == excluded
    assert excluding(excluded, ["node-7"], in_place_of=["node-7"]) == excluded
    assert excluding(excluded, [], in_place_of=["node-7"]) == affinity
    more = excluding(excluded, ["node-7", "node-8"], in_place_of=["node-7"])
    assert excluding(more, ["node-7"], in_place_of=["node-7", "node-8"]) == excluded


def test_what_a_person_excludes_stays() -> None:
    own = required({"matchExpressions": [{**NOT_THERE, "values": ["node-1"]}]})
    assert excluding(excluding(own, ["node-7"]), [], in_place_of=["node-7"]) == own


def job(text: object) -> dict[str, Any]:
    return {"metadata": {"annotations": {ANNOTATION_EXCLUDED_NODES: text}}}


def test_the_annotation_is_read_as_it_was_written() -> None:
    nodes = {"node-7": 1.8e9, "ip-10-0-0-1.ec2.internal": 1.8e9 + 60}
    assert exclusion_text(nodes) == (
        "node-7=2027-01-15T08:00:00+00:00,ip-10-0-0-1.ec2.internal=2027-01-15T08:01:00+00:00"
    )
    assert excluded_nodes(job(exclusion_text(nodes))) == nodes
    assert excluded_nodes({"metadata": {}}) == {}


@given(hostile_values.texts | st.lists(hostile_values.texts, max_size=4).map("=".join))
def test_whatever_stands_there_is_few_nodes_or_none(text: str) -> None:
    for written in (text, f"a={text},b=2027-01-15T08:00:00Z,c=2027-01-15T08:00:00Z"):
        assert len(excluded_nodes(job(written))) <= MOST_NODES
