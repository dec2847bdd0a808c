"""Horovod's own elastic scenarios, by the names that its tests give them, under `launch` as under `horovodrun`.

Those of its integration tests (test/integration/elastic_common.py, elastic_spark_common.py) run here with real torch
and Horovod processes. Those of its driver's unit tests (test/single/test_elastic_driver.py) are about behaviour that
ELSEWHERE names a test for. Horovod's workers are forked from one that has its imports behind it: see forkserver.py.
"""

import importlib
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit
from testbed.local import forkserver
from testbed.local.harness import Job
from testbed.local.harness import job as make_job

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

HERE, THERE = "localhost", "127.0.0.1"
BOTH = f"{HERE}:2 {THERE}:2"
ONE_BY_ONE = f"{HERE}:1 {THERE}:1"
WORKER = Path(__file__).with_name("scenario_worker.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What happens, and what is expected: three numbers for each epoch that rank 0 reports, or how the job fails."""

    hosts: tuple[str, ...]
    """The hosts before the first epoch has ended, the second, ...; the last entry holds from then on."""
    flags: tuple[str, ...] = ("-np", "2", "--min-np", "2", "--max-np", "4")
    static: bool = False
    """Hosts by `-H`, without a discovery script."""
    exits: dict[str, list[int]] = field(default_factory=dict)
    kill: bool = False
    epochs: tuple[tuple[int, int, int], ...] = ()
    """The rank with which the oldest process started, the size of its world, how many worlds it has seen."""
    any_order: bool = False
    """Whether stock may start from either host: it takes those of the first world in the order of a set."""
    fails: Exit | None = None
    """`launch`'s exit code; horovodrun's is 1 for everything."""


def failure(**fields: object) -> Scenario:
    """Rank 0 of four fails in the second epoch; its host is left out with the other process on it."""
    epochs = ((0, 4, 1), (2, 2, 2), (2, 2, 2))
    return Scenario(hosts=(BOTH,), exits={"1,0": [0]}, epochs=epochs, **fields)  # type: ignore[arg-type]


RESIZES = (f"{HERE}:2", BOTH, f"{THERE}:2")
SCENARIOS = {
    "hosts_added_and_removed": Scenario(hosts=RESIZES, epochs=((0, 2, 1), (0, 4, 2), (2, 2, 3))),
    "hosts_added_and_removed, one slot": Scenario(
        hosts=(f"{HERE}:1", ONE_BY_ONE, f"{THERE}:1"),
        flags=("-np", "1", "--min-np", "1", "--max-np", "2"),
        epochs=((0, 1, 1), (0, 2, 2), (1, 1, 3)),
    ),
    "auto_scale_up": Scenario(hosts=(f"{HERE}:2", BOTH), epochs=((0, 2, 1), (0, 4, 2), (0, 4, 2))),
    "auto_scale_down_by_discovery": Scenario(
        hosts=(BOTH, f"{HERE}:2"), epochs=((0, 4, 1), (0, 2, 2), (0, 2, 2)), any_order=True
    ),
    "single_rank_failure, exception": failure(),
    "single_rank_failure, kill": failure(kill=True),
    "fault_tolerance_without_scaling, exception": failure(static=True, flags=("-np", "2", "--min-np", "2")),
    "fault_tolerance_without_scaling, kill": failure(static=True, flags=("-np", "2", "--min-np", "2"), kill=True),
    "all_ranks_failure": Scenario(hosts=(BOTH,), exits={"1,0": [0, 1, 2, 3]}, fails=Exit.ALL_WORKERS_LOST),
    "all_hosts_blacklisted": Scenario(hosts=(BOTH,), exits={"1,0": [0, 2]}, fails=Exit.ALL_WORKERS_LOST),
    "min_hosts_timeout": Scenario(
        hosts=(BOTH,),
        flags=("-np", "4", "--min-np", "4", "--elastic-timeout", "1"),
        exits={"1,0": [0]},
        fails=Exit.MIN_WORKERS_TIMEOUT,
    ),
    "reset_limit, exceeded": Scenario(
        hosts=RESIZES, flags=("-np", "2", "--max-np", "4", "--reset-limit", "1"), fails=Exit.RESET_LIMIT
    ),
    "reset_limit, kept": Scenario(
        hosts=RESIZES,
        flags=("-np", "2", "--max-np", "4", "--reset-limit", "2"),
        epochs=((0, 2, 1), (0, 4, 2), (2, 2, 3)),
    ),
}

ELSEWHERE = {
    "rank_and_size": "hvd_elastic.launcher.test_values:test_ranks_are_horovods",
    "rank_and_size_with_host_failure": "local.test_launch:test_a_host_that_fails_before_the_first_world_is_left_out",
    "rank_and_size_with_host_added": "local.test_launch:test_a_host_that_comes_before_the_first_world_is_part_of_it",
    "wait_for_available_slots": "local.test_launch:test_nothing_starts_before_enough_slots_are_there",
    # Stock waits for a second host to probe its network interfaces; `launch` starts on one.
    "wait_for_min_hosts": "local.test_launch:test_a_script_that_hangs_fails_or_lies_takes_no_host_away",
    "all_workers_fail": "local.test_launch:test_all_workers_lost",
    "shutdown_on_success": "local.test_launch:test_one_process_that_ends_with_0_ends_the_job",
    "host_shutdown_on_worker_failure": "local.test_launch:test_a_whole_host_with_several_processes",
    "worker_notification_manager": "local.test_launch:test_grows_and_shrinks_without_losing_a_step",
    "send_notifications_without_assignments": ("local.test_launch:test_stands_still_below_the_minimum_and_goes_on"),
    "order_available_hosts": "hvd_elastic.launcher.test_world:test_old_hosts_keep_their_order",
    "update_available_hosts": "hvd_elastic.launcher.test_values:test_the_differences_of_two_worlds_host_by_host",
    "blacklist_host": "hvd_elastic.launcher.test_values:test_without_a_range_a_host_never_returns",
    # Stock ends the job; `launch` keeps asking, within --elastic-timeout.
    "shutdown_on_initial_discovery_failure": "local.test_stock:test_a_first_run_of_the_script_that_fails",
}

STOCK = """
import horovod.runner.launch as stock, horovod.runner.elastic.driver as driver
driver.DISCOVER_HOSTS_FREQUENCY_SECS = 0.05  # As Horovod's own tests do, or each change waits for a second.
stock.gloo_built = lambda verbose=False: True  # It imports torch to find out.
stock.run_commandline()
"""


@pytest.fixture(params=["launch", pytest.param("horovodrun", marks=pytest.mark.stock)])
def launcher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with make_job(tmp_path) as made:
        yield made


def start(job: Job, launcher: str, scenario: Scenario, **plan: object) -> None:
    lines = job.folder / "lines"
    changes = list(range(len(scenario.hosts) - 1))
    whole = {"epochs": 3, "exits": scenario.exits, "kill": scenario.kill, "changes": changes, "epoch_seconds": 0.0}
    job.environment |= {"PLAN": json.dumps({**whole, **plan}), "LINES": str(lines)}
    job.environment["PATCHED"] = "1" if launcher == "launch" else ""
    where = ["-H", scenario.hosts[0].replace(" ", ",")]
    if not scenario.static:
        where = ["--host-discovery-script", str(discovery(job.folder, lines, scenario.hosts))]
    command = [*forkserver.python(), str(WORKER)]
    common = [*scenario.flags, "--gloo-timeout-seconds", "5", "--network-interface", "lo", *where]
    if launcher == "launch":
        ours = [sys.executable, "-m", "hvd_elastic.cli", "launch", "--run-dir", str(job.run_dir), "--settle", "0.05"]
        job.start([*ours, "--on-error", "restart", *common], command)
    else:
        job.start([sys.executable, "-c", STOCK, *common], command)


def discovery(folder: Path, lines: Path, hosts: tuple[str, ...]) -> Path:
    """A script whose hosts depend on the number of epochs that rank 0 has reported, as in Horovod's tests."""
    script = folder / "discover"
    cases = [f"{count}) echo {names} ;;" for count, names in enumerate(hosts[:-1])]
    text = ["#!/bin/sh", f"case $(cat {lines} 2>/dev/null | wc -l) in", *cases, f"*) echo {hosts[-1]} ;;", "esac"]
    script.write_text("\n".join(text).replace(" 127", "; echo 127") + "\n")
    script.chmod(0o755)
    return script


def told(job: Job) -> list[dict[str, object]]:
    path = job.folder / "lines"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(job: Job, launcher: str, name: str) -> None:
    scenario = SCENARIOS[name]
    start(job, launcher, scenario)
    code = job.ends(90)
    lines = told(job)
    if scenario.fails is not None:
        assert code == (scenario.fails if launcher == "launch" else 1), job.said()
        assert len(lines) < 3
        return
    assert code == 0, job.said()
    fields = (
        ["size", "rendezvous"]
        if scenario.any_order and launcher == "horovodrun"
        else ["start_rank", "size", "rendezvous"]
    )
    assert [tuple(line[name] for name in fields) for line in lines] == [e[-len(fields) :] for e in scenario.epochs]
    # Four batches and the epoch itself: what was committed counts once, whatever failed in between.
    assert [line["commits"] for line in lines] == [4, 9, 14]


def test_resurrecting_blacklisted_hosts_exponential_backoff(job: Job, launcher: str) -> None:
    """A host that failed comes back after its cooldown, and after a second failure it takes longer."""
    scenario = Scenario(
        hosts=(ONE_BY_ONE,),
        flags=("-np", "1", "--min-np", "1", "--blacklist-cooldown-range", "1", "10"),
        exits={"1,0": [1], "40,0": [1]},
    )
    start(job, launcher, scenario, epochs=100, epoch_seconds=0.1)
    assert job.ends(90) == 0, job.said()
    lines = told(job)
    assert len(lines) == 100
    sizes = [line["size"] for line in lines]
    alone = [float(str(line["time"])) for line in lines if line["size"] == 1]
    again = next(at for at, (one, two) in enumerate(itertools.pairwise(alone)) if two - one > 0.5)
    first, second = alone[again] - alone[0], alone[-1] - alone[again + 1]
    assert sizes[0] == sizes[-1] == 2
    assert second > first


def test_every_scenario_has_a_test() -> None:
    for name, where in ELSEWHERE.items():
        module, _, test = where.partition(":")
        assert callable(getattr(importlib.import_module(f"tests.{module}"), test, None)), f"{name}: {where}"
