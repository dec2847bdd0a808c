"""Alert rules by the real promtool, over the names that the real exporters serve."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.setup.monitoring.alert_rules import AlertThresholds, alert_rules, duration
from tests.hvd_elastic.setup.monitoring.conftest import OTHERS, Job
from tests.mpijob import admission

RULE_TESTS = Path(__file__).parent / "alert_rules_test.yaml"


def alerts(*arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["alerts", *arguments])
    assert done.exit_code == exit_code, done.output
    return done.output


def judged(promtool: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What promtool says of each rule's tests, for rules with these thresholds."""
    (folder / "rules.yaml").write_text(alerts("--as", "rules", *arguments))
    (folder / "tests.yaml").write_bytes(RULE_TESTS.read_bytes())
    command = [str(promtool), "test", "rules", str(folder / "tests.yaml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_each_alert_fires_when_it_should_and_only_then(promtool: Path, tmp_path: Path) -> None:
    done = judged(promtool, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "threshold",
    [
        "--stalled-seconds=1800",
        "--below-min-seconds=1800",
        "--late-intervals=2",
        "--failures=50",
        "--launcher-failures=3",
        "--operator-seconds=30",
        "--waiting-seconds=30",
        "--inference-class=other",
    ],
)
def test_the_tests_of_the_rules_notice_another_threshold(promtool: Path, tmp_path: Path, threshold: str) -> None:
    done = judged(promtool, tmp_path, threshold)
    assert done.returncode == 1, done.stdout


def test_promtool_takes_the_rules_for_good(promtool: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(alerts("--as", "rules"))
    command = [str(promtool), "check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_ask_for_metrics_that_are_served(job: Job) -> None:
    job.train()
    # One without a value, as while no rank is slow, has its type alone.
    served = set(re.findall(r"^(?:# TYPE )?([a-zA-Z_]+)", "\n".join([*job.texts(), OTHERS]), re.MULTILINE))
    for rule in alert_rules(AlertThresholds()):
        asked = set(re.findall(r"\b(?:hvd_elastic|kube)_\w+", rule.expression))
        assert asked
        assert asked <= served, rule.name


def test_the_metrics_of_a_job_are_named_as_prometheus_advises(promtool: Path, job: Job) -> None:
    job.train()
    for text in job.texts():
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_object_of_the_prometheus_operator() -> None:
    rule = yaml.safe_load(alerts("-n", "monitoring", "--label", "release=stack"))
    assert admission.errors(rule) == []
    assert rule["metadata"]["namespace"] == "monitoring"
    assert rule["metadata"]["labels"]["release"] == "stack"
    assert rule["spec"] == yaml.safe_load(alerts("--as", "rules"))


def test_for_people_and_for_machines() -> None:
    assert "HvdElasticCrashLoop" in alerts("-o", "table")
    assert alerts("-o", "name") == "prometheusrule.monitoring.coreos.com/hvd-elastic\n"
    assert json.loads(alerts("-o", "json"))["items"][0]["kind"] == "PrometheusRule"
    assert json.loads(alerts("-o", "json", "--as", "rules")) == yaml.safe_load(alerts("--as", "rules"))
    assert "HvdElasticCrashLoop" in alerts("-o", "name", "--as", "rules").split()


def test_every_problem_is_told() -> None:
    done = CliRunner().invoke(
        cli, ["alerts", "--late-intervals", "0", "--waiting-seconds", "-5", "--inference-class", 'x"} or vector(1)']
    )
    assert done.exit_code != 0
    for name in ("--late-intervals: 0", "--waiting-seconds: -5", "--inference-class"):
        assert name in str(done.exception)
    done = CliRunner().invoke(cli, ["alerts", "--label", "release"])
    assert "KEY=VALUE" in str(done.exception)
    done = CliRunner().invoke(cli, ["alerts", "--as", "rules", "-n", "monitoring", "--label", "release=stack"])
    assert "--namespace: 'monitoring'" in str(done.exception)
    assert "--label: 'release=stack'" in str(done.exception)


@pytest.mark.parametrize(("seconds", "text"), [(900, "15m"), (90, "90s"), (7200, "2h"), (1, "1s")])
def test_a_duration_as_prometheus_writes_it(seconds: int, text: str) -> None:
    assert duration(seconds) == text
