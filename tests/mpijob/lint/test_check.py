"""Running the rules never fails, whatever a manifest contains."""

from typing import Any

from hypothesis import HealthCheck, given, settings

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.report import lint_report, sarif
from hvd_elastic.mpijob.manifests.writers import yaml_stream
from tests.mpijob.lint.mangled import mangled
from tests.properties import examples


@given(mangled())
@settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))
def test_no_rule_fails_on_any_manifest(documents: list[Any]) -> None:
    read, problems = lint.read(yaml_stream.dump(documents), "job.yaml")
    found = lint.check(read)
    assert lint_report.text(found) is not None
    assert lint_report.as_json(found, problems)
    assert sarif.sarif(found, problems, version="0")
