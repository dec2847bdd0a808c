"""The front door: what every verb shares."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hvd_elastic.cli import GROUPS, MODULES, OF_PODS, VERBS, cli

CLI = Path(__file__).parents[3] / "hvd_elastic" / "cli"

CLOUDS = ("boto3", "google.auth", "google.cloud.storage", "azure.core", "azure.identity", "obstore", "requests")
HEAVY = (*CLOUDS, "torch", "horovod", "kubernetes", "pydantic", "yaml", "rich", "numpy", "matplotlib")


def hvd_elastic(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hvd_elastic.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.core
@pytest.mark.process
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, json\n"
        "from hvd_elastic.cli import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_help_has_the_groups_in_order_and_nothing_that_only_pods_call() -> None:
    lines = CliRunner().invoke(cli, ["--help"]).stdout.splitlines()

    listed: dict[str, list[str]] = {}
    for line in lines[lines.index("Options:") :]:
        if heading := re.match(r"(\S.*):$", line):
            verbs = listed[heading[1]] = []
        elif row := re.match(r"  ([a-z-]+)  +\S", line):
            verbs.append(row[1])
    assert list(listed) == ["Options", *GROUPS]
    assert [listed[title] for title in GROUPS] == [list(verbs) for verbs in GROUPS.values()]


def test_every_verb_is_in_one_group_or_a_pods() -> None:
    listed = [verb for verbs in (*GROUPS.values(), OF_PODS) for verb in verbs]

    files = (
        file
        for file in CLI.glob("*/*.py")
        if re.search(r"^def command\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert sorted(listed) == sorted(file.stem.replace("_", "-") for file in files)


@pytest.mark.parametrize("verb", OF_PODS)
def test_what_only_pods_call_still_answers_help(verb: str) -> None:
    answer = CliRunner().invoke(cli, [verb, "--help"])

    assert answer.exit_code == 0
    assert answer.stdout.startswith(f"Usage: cli {verb} ")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_file_with_a_command_that_says_what_it_does(verb: str) -> None:
    module = import_module(MODULES[verb])

    assert isinstance(module.command, click.Command)
    assert module.command.help
    context = click.Context(module.command)
    options = [option for option in module.command.params if isinstance(option, click.Option) and not option.hidden]
    assert [option.opts for option in options if not (option.get_help_record(context) or ("", ""))[1]] == []


@pytest.mark.core
@pytest.mark.process
def test_a_verb_that_is_not_there_is_bad_input() -> None:
    done = hvd_elastic("tarin")

    assert done.returncode == 2
    assert "tarin" in done.stderr
    assert done.stdout == ""


@pytest.mark.core
@pytest.mark.process
def test_an_error_is_a_message_and_a_code_and_no_traceback(tmp_path: Path) -> None:
    done = hvd_elastic("demo", "--data", str(tmp_path), "--output", str(tmp_path / "out"))

    assert done.returncode == 1
    assert "train-images-idx3-ubyte" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.core
@pytest.mark.process
def test_a_reader_that_goes_away_is_no_error() -> None:
    words = f"{sys.executable} -m hvd_elastic.cli generate --name a --image b -- python train.py"

    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | head -1"], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stderr == ""
    assert done.returncode == 0
