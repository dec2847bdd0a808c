from pathlib import Path

import pytest

from hvd_elastic.local.local_checks import local_problems
from hvd_elastic.local.local_run import TimedResize, parse_resizes
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.stores.location import Location


def problems(**values: object) -> list[str]:
    return [str(problem) for problem in local_problems(read_job(None, {"name": "job", **values}))]


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.touch()
    return str(path)


def test_a_job_that_can_run_has_no_problem(script: str) -> None:
    assert problems(command=["python", "-u", script, "--epochs", "3"]) == []
    assert problems(command=["python", "-m", "not.looked.for"]) == []


def test_every_missing_thing_is_named_at_once(tmp_path: Path) -> None:
    found = problems(
        command=["python", "no-such-script.py"],
        **{
            "data.claim": "d",
            "data.local": str(tmp_path / "nodata"),
            "output": "results",
            "checkpoint": f"file://{tmp_path}/no/where",
        },
    )

    assert [line.split(":")[0] for line in found] == ["command[1]", "data.local", "output.mount", "checkpoint.url"]
    assert all(": " in line and len(line.split(": ")) >= 4 for line in found), "path, value, what, way out"


@pytest.mark.parametrize("name", ["a b", "M\u00fcll", "100%", "a\udcff"])
def test_a_checkpoint_is_in_a_folder_of_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the check proposes it takes, and the name as it is typed, but for what a URL cannot hold."""
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)

    (problem,) = problems(command=["true"], checkpoint="file:///no/where/checkpoints")
    proposed = problem.rpartition("--checkpoint ")[2]

    assert problems(command=["true"], checkpoint=proposed) == []
    assert Location.parse(proposed).path == str(folder / "checkpoints")
    if name in {"a b", "M\u00fcll"}:
        assert problems(command=["true"], checkpoint=f"file://{folder}/checkpoints") == []
        assert Location.parse(f"file://{folder}/checkpoints").path == str(folder / "checkpoints")


def test_a_program_that_is_not_there_is_named() -> None:
    (problem,) = problems(command=["no-such-program"])

    assert problem.startswith("command[0]: 'no-such-program'")


@pytest.mark.parametrize("options", [["-W", "ignore"], ["-X", "dev", "-u"], ["-Wignore"], ["-uX", "dev"]])
def test_an_options_value_is_not_the_script(options: list[str], script: str) -> None:
    assert problems(command=["python", *options, script]) == []
    (problem,) = problems(command=["python", *options, "no-such.py", "--epochs"])
    assert problem.startswith(f"command[{1 + len(options)}]: 'no-such.py': does not exist")


def test_a_script_is_a_program_only_by_its_path_and_its_mode(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(script).write_text("#!/bin/sh\n")
    assert problems(command=["./train.py"])
    Path(script).chmod(0o755)
    assert problems(command=["./train.py"]) == []
    (problem,) = problems(command=["train.py"])
    assert problem.startswith("command[0]: 'train.py': is a file that is not on the PATH")
    assert problem.endswith("write `python train.py`")


def test_scripts_are_looked_for_in_workdir(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert problems(command=["python", "train.py"])
    assert problems(command=["python", "train.py"], workdir=str(tmp_path)) == []


def test_resizes_are_read_in_the_order_of_time() -> None:
    assert parse_resizes("40:4,20.5:1") == (TimedResize(at_seconds=20.5, hosts=1), TimedResize(at_seconds=40, hosts=4))
    assert parse_resizes(None) == ()


def test_every_bad_resize_is_named() -> None:
    with pytest.raises(InvalidInputError) as error:
        parse_resizes("20:1,x:2,3,4:-1")

    assert [problem.value for problem in error.value.problems] == ["x:2", "3", "4:-1"]
