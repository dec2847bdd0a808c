"""Whatever a description contains, the manifests parse back to exactly that."""

import json
import re
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hvd_elastic.mpijob.checks.target_checks import _DROPPED_BY_TORCHRUN
from hvd_elastic.mpijob.contract import ENV_INCARNATION
from hvd_elastic.mpijob.description import yaml_document
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests import launcher_pod, worker_pod
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem
from tests.mpijob import admission
from tests.mpijob.strategies import jobs, texts
from tests.properties import examples

few = settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))

_TEN = re.compile(r"\$\$|\$\(([^)]*)\)")


def expanded(text: str, environment: dict[str, str]) -> str:
    """`$(NAME)` and `$$` as the kubelet reads them (k8s.io/kubernetes third_party/forked/golang/expansion)."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return environment.get(match[1], match[0])

    return _TEN.sub(replaced, text)


def read(job: dict[str, Any]) -> JobSpec:
    return read_job(None, job)


@given(jobs, st.sampled_from([Target.MPIJOB, Target.PYTORCHJOB]))
@few
def test_the_yaml_stream_reads_back_to_the_same_manifests(job: dict[str, Any], target: Target) -> None:
    if target is Target.PYTORCHJOB:
        job = {key: value for key, value in job.items() if key not in _DROPPED_BY_TORCHRUN}
        job |= {"workers": {**job["workers"], "start": job["workers"]["min"]}} if "autoscale" not in job else {}
    manifests = render(read(job), target)
    assert list(yaml.load_all(dump(manifests), Loader=yaml.CSafeLoader)) == manifests
    assert json.loads(json.dumps(manifests)) == manifests


@given(jobs)
@few
def test_every_manifest_is_admitted(job: dict[str, Any]) -> None:
    for manifest in render(read(job)):
        assert admission.errors(manifest) == []
        assert [
            restricted for _, pod in admission.templates(manifest) for restricted in admission.restricted(pod["spec"])
        ] == []


@given(jobs)
@few
def test_the_command_reaches_the_process_word_for_word(job: dict[str, Any]) -> None:
    spec = read(job)
    words = [expanded(word, {"HOSTNAME": "expanded"}) for word in launcher_pod.command(spec)]
    assert words[-len(spec.command) :] == spec.command
    container = worker_pod.template(spec)["spec"]["containers"][0]
    assert [expanded(word, {"HOSTNAME": "expanded"}) for word in container["command"]][3:] == spec.command
    values = {item["name"]: expanded(item["value"], {"HOSTNAME": "expanded"}) for item in container["env"]}
    assert values | spec.env == values


@given(jobs)
@few
def test_a_job_carries_its_own_description(job: dict[str, Any]) -> None:
    spec = read(job)
    assert read_job(spec.as_json()) == spec


@given(
    st.recursive(
        texts | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=20,
    )
)
@settings(max_examples=examples(100))
def test_the_writer_is_read_back_by_readers_of_yaml_1_1_and_1_2(value: Any) -> None:
    text = dump([{"value": value}])
    assert yaml.load(text, Loader=yaml.CSafeLoader) == {"value": value}
    assert yaml.load(text, Loader=yaml.SafeLoader) == {"value": value}


@given(texts)
@settings(max_examples=examples(100))
def test_text_stays_text_for_our_own_reader(value: str) -> None:
    assert yaml_document.parse(dump([{"value": value}]), name="x") == ({"value": value}, [])


@given(st.text(max_size=200) | st.text(st.sampled_from("{}[]:,-&*!|>'\"# \nab"), max_size=60))
@example("?")
@settings(max_examples=examples(100))
def test_any_text_is_a_job_or_a_list_of_problems(text: str) -> None:
    assert all(problem.path and problem.what for problem in _problems(text))


def _problems(text: str) -> tuple[Problem, ...]:
    try:
        read_job(text)
    except InvalidInputError as error:
        return error.problems
    return ()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["min", "kind", "url", "a"]) | texts, inner, max_size=3)
    ),
    max_leaves=6,
)


@given(job=jobs, key=st.sampled_from(sorted(JobSpec.model_fields)), value=values)
@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
def test_any_value_anywhere_is_rendered_or_refused(job: dict[str, Any], key: str, value: Any) -> None:
    try:
        manifests = render(read_job(None, job | {key: value}))
    except InvalidInputError:
        return
    assert list(yaml.load_all(dump(manifests), Loader=yaml.CSafeLoader)) == manifests


def test_nothing_is_passed_through_a_shell() -> None:
    spec = read_job(None, {"name": "a", "image": "b", "command": ["python", "$(id)", "; reboot"], "workers": "1:2"})
    for manifest in render(spec):
        for _, template in admission.templates(manifest):
            pod = template["spec"]
            for container in (*pod.get("initContainers", []), *pod["containers"]):
                assert container["command"][0] in {"horovodrun", "hvd-elastic"}
                assert "args" not in container
                assert "-c" not in container["command"]


def test_the_launcher_is_known_by_its_uid() -> None:
    spec = read_job(None, {"name": "a", "image": "b", "command": ["python"]})
    environment = {item["name"]: item for item in launcher_pod.container(spec)["env"]}
    assert environment[ENV_INCARNATION]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
