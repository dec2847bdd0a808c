"""What a command is to Python."""

import sys
from pathlib import Path

import pytest

from hvd_elastic.worker.standby.program import NoProgram, Program, read_program

HERE = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("argv", "options", "target", "is_module", "arguments"),
    [
        (["python", "train.py"], [], "train.py", False, []),
        (["python3", "train.py", "-c", "-m", "x"], [], "train.py", False, ["-c", "-m", "x"]),
        ([sys.executable, "-u", "train.py"], ["-u"], "train.py", False, []),
        (["python", "-uO", "-W", "error", "-Xdev", "train.py"], ["-uO", "-W", "error", "-Xdev"], "train.py", False, []),
        (["python", "-Werror::UserWarning", "t.py"], ["-Werror::UserWarning"], "t.py", False, []),
        (["python", "-m", "pkg.train", "-u"], [], "pkg.train", True, ["-u"]),
        (["python", "-mpkg", "a"], [], "pkg", True, ["a"]),
        (["python", "-um", "pkg"], ["-u"], "pkg", True, []),
        (["python", "-X", "importtime", "-m", "pkg"], ["-X", "importtime"], "pkg", True, []),
        (["python", "folder", "--", "x"], [], "folder", False, ["--", "x"]),
    ],
)
def test_python_commands(
    argv: list[str], options: list[str], target: str, is_module: bool, arguments: list[str]
) -> None:
    program = read_program(argv, HERE)
    assert program == Program(options=tuple(options), target=target, is_module=is_module, arguments=tuple(arguments))


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["python"], "no script"),
        (["python", "-"], "no script"),
        (["python", "-c", "print(1)"], "cannot be run ahead"),
        (["python", "-uc", "print(1)"], "cannot be run ahead"),
        (["python", "--version"], "cannot be run ahead"),
        (["python", "-m"], "cannot be run ahead"),
        (["bash", "-c", "python train.py"], "not a Python program"),
        (["/bin/true"], "not a Python program"),
        (["no-such-command"], "not found"),
    ],
)
def test_commands_that_are_not_run_ahead(argv: list[str], reason: str) -> None:
    program = read_program(argv, HERE)
    assert isinstance(program, NoProgram)
    assert reason in program.reason


@pytest.mark.parametrize("first_line", [f"#!{sys.executable}", f"#!{sys.executable} -u", "#!/usr/bin/env python"])
def test_console_scripts(tmp_path: Path, first_line: str) -> None:
    path = tmp_path / "train"
    path.write_text(f"{first_line}\nprint(1)\n")
    path.chmod(0o755)
    program = read_program(["train", "--epochs", "3"], {"PATH": f"{tmp_path}:{HERE['PATH']}"})
    options = ("-u",) if first_line.endswith("-u") else ()
    assert program == Program(options=options, target=str(path), is_module=False, arguments=("--epochs", "3"))


def test_another_python_is_no_place_for_our_packages(tmp_path: Path) -> None:
    for name in ("python", "train"):
        (tmp_path / name).write_text(f"#!{tmp_path}/python\n")
        (tmp_path / name).chmod(0o755)
    program = read_program(["train"], {"PATH": str(tmp_path)})
    assert isinstance(program, NoProgram)
    assert "is not the Python that hvd-elastic runs in" in program.reason


@pytest.mark.parametrize(
    ("options", "finds"), [([], True), (["-P"], False), (["-uI"], False), (["-WPI"], True), (["-X", "dev"], True)]
)
def test_isolated_programs_do_not_find_their_neighbours(options: list[str], finds: bool) -> None:
    program = read_program(["python", *options, "train.py"], HERE)
    assert isinstance(program, Program)
    assert program.finds_neighbours == finds
