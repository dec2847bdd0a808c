"""Kubernetes' own YAML reader (sigs.k8s.io/yaml, built from its Go module) reads back what our writer wrote."""

import json
import random
import subprocess
from pathlib import Path

import pytest
import yaml

from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from testbed.go_program import go_program
from tests.mpijob.examples import EXAMPLES, Example
from tests.mpijob.strategies import HOSTILE

SOURCES = Path(__file__).parent / "goyaml"
# fmt: off
MIXED = (
    *HOSTILE,
    "y", "n", "Y", "N", "Yes", "ON", "TRUE", "017", "0b1", "1E+3", "+1", "-1", "1.", "1.5", ".5", "1_0", "0X1F",
    "0B1", "0O7", "1:2", "190:20:30", "12e03", ".NaN", "nan", "inf", "Infinity", "2001-12-14t21:59:43.10-05:00", "!",
    "-", "?", ":", "#", "12345e7", "0.0.0.0", "1__0", "+_84", "1e", "e1", "08", "09", "0x", "+.inf", "-.5e1", "1.e5",
)
# fmt: on
ALPHABET = "0123456789eExXoObB_.+-:aynYNtfT ~'\"\\\n\t$(){}[]&*!|>%@`#,\x07\x85\u2028\ufeff\U0001f40d\x7f"


@pytest.fixture(scope="session")
def goyaml() -> Path:
    """The reader."""
    return go_program(SOURCES)


def read_by_go(binary: Path, text: str) -> object:
    done = subprocess.run([str(binary)], input=text.encode(), capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_text_that_looks_like_something_else_stays_text(goyaml: Path) -> None:
    seeded = random.Random(20)
    drawn = ["".join(seeded.choice(ALPHABET) for _ in range(seeded.randint(1, 7))) for _ in range(5000)]
    words = [*MIXED, *drawn]
    assert read_by_go(goyaml, dump([{"words": words, "keys": {word: word for word in words}}])) == {
        "words": words,
        "keys": {word: word for word in words},
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_manifests_read_as_they_were_rendered(goyaml: Path, example: Example) -> None:
    text = example.golden.read_text(encoding="utf-8")
    documents = [read_by_go(goyaml, f"{part}\n") for part in text.removesuffix("\n").split("\n---\n")]
    assert documents == list(yaml.load_all(text, Loader=yaml.CSafeLoader))
