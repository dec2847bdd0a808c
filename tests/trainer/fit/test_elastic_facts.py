"""Early stop, the best model and callbacks of a `Trainer`: a disturbed run ends as the undisturbed one, to the bit."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS
from testbed.local import forkserver
from testbed.local.training import ENGINES, Training, training

SCRIPT = Path(__file__).with_name("train_exactly.py")
EVERYTHING = ("kind", "step", "epoch", "metrics", "is_best")


def alone(folder: Path, tier: Mapping[str, str] | None = None, *, code: int = 0, **options: str) -> dict[str, Any]:
    """Train in one process without a launcher. Returns what it found, and what its callback was told.

    `tier`: the environment of the durable tier, if there is one.
    """
    folder.mkdir(exist_ok=True)
    job = Training(folder, KEEP=str(folder / "keep"), **(tier or {}), **options)
    done = subprocess.run(
        [*forkserver.python(), str(SCRIPT)], env=job.environment, check=False, timeout=280, capture_output=True
    )
    assert done.returncode == code, done.stderr.decode()[-3000:]
    return found(job) | {"said": done.stderr.decode()}


def found(job: Training) -> dict[str, Any]:
    results, told = sorted(job.written("result"), key=lambda each: float(each["time"])), []
    for path in job.log.glob("*-moments.jsonl"):
        told += [json.loads(line) for line in path.read_text().splitlines()]
    moments = [each["told"] for each in sorted(told, key=lambda each: float(each["time"]))]
    return {**(results[-1] if results else {}), "moments": moments, "results": len(results)}


def facts(moments: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What was told of steps and evaluations, without what depends on the clock."""
    told = [moment for moment in moments if moment["kind"] in ("step", "evaluation")]
    for moment in told:
        moment["metrics"].pop("samples_per_second", None)
    return [(*(json.dumps(moment[name], sort_keys=True) for name in EVERYTHING),) for moment in told]


def best_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "keep" / "best").iterdir()}


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    return {name: run[name] for name in ("steps", "why", "evaluation", "weights")} | {"best": run["best"][:3]}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return alone(folder), best_files(folder)


@pytest.mark.core
@pytest.mark.process
def test_it_stops_early_and_keeps_the_best_model(undisturbed: tuple[dict[str, Any], dict[str, bytes]]) -> None:
    run, files = undisturbed
    evaluated = {m["step"]: m["metrics"]["distance"] for m in run["moments"] if m["kind"] == "evaluation"}
    best = min(evaluated, key=lambda step: evaluated[step])
    assert 20 < best < run["steps"] == best + 4 * 5, "patience 4, evaluated every 5 steps"
    assert run["why"].startswith("stopped early: distance has not improved in 4 evaluations")
    assert sorted(files) == ["best.json", f"step-{best}.pt"], "older ones are deleted"
    assert json.loads(files["best.json"]) == {
        "step": best,
        "epoch": (best - 1) // 8,
        "metric": "distance",
        "value": evaluated[best],
        "metrics": {"distance": evaluated[best], "first": pytest.approx(2.0, abs=0.1)},
        "file": f"step-{best}.pt",
    }
    stored = torch.load(Path(run["best"][3].removeprefix("file://")))
    assert stored["step"] == best
    assert (stored["model"]["weight"] - 2).square().mean().item() == evaluated[best]


@pytest.mark.process
def test_the_moments_come_in_the_order_of_the_commits(undisturbed: tuple[dict[str, Any], dict[str, bytes]]) -> None:
    run, _ = undisturbed
    kinds = [(moment["kind"], moment["step"]) for moment in run["moments"]]
    steps = range(1, run["steps"] + 1)
    expected = [(kind, n) for n in steps for kind, every in (("step", 3), ("evaluation", 5)) if n % every == 0]
    assert kinds == [("resume", 0), *expected, ("end", run["steps"])]
    end = run["moments"][-1]
    assert (end["why"], end["best"], end["metrics"]) == (run["why"], run["best"][0], run["evaluation"])


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", ["resized", "rank 0 killed"])
def test_a_disturbed_run_ends_as_the_undisturbed_one(
    tmp_path: Path, way: str, engine: str, undisturbed: tuple[dict[str, Any], dict[str, bytes]]
) -> None:
    """Over torch.distributed as the undisturbed one over Horovod, too."""
    run, files = undisturbed
    with training(tmp_path, engine=engine, KEEP=str(tmp_path / "keep"), STEP_SECONDS="0.4") as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", script=SCRIPT)
        job.trains(2)
        if way == "resized":
            job.offer("b")
        else:
            job.kill("a")
            job.offer("b")
        job.trains(1)
        (job.folder / "hurry").touch()
        assert job.ends() == 0, job.said()
        disturbed = found(job)
    assert outcome(disturbed) == outcome(run)
    assert best_files(tmp_path) == files
    told = facts(disturbed["moments"])
    if way == "rank 0 killed":  # what it told before the next step may be told again
        told = list(dict.fromkeys(told))
    assert told == facts(run["moments"])


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("commit_every", ["1", "4"])
def test_a_restart_goes_on_as_if_nothing_had_been(
    tmp_path: Path, commit_every: str, undisturbed: tuple[dict[str, Any], dict[str, bytes]]
) -> None:
    """All is lost after the best evaluation, and the last checkpoint is older: it is judged again, and not twice."""
    run, files = undisturbed
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/checkpoints", ENV_CHECKPOINT_STEPS: "17"}
    die_at = run["best"][0] // 3 * 3 + 3
    first = alone(tmp_path, durable, code=9, COMMIT_EVERY=commit_every, DIE_AT=str(die_at))
    assert first["results"] == 0
    second = alone(tmp_path, durable, COMMIT_EVERY=commit_every)
    assert outcome(second) == outcome(run)
    assert best_files(tmp_path) == files
    resumed = [moment["step"] for moment in second["moments"] if moment["kind"] == "resume"]
    assert 0 < resumed[-1] < die_at
    assert set(facts(second["moments"])) == set(facts(run["moments"]))
    third = alone(tmp_path, durable, COMMIT_EVERY=commit_every)
    assert outcome(third) == outcome(run)
    assert f"training had ended before this start, at step {run['steps']}: stopped early" in third["said"]
    more = alone(tmp_path, durable, COMMIT_EVERY=commit_every, PATIENCE="6")
    assert more["steps"] == run["steps"] + 10, "more patience goes on"
    assert more["best"][:3] == run["best"][:3]


@pytest.mark.process
def test_a_number_of_steps_ends_the_job_and_more_of_them_go_on(tmp_path: Path) -> None:
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/checkpoints"}
    first = alone(tmp_path, durable, MAX_STEPS="13", EVALUATE_EVERY="0", COMMIT_EVERY="4")
    assert (first["steps"], first["why"]) == (13, "max_steps is reached: 13")
    evaluated = [m["step"] for m in first["moments"] if m["kind"] == "evaluation"]
    assert evaluated == [8, 13], "at the end of the epoch, and of training"
    second = alone(tmp_path, durable, MAX_STEPS="100", EPOCHS="3", EVALUATE_EVERY="0", COMMIT_EVERY="4")
    assert (second["steps"], second["why"]) == (24, "3 epochs done"), "the epoch went on where it was"
    evaluated = [m["step"] for m in second["moments"] if m["kind"] == "evaluation"]
    assert evaluated == [8, 13, 13, 16, 24], "told again by the process that knows nothing of the first"


@pytest.mark.process
def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """It counted no steps: they are counted from there. The weights and the position in the data are not touched."""
    whole = alone(tmp_path / "whole", EPOCHS="3", EVALUATE_EVERY="0")
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/checkpoints"}
    alone(tmp_path, durable, MAX_STEPS="13", EVALUATE_EVERY="0", EARLIER_VERSION="1")
    rest = alone(tmp_path, durable, EPOCHS="3", EVALUATE_EVERY="0")
    assert (whole["steps"], rest["steps"]) == (24, 24 - 13)
    assert rest["weights"] == whole["weights"]


@pytest.mark.process
def test_a_callback_may_stop_training_and_may_fail(tmp_path: Path) -> None:
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/checkpoints"}
    run = alone(tmp_path, durable, FAIL_AT="6", STOP_AT="12")
    assert (run["steps"], run["why"]) == (12, "the test wants it")
    assert "a mistake in a callback" in run["said"]
    again = alone(tmp_path, durable)
    assert (again["steps"], again["why"]) == (12, "the test wants it")


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_callback_stops_all_workers_at_the_same_step(tmp_path: Path, engine: str) -> None:
    with training(tmp_path, engine=engine, KEEP=str(tmp_path / "keep"), STOP_AT="12") as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "2", script=SCRIPT)
        assert job.ends() == 0, job.said()
        ended = job.written("result")
    assert [(each["steps"], each["why"]) for each in ended] == [(12, "the test wants it")] * 2
    assert ended[0]["weights"] == ended[1]["weights"]
