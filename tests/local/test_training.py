"""Real processes under the launcher that is usual for their engine: for Horovod its own, so that ours has no part."""

import contextlib
import http.client
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import Engine, Exit
from testbed.local import forkserver
from testbed.local.host_list import put_hosts
from testbed.local.training import GLOO_TIMEOUT_SECONDS, HOSTS, SCRIPT, STOCK_SCRIPT, Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

LENGTH = 303

over_each_engine = pytest.mark.parametrize(
    "engine", [pytest.param(Engine.HOROVOD, marks=pytest.mark.core), Engine.TORCH]
)
"""Of torch.distributed `test_torch_engine.py` is the core."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """The same global batch on one worker, without a launcher: what resizes must not change."""
    job = Training(tmp_path_factory.mktemp("alone"), LENGTH=str(LENGTH), EPOCHS="6", STEP_SECONDS="0")
    subprocess.run([*forkserver.python(), str(SCRIPT)], env=job.environment, check=True, timeout=240)
    return job


def committed_steps(job: Training) -> dict[int, list[dict[str, object]]]:
    """The steps that count, each with its members' events: a step taken again replaces the one that was undone."""
    by_step: dict[int, list[dict[str, object]]] = {}
    for event in job.events("step"):
        by_step.setdefault(event["step"], []).append(event)
    return by_step


def check_every_sample_once(job: Training, epochs: int) -> None:
    seen: dict[int, Counter[int]] = {}
    for told in committed_steps(job).values():
        for event in told:
            seen.setdefault(event["epoch"], Counter()).update(event["taken"])  # type: ignore[arg-type, call-overload]
    assert seen == {epoch: Counter(range(LENGTH)) for epoch in range(epochs)}


@over_each_engine
def test_a_job_grows_and_shrinks_and_nobody_can_tell(tmp_path: Path, engine: str, undisturbed: Training) -> None:
    """2 -> 3 -> 1 workers: every sample of every epoch once, and the loss curve of a run without resizes."""
    options = {"LENGTH": str(LENGTH), "EPOCHS": "6", "STEP_SECONDS": "0.15", "MICRO": "20"}
    with training(tmp_path, engine=engine, **options) as job:
        job.offer_usual(*HOSTS[:2])
        job.launch_usual("-np", "2", "--min-np", "1", "--max-np", "3")
        job.trains(2)
        job.offer_usual(*HOSTS)
        job.trains(3)
        job.offer_usual(HOSTS[0])
        job.trains(1)
        assert job.ends() == 0, job.said()

        check_every_sample_once(job, epochs=6)
        sizes = {event["size"] for event in job.events("step")}
        assert sizes == {1, 2, 3}
        assert "exit with status code 134" not in job.said()
        if engine == Engine.HOROVOD:
            assert job.said().count(f"exit with status code {int(Exit.REMOVED)}") == 2
        assert len(job.events("left")) == 2
        pauses = [event["seconds"] for event in job.events("reset", size=1)]
        assert max(pauses) < GLOO_TIMEOUT_SECONDS

        alone = {event["step"]: event["loss"] for event in undisturbed.events("step")}
        for step, told in committed_steps(job).items():
            assert told[0]["loss"] == pytest.approx(alone[step], abs=2e-4), step
        (end,) = [end for end in job.written("end") if end["rank"] == 0]
        (reference,) = undisturbed.written("end")
        assert end["sum"] == pytest.approx(reference["sum"], abs=1e-3)
        assert end["done"] == [0, 1, 2, 3, 4, 5]
        assert end["rate"] == reference["rate"]


@over_each_engine
def test_a_killed_worker_costs_a_blink(tmp_path: Path, engine: str) -> None:
    """Both survivors of three learn of the death at once; with Horovod alone one waits for Gloo's time-out."""
    with training(tmp_path, engine=engine, LENGTH=str(LENGTH), EPOCHS="400") as job:
        job.offer_usual(*HOSTS)
        job.launch_usual("-np", "3", "--min-np", "1", "--max-np", "3", "--blacklist-cooldown-range", "60", "61")
        job.trains(3)
        killed = job.kill(HOSTS[1])
        job.trains(2)
        (first, *_) = [e for e in job.events("step", size=2) if e["time"] > killed]
        assert first["time"] - killed < GLOO_TIMEOUT_SECONDS
        assert {e["cause"] for e in job.events("reset", size=2)} == {"failure"}
        undone = {e["step"] for e in job.events("step", size=3)} & {e["step"] for e in job.events("step", size=2)}
        assert len(undone) <= 1


@pytest.mark.parametrize(
    "patched", [pytest.param("", id="stock", marks=pytest.mark.stock), pytest.param("1", id="patched")]
)
def test_a_script_for_horovod_alone_needs_one_call(tmp_path: Path, patched: str) -> None:
    """Horovod issue 3494: A,B -> A -> A,C, never below min workers, so removal and addition are one reset.

    With `hvd.elastic.run` and TorchState. As Horovod leaves it, it stands still for good.
    """
    with training(tmp_path, PATCHED=patched) as job:
        job.hosts(*HOSTS[:2])
        job.horovodrun("-np", "2", "--min-np", "2", "--max-np", "2", script=STOCK_SCRIPT)
        job.until(lambda: len(job.written("step")) > 10, "two train")
        started = len(job.written("ready"))
        job.hosts(HOSTS[0])
        job.until(lambda: time.time() - max(job.written("step")) > 2, "the survivor waits")
        job.hosts(HOSTS[0], HOSTS[2])
        job.until(lambda: len(job.written("ready")) > started, "the newcomer comes")
        came = max(job.written("ready"))
        if patched:
            job.until(lambda: max(job.written("step")) > came, "they train")
        else:
            job.until(lambda: time.time() - came > 10, "time for many steps goes by")
            assert max(job.written("step")) < came


def test_the_launcher_of_ours_brings_a_killed_worker_back(tmp_path: Path) -> None:
    with training(tmp_path, LENGTH=str(LENGTH), EPOCHS="400") as job:
        snapshot(job.run_dir, "a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "2")
        job.trains(2)
        killed = job.kill("b")
        job.until(lambda: [e for e in job.events("step", size=1) if e["time"] > killed], "the survivor steps")
        snapshot(job.run_dir, "a", "b-2", generation=2)
        job.trains(2)
        assert status_for_a_stranger(job, "/rank_and_size/a:0") == 403
        assert (status_for_a_stranger(job, "/global/0") == 403) is ("rendezvous-token" in horovods_patches())


def status_for_a_stranger(job: Training, path: str) -> int:
    """The rendezvous server's answer to a question without the token."""
    assert job.process is not None
    sockets = psutil.Process(job.process.pid).net_connections("tcp")
    (port,) = (s.laddr.port for s in sockets if s.status == psutil.CONN_LISTEN)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def horovods_patches() -> tuple[str, ...]:
    """The patches of the imported Horovod, by name; none if it does not say."""
    try:
        from horovod.common.hvd_elastic_patches import NAMES
    except ImportError:
        return ()
    return tuple(NAMES)


def snapshot(folder: Path, *aliases: str, generation: int = 1) -> None:
    hosts = tuple(Host(address="127.0.0.1", slots=1, alias=alias, pod=alias) for alias in aliases)
    put_hosts(folder, hosts, generation)
