"""From words and files to points, and what each value becomes."""

from pathlib import Path

import pytest

from hvd_elastic.client.sweep.grid import arguments, file_points, grid_points, job_keys, points_of
from hvd_elastic.mpijob.problems import InvalidInputError


def refused(*words: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        grid_points(words)
    return str(caught.value)


def test_the_product_of_all_values() -> None:
    assert grid_points(["lr=0.1,0.01", "batch=256,512"]) == [
        {"lr": "0.1", "batch": "256"},
        {"lr": "0.1", "batch": "512"},
        {"lr": "0.01", "batch": "256"},
        {"lr": "0.01", "batch": "512"},
    ]


def test_plain_values_become_what_words_would() -> None:
    grid: dict[str, list[object]] = {"lr": [0.1, 0.01], "augment": [True, False]}
    points = points_of(grid)
    assert points == grid_points(["lr=0.1,0.01", "augment=true,false"])
    assert points_of(points) == points
    with pytest.raises(InvalidInputError, match="makes 10000 jobs"):
        points_of({"x": range(100), "y": range(100)})
    with pytest.raises(InvalidInputError, match="there twice"):
        points_of([{"lr": 0.1}, {"lr": "0.1"}])
    with pytest.raises(InvalidInputError, match="is missing"):
        points_of({})


def test_a_name_that_is_no_key_is_an_argument_of_the_script() -> None:
    point = {"lr": "0.1", "batch.global": "256", "arg:workers": "4", "env.SEED": "7", "zones": "a"}
    assert arguments(point) == ["--lr", "0.1", "--workers", "4"]
    assert job_keys(point) == {"batch.global": "256", "env": {"SEED": "7"}, "zones": ["a"]}


def test_all_that_is_wrong_with_a_grid_is_told() -> None:
    said = refused("lr", "batch=1,,2", "x=1", "x=2")
    assert "'lr': names no values" in said
    assert "'batch=1,,2': names no values" in said
    assert "'x': is given twice" in said


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("name=a,b", "name: is the same for all jobs of a sweep"),
        ("queue.name=a,b", "queue.name: is the same for all jobs of a sweep"),
        ("env=a,b", "env: is a mapping: name a key of it: env.KEY"),
        ("batch.globl=1", "batch.globl: is not a key of a job description: write arg:batch.globl"),
        ("--lr=1", "--lr: is neither a key of a job description nor the name of an argument"),
        ("lr=1,1", "lr=1: is there twice"),
    ],
)
def test_a_name_that_cannot_be_used(word: str, said: str) -> None:
    assert said in refused(word)


def test_a_sweep_is_bounded_before_it_is_built() -> None:
    axes = [f"x{axis}=" + ",".join(map(str, range(100))) for axis in range(8)]
    assert "makes 10000000000000000 jobs, more than 1000" in refused(*axes)
    assert "give --grid or --points" in refused()


def test_points_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "points.yaml"
    path.write_text("- {lr: 0.1, batch: 256}\n- {lr: 1e-3, arg:amp: true}\n")
    assert file_points(path) == [{"lr": "0.1", "batch": "256"}, {"lr": "1e-3", "arg:amp": "true"}]


def test_all_that_is_wrong_with_a_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "points.yaml"
    path.write_text("- {lr: [1], batch: }\n- 7\n")
    with pytest.raises(InvalidInputError) as caught:
        file_points(path)
    said = str(caught.value)
    assert "[0].lr: is not a single value" in said
    assert "[0].batch: is not a single value" in said
    assert "[1]: is not a mapping" in said


@pytest.mark.parametrize("text", ["lr: 0.1\n", "", "- [", "- {a: 1, a: 2}\n"])
def test_a_file_that_is_no_list_of_points(text: str, tmp_path: Path) -> None:
    path = tmp_path / "points.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError):
        file_points(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        file_points(tmp_path / "none.yaml")
