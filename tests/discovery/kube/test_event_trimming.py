"""Trimming an event does not change what is read from it."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.discovery.kube.event_trimming import trim_pod
from hvd_elastic.discovery.rules.cluster_views import PodView
from testbed.kube_api import pod
from tests.properties import examples

HOSTILE = st.sampled_from(
    ['}]},"spec":{', '},"status":{', '"managedFields":[', '"nodeName":"other"', "\\", '"', "é\n", "fine"]
)
TEXTS = st.lists(HOSTILE, max_size=3).map("".join)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    made = pod(
        draw(st.integers(0, 3)),
        ready=draw(st.booleans()),
        node=draw(st.sampled_from(["", "node-a"])),
        scheduled=draw(st.sampled_from(["True", "False"])),
        nominated=draw(st.sampled_from(["", "node-b"])),
        disrupted=draw(TEXTS),
        annotations={draw(TEXTS): draw(TEXTS)},
    )
    made["metadata"]["resourceVersion"] = "7"
    environment = draw(st.lists(st.fixed_dictionaries({"name": TEXTS, "value": TEXTS}), max_size=3))
    made["spec"] = {"containers": [{"name": "worker", "env": environment}], **made["spec"]}
    made["metadata"]["managedFields"] = [{"manager": draw(TEXTS), "fieldsV1": {"f:spec": {"f:x": {}}}}]
    made["status"]["message"] = draw(TEXTS)
    return {"type": "MODIFIED", "object": made}


def line_of(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def read(line: bytes) -> tuple[PodView, str]:
    about = json.loads(line)["object"]
    return PodView.from_json(about), about["metadata"]["resourceVersion"]


@given(events())
def test_a_trimmed_pod_reads_as_the_whole_one(event: dict[str, Any]) -> None:
    line = line_of(event)
    assert read(trim_pod(line)) == read(line)
    assert len(trim_pod(line)) < len(line)


@settings(max_examples=examples(50))
@given(events(), st.data())
def test_any_other_order_of_the_keys_reads_the_same(event: dict[str, Any], data: st.DataObject) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shuffled(value[key]) for key in data.draw(st.permutations(list(value)))}
        return [shuffled(one) for one in value] if isinstance(value, list) else value

    line = line_of(shuffled(event))
    assert read(trim_pod(line)) == read(line)


def test_managed_fields_that_are_not_the_last_stay_with_what_follows_them() -> None:
    made = pod(0)
    owners = made["metadata"].pop("ownerReferences")
    made["metadata"] = {"managedFields": [{}], **made["metadata"], "ownerReferences": owners}
    event = {"type": "MODIFIED", "object": made}
    assert trim_pod(line_of(event)) == line_of(event)


@given(st.binary(max_size=200))
def test_a_line_that_is_not_a_pod_is_unchanged(line: bytes) -> None:
    assert trim_pod(line) == line
