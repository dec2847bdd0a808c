"""`hvd-elastic lint` at a person's terminal."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hvd_elastic.cli.submission.lint import command
from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.contract import Exit, HvdElasticError

ROOT = Path(__file__).parents[4]
MANIFESTS = Path(__file__).parents[3] / "mpijob" / "lint" / "manifests"
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
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == "All"
    assert "HE603" not in result.stderr
    assert "HE201" in result.stderr
    assert " fixed" in result.stderr
    assert result.exit_code == 1
    assert run("--fix", "-o", "json", CLEAN).exit_code == 2


def test_fix_prints_nothing_when_something_cannot_be_read() -> None:
    result = run("--fix", stdin=Path(STOCK).read_text() + "---\na: [\n")
    assert problems(result)
    assert result.stdout == ""
    assert "HE104" in result.stderr
    assert " fixed" not in result.stderr


def test_errors_come_first_those_first_that_keep_the_job_from_starting() -> None:
    lines = [line.split() for line in run(STOCK).stdout.splitlines() if line.startswith(STOCK)]
    severities = [words[1] for words in lines]
    assert severities == sorted(severities, key=lambda severity: severity != "error")
    assert {words[2] for words in lines[:2]} == {"HE147", "HE159"}


def test_the_short_form_has_a_line_for_each_error() -> None:
    result = run(STOCK, "--errors")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == sum(": error " in line for line in run(STOCK).stdout.splitlines())
    assert "Why:" not in result.stdout
    assert "warnings" in result.stderr
    written = json.loads(run(STOCK, "--errors", "-o", "json").stdout)
    assert {entry["severity"] for entry in written["findings"]} == {"error"}


def test_a_job_inside_another_object_is_not_passed_over() -> None:
    text = "kind: Experiment\nspec: {trialSpec: {apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {}}}\n"
    assert "an MPIJob inside an Experiment is seen, and not read" in problems(run("--allow-no-job", stdin=text))


def test_another_kind_is_named() -> None:
    message = problems(run(stdin="apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n"))
    assert "holds no MPIJob and no job description, but a PyTorchJob" in message


def test_explain() -> None:
    result = run("--explain", "permanent-blacklist")
    assert result.stdout.startswith("# HE104 permanent-blacklist")
    assert run("--explain", "all").stdout.count("\n### HE") == len(lint.all_rules())


@pytest.mark.parametrize(
    ("level", "rules", "code"),
    [
        ("error", "HE441", 0),
        ("warning", "HE441", 1),
        ("warning", "HE113", 0),
        ("info", "HE113", 1),
        ("never", "HE104", 0),
    ],
)
def test_the_least_severity_that_fails_is_the_callers(level: str, rules: str, code: int) -> None:
    assert run(STOCK, "--select", rules, "--fail-on", level).exit_code == code


def test_the_stated_horovod_decides_what_is_fixed() -> None:
    assert "--blacklist-cooldown-range" in run(STOCK, "--fix", "--horovod", "0.24").stdout
    assert "--blacklist-cooldown-range" not in run(STOCK, "--fix", "--horovod", "0.20.3").stdout
    assert "horovod: 'x': is not a version" in problems(run(STOCK, "--horovod", "x"))


def test_a_fix_that_assumes_something_says_so() -> None:
    text = Path(STOCK).read_text().replace("horovod/horovod:0.28.1", "example.com/train:1")
    assert "assumes Horovod 0.24.0 or later in the image)" in run(stdin=text).stdout
    assert (
        "the fix assumes Horovod 0.24.0 or later in the image; name it with --horovod"
        in run("--fix", stdin=text).stderr
    )


def test_among_several_files_some_may_hold_no_job(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("kind: ConfigMap\n")
    (tmp_path / "more.yaml").write_text("kind: ConfigMap\n")
    other, more = str(tmp_path / "other.yaml"), str(tmp_path / "more.yaml")
    assert run(CLEAN, other).exit_code == 0
    assert run(other, more).exit_code == 0
    assert "holds no MPIJob" in problems(run(other))
    assert run(other, "--allow-no-job").exit_code == 0


def test_what_is_no_manifest_is_passed_over_only_where_no_job_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yaml").write_text("a: !!python/name:x\n")
    site = str(tmp_path / "mkdocs.yaml")
    result = run(site, CLEAN, "--allow-no-job")
    assert result.exit_code == 0
    assert "passed over, because it names no MPIJob" in result.stderr
    assert "mkdocs.yaml" in problems(run(site, CLEAN))
    (tmp_path / "mkdocs.yaml").write_text("kind: MPIJob\na: !!python/name:x\n")
    assert "mkdocs.yaml" in problems(run(site, "--allow-no-job"))


def test_a_known_finding_is_not_told_again(tmp_path: Path) -> None:
    job, known = tmp_path / "job.yaml", tmp_path / "known.json"
    job.write_text(Path(STOCK).read_text())
    written = run(str(job), "--baseline", str(known), "--write-baseline")
    assert (written.exit_code, written.stdout) == (0, "")
    again = run(str(job), "--baseline", str(known))
    assert (again.exit_code, again.stdout) == (0, "")
    assert "known from the baseline" in again.stderr
    # An item before it moves the place of a known finding, and does not make it new; another finding is new.
    job.write_text(Path(STOCK).read_text().replace("args: [-np,", "args: [--reset-limit, '0', -np,"))
    changed = run(str(job), "--baseline", str(known))
    assert changed.exit_code == 1
    assert [line.split()[2] for line in changed.stdout.splitlines() if ": error " in line] == ["HE116"]
    report = json.loads(run(str(job), "--baseline", str(known), "-o", "json").stdout)
    assert "HE104" in {entry["id"] for entry in report["known"]}


def test_a_baseline_says_what_is_found_no_more(tmp_path: Path) -> None:
    job, known = tmp_path / "job.yaml", tmp_path / "known.json"
    job.write_text(Path(STOCK).read_text())
    run(str(job), "--baseline", str(known), "--write-baseline", "--select", "HE603")
    job.write_text(Path(STOCK).read_text().replace("slotsPerWorker: 1", "runPolicy: {cleanPodPolicy: All}"))
    assert "1 of " in run(str(job), "--baseline", str(known), "--select", "HE603").stderr
    assert run(str(job), "--write-baseline").exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="deep"),
        "[",
        "[]",
        '{"version": 2, "findings": []}',
        '{"version": 1, "findings": [{"file": 1}]}',
    ],
)
def test_a_broken_baseline_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "known.json").write_text(text)
    assert "write it again with --write-baseline" in problems(run(CLEAN, "--baseline", str(tmp_path / "known.json")))


def test_settings_come_from_a_file_and_the_command_line_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".hvd-elastic-lint.yaml").write_text("select: [HE441, HE501]\nignore: [HE501]\nfail_on: warning\n")
    result = run(STOCK)
    assert result.exit_code == 1
    assert ("HE441" in result.stdout, "HE501" in result.stdout) == (True, False)
    assert run(STOCK, "--fail-on", "error").exit_code == 0
    (tmp_path / "other.yaml").write_text("select: [HE104]\nhorovod: 0.20.3\nallow_no_job: true\n")
    assert "Horovod 0.20.3 cannot" in run(STOCK, "--config", "other.yaml").stdout


def test_every_wrong_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("selct: []\nselect: HE1\nfail_on: x\nhorovod: x\nbaseline: 1\nallow_no_job: 1\n")
    message = problems(run(CLEAN, "--config", str(tmp_path / "s.yaml")))
    names = ("selct", "select", "fail_on", "horovod", "baseline", "allow_no_job")
    assert [f"s.yaml: {name}: " in message for name in names] == [True] * 6


DESCRIPTION = """\
name: fashion
image: example.com/train:1
workers: 1:4
command: [python, train.py]
"""


def test_a_job_description_is_checked_as_one(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(DESCRIPTION)
    right = run(str(tmp_path / "job.yaml"))
    assert (right.exit_code, right.stdout) == (0, "")
    assert "1 job description without problems" in right.stderr
    (tmp_path / "job.yaml").write_text(DESCRIPTION.replace("1:4", "4:1") + "grace: x\ncheckpoints: {}\n")
    message = problems(run(str(tmp_path / "job.yaml")))
    assert "job.yaml:3:10: workers" in message
    assert "job.yaml:6:1: checkpoints" in message


@pytest.mark.parametrize(
    "line", ["name: {{ .Release.Name }}", "replicas: {{- $.Values.workers }}", '{{ include "chart.labels" . }}']
)
def test_a_helm_template_is_said_to_be_one_in_one_sentence(line: str) -> None:
    message = problems(run(stdin=f"kind: MPIJob\n{line}\n"))
    assert message == (
        "-: is a Helm template, not a manifest: lint what it renders: `helm template CHART | hvd-elastic lint`"
    )


def test_other_double_braces_are_no_helm_template() -> None:
    text = Path(STOCK).read_text().replace("mnist.py", "'{{inputs.parameters.script}}', '{{ $labels.pod }}'")
    assert run(stdin=text).exit_code == 1


def test_the_hook_for_pre_commit_is_a_command_that_runs() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, verb, *args = hook["entry"].split()
    assert (program, verb) == ("hvd-elastic", "lint")
    assert run(*args, str(ROOT / "mkdocs.yml")).exit_code == 0
    assert run(*args, STOCK).exit_code == 1
