"""The forms in which a manifest is handed on: what kubectl reads is linted as the plain file is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hvd_elastic.cli.submission.lint import command
from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.lint_input import read_input
from tests.mpijob.lint.overlay import MANIFESTS

PLAIN = (MANIFESTS / "reported" / "old-example.yaml").read_text()
JOB: dict[str, Any] = yaml.safe_load(PLAIN)


def found(text: str) -> list[list[str]]:
    """What is found in each job of a text that is read whole, rule by rule."""
    given = read_input(text, "f")
    assert given.problems == ()
    report = lint.check(list(given.documents))
    findings = [(finding.job, finding.rule.id) for finding in report.findings]
    return [sorted(rule for job, rule in findings if job.view == one.view) for one in report.jobs]


def server_dump() -> str:
    written = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(JOB)}
    metadata = {
        "annotations": written,
        "creationTimestamp": "2026-03-20T15:37:12Z",
        "generation": 1,
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {".": {}}}}],
        "resourceVersion": "123",
        "selfLink": "/apis/kubeflow.org/v2beta1/x",
        "uid": "9a0f",
    }
    status = {"conditions": [{"type": "Created", "status": "True"}], "replicaStatuses": {"Launcher": {}}}
    return yaml.safe_dump(JOB | {"metadata": JOB["metadata"] | metadata, "status": status})


def in_a_list(kind: str) -> str:
    beside = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": ""}, "items": [beside, JOB]}
    )


FORMS: dict[str, Callable[[], str]] = {
    "CR LF": lambda: PLAIN.replace("\n", "\r\n"),
    "CR": lambda: PLAIN.replace("\n", "\r"),
    "trailing tabs": lambda: PLAIN.replace("\n", "\t\n"),
    "List": lambda: in_a_list("List"),
    "MPIJobList": lambda: in_a_list("MPIJobList"),
    "JSON": lambda: json.dumps(JOB, indent=4),
    "JSON on one line": lambda: json.dumps(JOB),
    "a trailing comma": lambda: json.dumps(JOB, indent=4).replace("\n    }", ",\n    }"),
    "from the server": server_dump,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_changes_nothing(form: str) -> None:
    assert found(FORMS[form]()) == found(PLAIN)


def test_json_objects_may_follow_one_another() -> None:
    second = JOB | {"metadata": {"name": "second"}}
    text = "\n".join([json.dumps(JOB), "", json.dumps(second, indent=1), ""])
    assert found(text) == found(PLAIN) * 2
    documents, _ = lint.read(text)
    assert documents[1].source_range(("metadata",)).line == 6


def test_a_byte_order_mark_is_none_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xef\xbb\xbf" + PLAIN.encode())
    (tmp_path / "plain.yaml").write_text(PLAIN)
    marked, plain = (CliRunner().invoke(command, [str(tmp_path / name)]) for name in ("job.yaml", "plain.yaml"))
    assert marked.stdout.replace("job.yaml", "plain.yaml") == plain.stdout


def test_utf_16_is_named_with_its_way_out(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(PLAIN.encode("utf-16"))
    error = CliRunner().invoke(command, [str(tmp_path / "job.yaml")]).exception
    assert str(error).endswith("not UTF-8 at byte 0: save it as UTF-8")


@pytest.mark.parametrize(
    ("written", "pasted", "new"),
    [
        ("    cleanPodPolicy", "    \u00a0cleanPodPolicy", {"HE901", "HE603"}),  # the blank belongs to the key
        ('"2"', "\u201c2\u201d", {"HE108"}),
    ],
)
def test_what_an_editor_made_of_blanks_and_quotes_is_found(written: str, pasted: str, new: set[str]) -> None:
    (plain,), (changed,) = found(PLAIN), found(PLAIN.replace(written, pasted, 1))
    assert set(changed) - set(plain) == new


def test_anchors_and_parts_of_a_template_are_expanded() -> None:
    text = """\
x-pod: &pod {image: registry.example.com/t:horovod0.28.1}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: anchored}
spec:
  mpiReplicaSpecs:
    Launcher:
      template: &t
        spec:
          containers:
          - &c {name: main, image: registry.example.com/t:horovod0.28.1, command: [mpirun, -np, "2", ./a]}
    Worker:
      replicas: 2
      template:
        <<: *t
        spec: {containers: [{<<: *c, command: [sleep, 1d]}]}
"""
    (rules,) = found(text)
    assert "HE144" in rules
    assert not {rule for rule in rules if rule.startswith("HE9")}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("apiVersion: kai.alibabacloud.com/v1alpha1\nkind: TrainingJob\n", ", but a TrainingJob"),
        ("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n", ", but a TrainJob"),
        ("# nothing yet\n---\n", ""),
        ("", ""),
    ],
)
def test_a_file_without_a_job_is_no_success(text: str, kinds: str) -> None:
    error = CliRunner().invoke(command, [], input=text).exception
    assert f"-: holds no MPIJob and no job description{kinds}: name the file" in str(error)


def test_an_array_of_jobs_is_seen() -> None:
    problems = read_input(json.dumps([JOB, JOB], indent=1), "f").problems
    assert [problem.what for problem in problems] == ["an MPIJob inside a list is seen, and not read"] * 2
