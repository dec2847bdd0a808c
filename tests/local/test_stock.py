"""Weaknesses of stock `horovodrun` 0.28.1, each beside the product's launcher in the same situation.

The workers are the tiny ones of the harness, so that only the launcher makes a difference. A test marked `stock` fails
when Horovod fixes a weakness: then the product's own fix may go.
"""

import base64
import contextlib
import http.client
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from hvd_elastic.horovod.patch_set import installed_patches
from testbed.local.harness import WORKER, Job, own_addresses
from testbed.local.harness import job as make_job

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-S", str(WORKER), "--stock"]


class Stock(Job):
    """A job under either launcher, with hosts that are addresses of this machine, from a discovery script."""

    product = False

    @property
    def script(self) -> str:
        path = self.folder / "discover"
        if not path.exists():
            path.write_text(f"#!/bin/sh\ncat {self.folder}/list\n")
            path.chmod(0o755)
        return str(path)

    def hosts(self, *names: str) -> None:
        new = self.folder / ".list"
        new.write_text("".join(f"{name if ':' in name else name + ':1'}\n" for name in names))
        new.rename(self.folder / "list")

    def run(self, *flags: str) -> None:
        if self.product:
            self.launch(*flags, command=COMMAND[:-1], discovery=self.script)
        else:
            self.horovodrun(*flags, command=COMMAND, discovery=self.script)


@pytest.fixture(params=[pytest.param(False, id="horovodrun", marks=pytest.mark.stock), pytest.param(True, id="launch")])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stock]:
    with make_job(tmp_path) as made:
        made.__class__ = Stock
        assert isinstance(made, Stock)
        made.product = request.param
        yield made


A, B, C = own_addresses()


def test_every_host_replaced_at_once(job: Stock) -> None:
    job.hosts(A)
    job.run("-np", "1", "--min-np", "1", "--max-np", "2")
    job.trains(f"{A}:0")
    job.hosts(B)
    if job.product:
        job.trains(f"{B}:0")
        job.check_no_step_was_lost()
        return
    job.ends()
    assert "No hosts from previous set remaining, unable to broadcast state" in job.said()
    assert not job.events("joined", f"{B}:0")


def test_a_newcomer_that_dies_before_its_init(job: Stock) -> None:
    """Stock: the survivors wait for it until the Gloo time-out; real ones then abort and the job is lost."""
    job.hosts(A, B)
    job.order(f"{C}:0", "init", "kill")
    timeout = 60 if job.product else 6  # longer than `trains` waits for, and no longer than stock's pause must be
    job.run("-np", "2", "--min-np", "1", "--gloo-timeout-seconds", str(timeout))
    job.trains(f"{A}:0", f"{B}:0")
    job.hosts(A, B, C)
    job.until(lambda: job.events("trouble", f"{C}:0"), "the newcomer's death")
    died = job.events("trouble", f"{C}:0")[0]["time"]
    job.trains(f"{A}:0", f"{B}:0")
    pause = next(e["time"] for e in job.events("step") if e["time"] > died and e["size"] == 2) - died
    assert (pause < timeout / 2) is job.product  # half: the survivors begin to wait before the newcomer dies


def test_a_host_that_comes_while_another_is_starting(job: Stock) -> None:
    """Stock notifies once; a notification that arrives before the survivors have reset is thrown away for good."""
    job.hosts(A)
    job.order(f"{B}:0", "start", "sleep 4")
    job.run("-np", "1", "--min-np", "1")
    job.trains(f"{A}:0")
    job.hosts(A, B)
    job.until(lambda: job.events("trouble", f"{B}:0"), "the second host starts")
    job.hosts(A, B, C)
    if job.product:
        job.trains(f"{A}:0", f"{B}:0", f"{C}:0")
        return
    job.trains(f"{A}:0", f"{B}:0")
    mark = len(job.events("step", f"{A}:0"))
    job.until(lambda: len(job.events("step", f"{A}:0")) > mark + 300, "three hundred more steps")
    assert not job.events("started", f"{C}:0"), "the third host is used after all"


def test_a_removed_worker_that_ends_with_0_after_its_name_is_back(job: Stock) -> None:
    job.hosts(A, B)
    job.order(f"{B}:0", "removed", "sleep 3")
    job.environment["WORKER_REMOVED_CODE"] = "0"
    job.run("-np", "1", "--min-np", "1", *([] if job.product else ["--log-level", "INFO"]))
    job.trains(f"{A}:0", f"{B}:0")
    job.hosts(A)
    job.trains(f"{A}:0")
    job.hosts(A, B)
    job.until(lambda: len(job.events("removed", f"{B}:0")) == 1, "the old process leaves slowly")
    if job.product:
        job.trains(f"{A}:0", f"{B}:0")
        job.hosts(A, B, C)
        job.trains(f"{A}:0", f"{B}:0", f"{C}:0")
        return
    job.until(lambda: len(job.events("started", f"{B}:0")) == 2, "its successor")
    old = job.events("started", f"{B}:0")[0]["pid"]
    job.until(lambda: old not in job.left(), "the old one's end")
    job.hosts(A, B, C)
    # Its threads may keep it from ending for longer than a test waits.
    job.until(lambda: "success count == 1 -> stop running" in job.said(), "its end")
    job.until(lambda: not job.left(), "the end of its workers")
    assert not job.events("finished")


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(False, id="horovodrun", marks=pytest.mark.needs_patch("leaving-below-minimum")),
        pytest.param(True, id="launch"),
    ],
    indirect=True,
)
def test_a_worker_that_leaves_below_the_minimum(job: Stock) -> None:
    """It does not wait with the others for a replacement, but gives its GPU back. Stock answers nobody before there are
    enough slots again.
    """
    job.hosts(A, B)
    job.run("-np", "2", "--min-np", "2", "--max-np", "3", "--gloo-timeout-seconds", "60")
    job.trains(f"{A}:0", f"{B}:0")
    job.hosts(B)
    job.until(lambda: job.events("removed", f"{A}:0"), "it is told to leave")
    job.until(lambda: job.pid(f"{A}:0") not in job.left(), "it has left")
    assert not job.events("removed", f"{B}:0")
    job.hosts(B, C)
    job.trains(f"{B}:0", f"{C}:0")
    job.hosts(A, B, C)
    job.trains(f"{A}:0", f"{B}:0", f"{C}:0")
    job.check_no_step_was_lost()


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(False, id="horovodrun", marks=pytest.mark.needs_patch("leaving-below-minimum")),
        pytest.param(True, id="launch"),
    ],
    indirect=True,
)
def test_a_process_that_ends_while_the_others_wait_for_a_host(job: Stock) -> None:
    """It does not count in the next world. Stock enters it there as one that has asked for a place: at the change after
    that the first workers to ask are answered alone, and wait for the others until the Gloo time-out, which is longer
    here than the test.
    """
    job.hosts(A, B, C)
    job.run("-np", "3", "--min-np", "3", "--max-np", "4", "--gloo-timeout-seconds", "60")
    job.trains(f"{A}:0", f"{B}:0", f"{C}:0")
    job.hosts(A, B)
    job.until(lambda: len(job.events("asks")) >= 3 and job.events("removed", f"{C}:0"), "two wait, and one leaves")
    job.kill(f"{A}:0")
    job.until(lambda: job.pid(f"{A}:0") not in job.left(), "its end")
    if not job.product:
        job.until(lambda: "exit with status code 137" in job.said(), "the driver knows of its end")
    job.hosts(f"{B}:2", C)
    job.trains(f"{B}:0", f"{B}:1", f"{C}:0")
    job.hosts(f"{B}:2", f"{C}:2")
    job.trains(f"{B}:0", f"{B}:1", f"{C}:0", f"{C}:1")


@pytest.mark.parametrize("job", [False, True], ids=["horovodrun", "launch"], indirect=True)
def test_workers_that_all_leave_below_the_minimum(job: Stock) -> None:
    """One keeps the state until another worker has it."""
    job.hosts(A, B)
    job.run("-np", "2", "--min-np", "2", "--max-np", "3", "--gloo-timeout-seconds", "60")
    job.trains(f"{A}:0", f"{B}:0")
    job.hosts(C)
    job.until(lambda: {e["name"] for e in job.events("asks")} >= {f"{A}:0", f"{B}:0"}, "both ask for a place")
    job.hosts(C, B)
    job.trains(f"{B}:0", f"{C}:0")
    job.check_no_step_was_lost()


def test_a_put_to_the_rendezvous_server_that_carries_code(job: Stock) -> None:
    """Stock runs it (CVE-2024-10190). The patch `worker-addresses` closes that in `horovodrun` too."""
    job.hosts(A)
    job.run("-np", "1", "--min-np", "1")
    job.trains(f"{A}:0")
    target = job.folder / "owned"
    environment = Path(f"/proc/{job.pid(f'{A}:0')}/environ").read_bytes().decode()
    found = re.search(r"HOROVOD_GLOO_RENDEZVOUS_PORT=(\d+)", environment)
    assert found

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(target),)

    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
    connection.request("PUT", f"/worker_addresses/{A}:0", base64.b64encode(cloudpickle.dumps(Evil())))
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.getresponse().read()
    assert target.exists() is not (job.product or "worker-addresses" in installed_patches())


def test_a_first_run_of_the_script_that_fails(job: Stock) -> None:
    """Stock: the job dies at once. (Horovod's scenario `shutdown_on_initial_discovery_failure`.)"""
    job.run("-np", "1", "--min-np", "1")
    if not job.product:
        assert job.ends() != 0
        return
    job.until(lambda: "stay as they are" in job.said(), "the complaint")
    job.hosts(A)
    job.trains(f"{A}:0")


def test_secrets_of_the_launcher_are_on_the_workers_command_lines(job: Stock) -> None:
    job.environment["AWS_SECRET_ACCESS_KEY"] = "very-secret"
    job.hosts(A)
    job.run("-np", "1", "--min-np", "1")
    job.trains(f"{A}:0")
    assert job.process is not None
    lines = b""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{job.folder}".encode() in (folder / "environ").read_bytes():
                lines += (folder / "cmdline").read_bytes()
        except OSError:
            continue
    assert (b"very-secret" in lines) is not job.product
