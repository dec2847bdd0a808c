"""The schema knows what the reader knows."""

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from hvd_elastic.mpijob.description.json_schema import schema
from hvd_elastic.mpijob.description.keys import KEYS
from hvd_elastic.mpijob.description.pod_schema import PREFIX
from tests.mpijob.examples import EXAMPLES, Example
from tests.mpijob.strategies import jobs
from tests.properties import examples

VALIDATOR = Draft202012Validator(schema())


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())
    assert json.loads(json.dumps(schema())) == schema()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_are_valid(example: Example) -> None:
    content = yaml.safe_load(example.path.read_text())
    assert [error.message for error in VALIDATOR.iter_errors(content)] == []


@given(jobs)
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
def test_what_the_reader_takes_is_valid(job: dict[str, object]) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(job)] == []


@pytest.mark.parametrize("path", sorted(KEYS))
def test_every_key_is_described(path: str) -> None:
    assert KEYS[path].help.endswith((".", "`")), KEYS[path].help


def test_descriptions_and_defaults_are_there() -> None:
    made = schema()
    assert made["properties"]["lost_node"]["default"] == 30
    assert made["properties"]["lost_node"]["description"].startswith("Seconds")
    assert "GPUs of each worker" in json.dumps(made["$defs"]["Workers"])
    assert made["additionalProperties"] is False


def test_sections_have_the_names_that_users_know() -> None:
    made = schema()
    assert {"Workers", "Launcher", "Batch", "Checkpoint", "Priority", "Queue", "Network", "Autoscale"} <= set(
        made["$defs"]
    )
    ours = {name: one for name, one in made["$defs"].items() if not name.startswith(PREFIX)}
    assert [line for line in json.dumps(ours, indent=1).splitlines() if "Spec" in line and PREFIX not in line] == []


@pytest.mark.parametrize("wrong", [{"nmae": "a"}, {"workers": {"mni": 1}}, {"cloud": "moon"}, {"restarts": "many"}])
def test_mistakes_are_seen(wrong: dict[str, object]) -> None:
    assert list(VALIDATOR.iter_errors({"name": "a", "command": ["b"]} | wrong))
