"""Fixes of the launcher's command line know which Horovod will parse it."""

from typing import Any

import pytest

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.job.horovod_version import HorovodVersion
from hvd_elastic.mpijob.lint.rule import ManifestPart
from tests.mpijob.lint.rules_on import HOROVODRUN, changed, findings, launcher

TRAIN = ("python", "train.py")
COOLDOWN = "--blacklist-cooldown-range"


def command_after_fix(identity: str, documents: list[lint.Document], horovod: HorovodVersion | None = None) -> Any:
    after, _ = lint.fix(documents, lint.select_rules([identity]), horovod=horovod)
    job: Any = after[-1].value
    return job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]


def test_an_old_horovod_does_not_get_an_option_that_its_parser_refuses() -> None:
    documents = launcher([*HOROVODRUN, *TRAIN], image="horovod/horovod:0.20.3-tf2.3.0")
    (found,) = findings("HE104", documents)
    assert found.edits == ()
    assert "Horovod 0.20.3 cannot be told otherwise, 0.24.0 and later can" in found.message
    assert COOLDOWN not in command_after_fix("HE104", documents)


def test_a_new_enough_horovod_gets_it_without_an_assumption() -> None:
    documents = launcher([*HOROVODRUN, *TRAIN], image="horovod/horovod:0.24.0")
    (found,) = findings("HE104", documents)
    assert (bool(found.edits), found.assumes) == (True, "")
    assert COOLDOWN in command_after_fix("HE104", documents)


def test_a_fix_for_an_unknown_horovod_says_what_it_assumes() -> None:
    documents = launcher([*HOROVODRUN, *TRAIN], image="example.com/train:7")
    (found,) = findings("HE104", documents)
    assert found.assumes == "Horovod 0.24.0 or later in the image"


def test_the_version_that_the_user_states_wins_over_the_image() -> None:
    documents = launcher([*HOROVODRUN, *TRAIN], image="example.com/horovod:0.28.1")
    old = HorovodVersion(0, 23, 0)
    assert findings("HE104", documents, horovod=old)[0].edits == ()
    assert COOLDOWN not in command_after_fix("HE104", documents, old)


def test_an_option_that_came_after_the_images_horovod_is_unknown_to_it() -> None:
    words = [*HOROVODRUN, COOLDOWN, "30", "300", *TRAIN]
    (found,) = findings("HE107", launcher(words, image="horovod/horovod:0.22.1"))
    assert found.message == "Horovod 0.22.1 has no such option; it came with 0.24.0"
    assert findings("HE107", launcher(words, image="horovod/horovod:0.24.3")) == []


@pytest.mark.parametrize("word", ["min-np", "max-np", "slots-per-host", "blacklist-cooldown-range", "np"])
def test_an_option_without_dashes_is_found_and_gets_them(word: str) -> None:
    values = ["1", "2"] if word == "blacklist-cooldown-range" else ["1"]
    documents = launcher([*HOROVODRUN, word, *values, *TRAIN])
    (found,) = findings("HE118", documents)
    assert found.value == word
    fixed = command_after_fix("HE118", documents)
    assert fixed == [*HOROVODRUN, f"{'-' if word == 'np' else '--'}{word}", *values, *TRAIN]


def test_an_option_without_dashes_keeps_its_value_behind_an_equals_sign() -> None:
    fixed = command_after_fix("HE118", launcher([*HOROVODRUN, "min-np=1", *TRAIN]))
    assert fixed == [*HOROVODRUN, "--min-np=1", *TRAIN]


@pytest.mark.parametrize("command", [("hosts",), ("mpi", "train"), ("verbose",), ("p", "1"), ("min-np", "x"), TRAIN])
def test_a_program_that_could_be_one_is_left_alone(command: tuple[str, ...]) -> None:
    assert findings("HE118", changed(ManifestPart.LAUNCHER, {"command": [*HOROVODRUN, *command], "args": None})) == []


def test_a_static_job_says_so_with_a_reason() -> None:
    annotation = "lint.hvd-elastic.dev/static"
    command = ["mpirun", "-np", "2", "python", "train.py"]
    documents = launcher(command)
    assert len(findings("HE102", documents)) == 1
    job: Any = documents[-1].value
    for reason, left in (("runs on reserved nodes", 0), ("", 1)):
        job["metadata"]["annotations"] = {annotation: reason}
        assert len(findings("HE102", documents)) == left
        assert len(findings("HE911", documents)) == left


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-np", "2", "--min-np", "1", "--max-np", "4", "python", "t.py"], ["--min-np"]),
        (["-np", "2", "--slots-per-host=1", "python3", "t.py"], ["--slots-per-host=1"]),
        (["-np", "2", "python", "t.py", "--min-np", "1"], []),
        (["-np", "2", "./sim", "--min-np", "1"], []),
        (["-np", "2", "-x", "PATH", "python", "t.py"], []),
    ],
)
def test_mpirun_has_no_elastic_options(words: list[str], found: list[str]) -> None:
    assert [one.value for one in findings("HE107", launcher(["mpirun", *words]))] == found


@pytest.mark.parametrize(
    ("version", "policy", "limit", "count"),
    [
        ("v1", None, None, 1),
        ("v1", "Never", None, 1),
        ("v1", "OnFailure", None, 0),
        ("v1", "Never", 3, 0),  # HE611
        ("v2beta1", "Never", None, 0),
    ],
)
def test_a_launcher_of_v1_is_restarted_by_one_policy(
    version: str, policy: str | None, limit: int | None, count: int
) -> None:
    spec = {"runPolicy": {"backoffLimit": limit}, "mpiReplicaSpecs": {"Launcher": {"restartPolicy": policy}}}
    documents = changed(ManifestPart.JOB, {"apiVersion": f"kubeflow.org/{version}", "spec": spec})
    assert len(findings("HE604", documents)) == count
