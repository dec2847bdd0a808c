"""Manifests that `generate` writes have no findings, whatever the job description says.

One rule speaks of the cluster, not of the manifest: whether the operator may resume a job (HE608).
"""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.lint.document.manifest_view import json_path
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.examples import GOLDEN
from tests.mpijob.strategies import jobs, names, texts
from tests.properties import examples

rarer = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.builds(lambda name: {"system": "kueue", "name": name}, names),
        "disruption_budget": st.booleans(),
        "engine": st.just("torch"),
        "gpu_type": st.sampled_from(["t4", "v100", "a100", "h100"]),
        "env": st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True), texts, max_size=3),
    },
)


def findings(text: str) -> list[tuple[str, str, str]]:
    documents, problems = lint.read(text)
    assert problems == []
    report = lint.check(documents)
    assert len(report.jobs) == 1
    return [
        (found.rule.id, json_path(found.violation.path), found.violation.message)
        for found in report.findings
        if found.rule.id != "HE608"
    ]


@given(jobs, rarer, st.sampled_from([Target.MPIJOB, Target.MPIJOB_V1]))
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
def test_no_finding_in_what_generate_emits(job: dict[str, Any], more: dict[str, Any], target: Target) -> None:
    try:
        manifests = render(read_job(json.dumps(job | more)), target)
    except InvalidInputError:  # rejecting the description is fine; writing a hazard is not
        return
    assert findings(dump(manifests)) == []


def test_no_finding_in_the_golden_files() -> None:
    written = [path.read_text() for path in sorted(GOLDEN.glob("*.yaml"))]
    mpijobs = [text for text in written if "kind: MPIJob" in text]
    assert mpijobs
    assert [findings(text) for text in mpijobs] == [[]] * len(mpijobs)
