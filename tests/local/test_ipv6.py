"""Jobs in pods that have an IPv6 address and no other, over a real sshd in each of them."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hvd_elastic.discovery import Host, write_script
from testbed.debian_programs import needed
from testbed.local.host_list import put_hosts
from testbed.local.pod_network import NetworkPod, pod_network
from testbed.local.training import SCRIPT, Training, training
from tests.ipv6 import needs_ipv6

pytestmark = [pytest.mark.process, needs_ipv6, pytest.mark.timeout(600)]

SSH_PORT = 2222


@dataclass
class Pods:
    """A launcher's pod, those of workers, and the job in them."""

    job: Training
    launcher: NetworkPod
    workers: list[NetworkPod]
    identity: Path
    lists: int = 0

    def offer(self, **uids: int) -> None:
        """Put these on the list: by UID, the number of their pod's address."""
        self.lists += 1
        hosts = [
            Host(address=self.workers[number].address, slots=1, alias=f"{uid}-1", pod=f"job-worker-{number}")
            for uid, number in uids.items()
        ]
        put_hosts(self.job.run_dir, hosts, self.lists)

    def start(self, launcher: str, *flags: str) -> None:
        where = ["--host-discovery-script", str(write_script(self.job.run_dir))]
        ssh = ["-p", str(SSH_PORT), "-i", str(self.identity)]
        command = [sys.executable, "-m", "hvd_elastic.cli", launcher, "-np", "2", "--min-np", "1", *where, *ssh, *flags]
        self.job.start(self.launcher.within([*command, sys.executable, str(SCRIPT)]))


@pytest.fixture
def pods() -> Iterator[Pods]:
    program = needed("sshd")
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], check=False).returncode:
        pytest.skip("network namespaces are made by root")
    with tempfile.TemporaryDirectory(prefix="he") as name, contextlib.ExitStack() as stack:
        folder = Path(name)  # a short path: ssh's control socket may have at most 104 characters
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        shutil.copy(folder / "user.pub", folder / "authorized_keys")
        # As the image does: nothing is kept of the keys of pods.
        (folder / "ssh").write_text(f'#!/bin/sh\nexec {needed("ssh")} -o UserKnownHostsFile=/dev/null "$@"\n')
        (folder / "ssh").chmod(0o755)
        (folder / "config").write_text(
            f"Port {SSH_PORT}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\n"
            "StrictModes no\nPidFile none\nUsePAM no\nPasswordAuthentication no\nMaxStartups 100\n"
        )
        network = stack.enter_context(pod_network())
        launcher, *workers = (network.pod() for _ in range(4))
        for worker in workers:
            daemon = subprocess.Popen(worker.within([program, "-D", "-f", str(folder / "config")]))
            stack.callback(daemon.wait)
            stack.callback(daemon.kill)
            listens = ["ss", "-6", "-Hltn", f"sport = :{SSH_PORT}"]
            deadline = time.monotonic() + 20
            while not subprocess.run(worker.within(listens), check=True, capture_output=True).stdout:
                assert daemon.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
        job = stack.enter_context(training(folder, EPOCHS="1000"))
        job.environment["PATH"] = f"{folder}:{job.environment['PATH']}"
        yield Pods(job=job, launcher=launcher, workers=workers, identity=folder / "user")


@pytest.mark.needs_patch("ipv6")
@pytest.mark.parametrize(
    ("launcher", "flags"),
    [
        pytest.param("launch", ("--network-interface", "eth0"), id="launch"),
        pytest.param("launch", (), id="launch-any-interface"),
        pytest.param("horovodrun", ("--network-interface", "eth0"), id="horovodrun"),
    ],
)
def test_a_job_trains_over_ipv6_alone(pods: Pods, launcher: str, flags: tuple[str, ...]) -> None:
    pods.offer(a=0, b=1)
    pods.start(launcher, *flags)
    pods.job.trains(2)
    pods.offer(b=1, c=2, d=0)  # one has come, and the first one has a successor at its address
    pods.job.trains(3)
    steps = [event["step"] for event in pods.job.events("step", rank=0)]
    assert steps == sorted(steps), "no step is taken twice: nothing was restored"
