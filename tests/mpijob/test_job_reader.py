from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit, Standby
from hvd_elastic.mpijob.description.job_spec import LauncherKind
from hvd_elastic.mpijob.job_reader import COMMAND_WAY_OUT, read_job
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job, refused

MINIMAL = "name: a\ncommand: [python, train.py]\n"


def problems(text: str, **flags: object) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read_job(text, {key.replace("__", "."): value for key, value in flags.items()})
    assert caught.value.exit_code == Exit.BAD_INPUT
    return [str(problem) for problem in caught.value.problems]


def test_a_name_and_a_command_are_enough() -> None:
    spec = read_job(MINIMAL)
    assert (spec.workers.min, spec.workers.start, spec.workers.max) == (1, 1, 1)
    assert not spec.workers.elastic
    assert spec.image is None


@pytest.mark.parametrize(
    ("written", "sizes"),
    [("1:4", (1, 1, 4)), ("1:2:8", (1, 2, 8)), ("3", (3, 3, 3)), ("{min: 2}", (2, 2, 2)), ("{start: 3}", (1, 3, 3))],
)
def test_sizes(written: str, sizes: tuple[int, int, int]) -> None:
    workers = read_job(f"{MINIMAL}workers: {written}").workers
    assert (workers.min, workers.start, workers.max) == sizes


def test_what_follows_from_other_keys() -> None:
    workers = job(workers__gpus=4, workers__loaders=3, workers__memory="64Gi").workers
    assert (workers.slots, workers.cpu, workers.shm) == (4, "12", "16384Mi")


def test_short_forms_and_long_forms_are_the_same() -> None:
    short = read_job(MINIMAL + "launcher: launch\nbatch: 64\ncheckpoint: s3://b/c\ndata: claim\n")
    long = read_job(
        MINIMAL + "launcher: {kind: launch}\nbatch: {global: 64}\ncheckpoint: {url: s3://b/c}\ndata: {claim: claim}\n"
    )
    assert short == long
    assert short.launcher.kind is LauncherKind.LAUNCH


def test_yaml_1_1_traps_are_none() -> None:
    spec = read_job(MINIMAL + "standby: off\nworkers: 1:4\nenv: {DAY: 2026-01-01, ANSWER: yes, OCTAL: 0o17}\n")
    assert spec.standby is Standby.OFF
    assert spec.env == {"DAY": "2026-01-01", "ANSWER": "yes", "OCTAL": "0o17"}


def test_flags_win_and_leave_the_rest() -> None:
    text = MINIMAL + "workers: {min: 1, max: 8, gpus: 2}\nenv: {A: file, B: file}\nlauncher: launch\n"
    flags = {"workers": "2:4", "workers.cpu": "16", "env": {"A": "flag"}, "launcher.cpu": "2", "command": ["x"]}
    spec = read_job(text, flags)
    assert (spec.workers.min, spec.workers.max, spec.workers.gpus, spec.workers.cpu) == (2, 4, 2, "16")
    assert spec.env == {"A": "flag", "B": "file"}
    assert (spec.launcher.kind, spec.launcher.cpu) == (LauncherKind.LAUNCH, "2")
    assert spec.command == ["x"]


def test_defaults_give_way_to_the_file() -> None:
    spec = read_job("command: [x]\nworkers: 2:3", defaults={"name": "train", "workers.max": 9, "workers.gpus": 1})
    assert (spec.name, spec.workers.max, spec.workers.gpus) == ("train", 3, 1)


def test_every_problem_at_once_with_its_path_and_a_way_out() -> None:
    found = problems(
        """
nmae: a
name: A_b
image: a b
command: train.py
workers: {min: 5, start: 2, max: 1, mxa: 3, memory: 32}
cloud: esk
env: {A: 1, "1B": x, AWS_SECRET_ACCESS_KEY: abc}
batch: {global: 0}
"""
    )
    text = "\n".join(found)
    assert "nmae: 'a': is not a key of a job description: did you mean name?" in found
    assert "workers.mxa: 3: is not a key of a job description: did you mean workers.max?" in found
    assert "cloud: 'esk': is not known: did you mean eks?" in found
    assert "workers.memory: 32: is 32 bytes; write a unit, such as 32Gi" in found
    assert "env.A: 1: is not text: put it in quotes" in found
    assert "batch.global: 0: is below 1: write 1 or more" in found
    assert "workers.min: 5: is above workers.start 2" in text
    assert "workers.start: 2: is above workers.max 1" in text
    assert "env.AWS_SECRET_ACCESS_KEY" in text
    assert "abc" not in text
    assert {line.partition(":")[0] for line in found} >= {"name", "image", "command", "env.1B"}


def test_a_key_of_another_section_is_found() -> None:
    assert problems(MINIMAL + "gpus: 1") == [
        "gpus: 1: is not a key of a job description: did you mean machine.gpus or workers.gpus?"
    ]


def test_a_containers_env_is_taken_and_flags_go_on_top_of_it() -> None:
    text = MINIMAL + "env: [{name: A, value: x}, {name: B, value: '1'}, {name: B, value: '2'}, {name: C}]"
    assert read_job(text).env == {"A": "x", "B": "2", "C": ""}
    assert read_job(text, {"env": {"A": "y", "D": "z"}}).env == {"A": "y", "B": "2", "C": "", "D": "z"}


def test_problems_of_flags_are_named_after_the_flag() -> None:
    assert problems(MINIMAL, workers="4:2")[0].startswith("--workers: 4: is above workers.max 2")
    assert problems(MINIMAL, workers__min="x")[0].startswith("--workers-min: 'x': is not a whole number")


def test_missing_keys() -> None:
    assert problems("workers: 1:2") == ["name: is missing: add it", "command: is missing: " + COMMAND_WAY_OUT]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "line 2, column 1: not YAML"),
        ("- a", "is not a mapping"),
        ("", "is not a mapping"),
        ("a: 1\n---\nb: 2", "is not one document"),
        ("name: a\nname: b\ncommand: [x]", "appears twice"),
        ("? [a]\n: b", "a key is not a scalar"),
        ("[" * 500, "nested deeper"),
        ("[" * 100_000, "nest"),  # PyYAML 6.0.4 refuses it before we do
        ("a: &a [x]\nb: &b [*a, *a]\nname: x\ncommand: [y]", "is not a key"),
        ("!!python/object/apply:os.system [id]", "is not known"),
        ("name: a\ncommand: [x]\nworkers: " + "9" * 5000, "is too large a number"),
        ("x" * 1_000_001, "characters"),
    ],
)
def test_texts_that_are_no_job(text: str, message: str) -> None:
    assert message in "\n".join(problems(text))


MERGES = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 4)}]}}" for i in range(1, 9)]
ALIASES = [f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(4))}}}" for i in range(1, 9)]


def test_merge_keys_that_merge_each_other_make_no_more_problems_than_the_text_has_keys() -> None:
    found = problems("\n".join([MINIMAL, "a0: &a0 {k0: 1, k1: 1, k2: 1, k3: 1}", *MERGES]))
    assert [line.partition(":")[0] for line in found] == [f"a{i}" for i in range(9)]


def test_a_key_that_appears_twice_is_one_problem_however_often_its_mapping_is_named() -> None:
    aliases = ", ".join(["*a"] * 1000)
    found = problems(f"{MINIMAL}a: &a {{k: 1, k: 2}}\nb: [{aliases}]\n")
    assert [line for line in found if "twice" in line] == [
        "line 3: 'k': appears twice in one mapping: keep one of them"
    ]


def test_aliases_that_double_each_other_are_refused_before_they_are_expanded() -> None:
    (found,) = problems("\n".join([MINIMAL, "a0: &a0 {k: 1}", *ALIASES]))
    assert "more than 50000 values once its aliases are expanded" in found


def test_a_merge_key_gives_the_keys_that_the_mapping_does_not_have() -> None:
    text = f"{MINIMAL}env: {{<<: &base {{A: base, B: base}}, B: own}}\n"
    assert read_job(text).env == {"A": "base", "B": "own"}


def test_files(tmp_path: Path) -> None:
    good = tmp_path / "job.yaml"
    good.write_text(MINIMAL)
    assert read_job(good) == read_job(MINIMAL)
    bad = tmp_path / "latin.yaml"
    bad.write_bytes(b"name: \xe9")
    for path, message in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "Is a directory"), (bad, "UTF-8")):
        with pytest.raises(InvalidInputError, match=message):
            read_job(path)


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"name": "a" * 53}, "name"),
        ({"name": "1a"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"workers": "1:2:3:4"}, "workers"),
        ({"workers": "0:2"}, "workers"),
        ({"workers": True}, "workers"),
        ({"gpu_type": "a1000", "workers__gpus": 1}, "gpu_type"),
        ({"data": {"efs": "nfs"}, "cloud": "eks"}, "data"),
        ({"data": {"claim": "a", "mount": "/a/../b"}}, "data"),
        ({"data": {"fsx": {}}, "cloud": "eks"}, "data"),
        ({"cooldown": [1]}, "cooldown"),
        ({"queue": {"system": "slurm", "name": "q"}}, "queue"),
        ({"env": {"A": "nul\0"}}, "env"),
        ({"labels": {"a": "x y"}}, "labels"),
        ({"tolerations": ["a=b:Never"]}, "tolerations"),
        ({"lost_node": "-1"}, "lost_node"),
        ({"deadline": "3 days"}, "deadline"),
        ({"network__interface": "eth0; id"}, "network.interface"),
    ],
)
def test_wrong_values(keys: dict[str, object], path: str) -> None:
    flag = "--" + path.replace(".", "-").replace("_", "-")
    found = refused(**keys)
    assert flag in found, found
    assert found[flag].count(": ") >= 1


@pytest.mark.parametrize(("words", "path"), [(["\ud800"], "command[0]"), ([], "command")])
def test_the_command_is_no_flag(words: list[str], path: str) -> None:
    assert path in refused(command=words)
