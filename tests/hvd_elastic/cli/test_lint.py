"""`hvd-elastic lint` at a person's terminal."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hvd_elastic.cli.lint import command
from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.contract import Exit, HvdElasticError

MANIFESTS = Path(__file__).parents[2] / "mpijob" / "lint" / "manifests"
CLEAN, STOCK = str(MANIFESTS / "clean.yaml"), str(MANIFESTS / "stock-elastic.yaml")


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(command, args, input=stdin)


def problems(result: Result) -> str:
    assert isinstance(result.exception, HvdElasticError)
    assert result.exception.exit_code == Exit.BAD_INPUT
    return str(result.exception)


def test_clean_job() -> None:
    result = run(CLEAN)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 job: no findings" in result.stderr


def test_hazards_end_with_1() -> None:
    result = run(STOCK)
    assert result.exit_code == 1
    assert "error HE104 permanent-blacklist: $.spec.mpiReplicaSpecs.Launcher" in result.stdout
    assert "fixable with --fix" in result.stderr


def test_warnings_end_with_0() -> None:
    assert run(STOCK, "--select", "HE441,HE501").exit_code == 0
    assert run(STOCK, "--select", "HE4", "--ignore", "token-on-workers").exit_code == 0


def test_standard_input_is_the_default() -> None:
    text = Path(STOCK).read_text()
    assert run(stdin=text).stdout == run("-", stdin=text).stdout
    assert run(stdin=text).stdout.startswith("-:")


def test_companions_may_stand_in_other_files(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all(Path(CLEAN).read_text()))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(documents[-1]))
    (tmp_path / "rest.yaml").write_text(yaml.safe_dump_all(documents[:-1]))
    assert "HE441" in run(str(tmp_path / "job.yaml")).stdout
    assert run(str(tmp_path / "job.yaml"), str(tmp_path / "rest.yaml")).stdout == ""


def test_all_unreadable_inputs_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [\n")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\n")
    message = problems(run(STOCK, str(tmp_path / "broken.yaml"), str(tmp_path / "latin.yaml"), str(tmp_path / "none")))
    assert [name in message for name in ("broken.yaml:2:1", "latin.yaml", "none")] == [True] * 3


def test_a_stream_without_a_job_is_no_success() -> None:
    assert "holds no MPIJob" in problems(run(stdin="kind: ConfigMap\n"))


def test_unknown_rules_are_named() -> None:
    assert "NOPE" in problems(run(CLEAN, "--select", "NOPE", "--ignore", "HE104"))
    assert "NOPE" in problems(run("--explain", "NOPE"))


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_other_forms_are_json(form: str) -> None:
    result = run(STOCK, "-o", form)
    assert result.exit_code == 1
    assert json.loads(result.stdout)


def test_fix_prints_the_manifests_and_reports_the_rest() -> None:
    result = run(STOCK, "--fix")
    (job,) = yaml.safe_load_all(result.stdout)
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"
    assert "HE603" not in result.stderr
    assert "HE201" in result.stderr
    assert " fixed" in result.stderr
    assert result.exit_code == 1
    assert run("--fix", "-o", "json", CLEAN).exit_code == 2


def test_fix_prints_nothing_when_something_cannot_be_read() -> None:
    result = run("--fix", stdin=Path(STOCK).read_text() + "---\na: [\n")
    assert problems(result)
    assert "kind: MPIJob" not in result.stdout


def test_explain() -> None:
    result = run("--explain", "permanent-blacklist")
    assert result.stdout.startswith("# HE104 permanent-blacklist")
    assert run("--explain", "all").stdout.count("\n### HE") == len(lint.all_rules())
