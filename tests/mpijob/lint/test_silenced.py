"""What is silenced is said, with the reason."""

from typing import Any

import yaml

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.check import GENERATED
from hvd_elastic.mpijob.lint.report import lint_report
from hvd_elastic.mpijob.manifests.writers import yaml_stream
from tests.mpijob.lint.overlay import CLEAN


def clean_with(annotations: dict[str, str], grace: int) -> lint.LintReport:
    documents: list[Any] = list(yaml.safe_load_all(CLEAN.read_text()))
    documents[-1]["metadata"]["annotations"] = annotations
    documents[-1]["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    read, _ = lint.read(yaml_stream.dump(documents))
    return lint.check(read)


def test_what_a_job_description_chose_is_silenced_aloud() -> None:
    assert [finding.rule.id for finding in clean_with({}, 1).findings] == ["HE305"]
    report = clean_with({"hvd-elastic.dev/job": "{}"}, 1)
    assert report.findings == ()
    assert [finding.rule.id for finding in report.silenced] == ["HE305"]
    assert lint_report.summary(report).splitlines() == [
        "1 job: no findings; 1 silenced",
        f"silenced in fashion: HE305: {GENERATED}",
    ]
    assert "(annotation hvd-elastic.dev/job)" in GENERATED


def test_an_annotations_own_reason_is_shown() -> None:
    report = clean_with({"hvd-elastic.dev/job": "{}", "lint.hvd-elastic.dev/short-grace": "steps of\n1 ms"}, 1)
    assert lint_report.summary(report).splitlines()[1] == "silenced in fashion: HE305: steps of 1 ms"
