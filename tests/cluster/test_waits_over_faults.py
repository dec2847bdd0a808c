"""Nobody who waits or trains is ended by an API server that fails for ten seconds, on a real cluster."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvd_elastic.client.connection.login_lookup import discovery_access
from hvd_elastic.decide.autoscale.leadership import LEASE_NAME
from hvd_elastic.mpijob.contract import ENV_EVENTS, Role
from hvd_elastic.system.tls import client_context
from testbed.cluster import jobs
from testbed.cluster.jobs import Job
from testbed.cluster.site import RESULTS, Site
from testbed.cluster.standing import DURABLE, SIZE, nothing_lost
from testbed.kube import waiting
from testbed.kube.certificates import Authority
from testbed.kube.kubectl import Kubectl
from tests.cluster.faultproxy import Cut, FaultProxy, Refusal

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

FAULT_SECONDS = 10
FAULTS = [
    *(Refusal(status) for status in (401, 403, 500, 503)),
    Refusal(429, {"Retry-After": "2"}),
    Cut(),
]
LATE = "late"
"""A job that has no room before the other one has ended, so that somebody waits for its first step."""


@dataclass(frozen=True, kw_only=True)
class Waiters:
    """Everybody who may wait for a job that trains, by verb. What each prints is in a file of the folder."""

    folder: Path
    processes: dict[str, subprocess.Popen[str]]

    def printed(self, verb: str) -> str:
        return (self.folder / verb).read_text()

    def tell(self) -> str:
        """What all of them have printed, for a message."""
        return "\n".join(f"--- {verb}\n{self.printed(verb)}" for verb in self.processes)

    def require_all(self, what: str) -> None:
        ended = [verb for verb, process in self.processes.items() if process.poll() is not None]
        assert not ended, f"{what} has ended {ended}: {self.tell()}"

    def require_success(self) -> None:
        """Each ends by itself, with 0, but the autoscaler, which ends when it is told to."""
        codes = {verb: process.wait(180) for verb, process in self.processes.items() if verb != "autoscale"}
        self.processes["autoscale"].terminate()
        codes["autoscale"] = self.processes["autoscale"].wait(30)
        assert codes == dict.fromkeys(self.processes, 0), self.tell()


@contextlib.contextmanager
def waiters(site: Site, job: Job, kubeconfig: Path, folder: Path) -> Iterator[Waiters]:
    """All of them, once they have begun to wait."""
    late, namespace = folder / f"{LATE}.yaml", job.kubectl.namespace
    late.write_text(json.dumps(described(site, job.kubectl, LATE, workers=1)))
    verbs = {
        "logs": ["logs", job.name, "-f"],
        "watch": ["watch", job.name],
        "status": ["status", job.name, "--wait-for", "succeeded"],
        "submit": ["submit", str(late), "--wait"],
        "autoscale": ["autoscale", "-n", namespace, "--period=2"],
    }
    begun = Waiters(folder=folder, processes={})
    try:
        for verb, words in verbs.items():
            with (folder / verb).open("w") as output:
                begun.processes[verb] = subprocess.Popen(
                    [sys.executable, "-m", "hvd_elastic.cli", *words],
                    env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
        for verb in ("logs", "watch"):
            waiting.until(f"{verb} has begun", (folder / verb).read_text, within_seconds=60)
        autoscaler_holds_its_lease(job, begun)
        # It says what the job waits for once all of it is applied.
        waits = re.compile(f"^{LATE} ", re.MULTILINE)
        waiting.until("submit waits", lambda: waits.search(begun.printed("submit")), within_seconds=60, seen=begun.tell)
        yield begun
    finally:
        for process in begun.processes.values():
            process.kill()
            process.wait()


def described(site: Site, kubectl: Kubectl, name: str, *, workers: int) -> dict[str, Any]:
    """A job on the spot node that tells its steps, and looks for its stop, in a folder of its own."""
    return jobs.describe(
        site,
        kubectl,
        name,
        [*jobs.PACED, f"--stop=/output/{name}/stop"],
        node_labels={"kubernetes.io/hostname": "spot"},
        workers=jobs.workers((1, workers, workers)),
        checkpoint={**DURABLE, "url": f"file:///output/{name}/checkpoints"},
        output={"claim": RESULTS},
        env={ENV_EVENTS: f"/output/{name}/events"},
        network={"policy": False},  # it opens no other port of the API server
    )


def trains(site: Site, kubectl: Kubectl, *, api_server: tuple[str, int] | None = None) -> Job:
    """A job on all GPUs of the spot node, whose sidecar finds the API server at this address."""
    jobs.priority_classes(site)
    shared = jobs.share_results(site, kubectl)
    for name in ("sponge", LATE):
        (shared / name).mkdir()
        (shared / name).chmod(0o777)
    manifests = list(yaml.safe_load_all(jobs.generate(described(site, kubectl, "sponge", workers=SIZE))))
    if api_server is not None:
        replicas = next(each for each in manifests if each["kind"] == "MPIJob")["spec"]["mpiReplicaSpecs"]
        pod = replicas["Launcher"]["template"]["spec"]
        sidecar = next(each for each in pod["initContainers"] if each["name"] == "discovery")
        # What a container says itself, the kubelet does not say: its `makeEnvironmentVariables`.
        for variable, value in zip(("HOST", "PORT"), api_server, strict=True):
            sidecar["env"].append({"name": f"KUBERNETES_SERVICE_{variable}", "value": str(value)})
    kubectl.apply(manifests)
    job = Job(kubectl=kubectl, name="sponge", shared=shared / "sponge")
    job.wait_size(SIZE)
    return job


def still_trains(job: Job) -> None:
    """It does steps, and its sidecar has never ended."""
    job.wait_steps(5)
    (launcher,) = job.pods(Role.LAUNCHER)
    restarts = [status["restartCount"] for status in launcher["status"]["initContainerStatuses"]]
    assert restarts == [0], job.log("discovery")


def all_end(job: Job, waiting_for: Waiters) -> None:
    """The job ends, and with it all who waited; the other one has its room, and trains."""
    job.finish()
    waiting_for.require_success()
    nothing_lost(job.account, ended=True)


def kubeconfig_of(folder: Path, namespace: Kubectl, cluster: dict[str, str] | None = None) -> Path:
    """The administrator's kubeconfig with this namespace; with another `cluster`, which is asked without a login."""
    config = json.loads(namespace.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace.namespace
    if cluster is not None:
        config["clusters"][0]["cluster"] = cluster
        config["users"][0]["user"] = {}
    written = folder / "kubeconfig"
    written.write_text(json.dumps(config))
    return written


@dataclass(frozen=True, kw_only=True)
class Front:
    """Two proxies before the API server, with certificates of their own: people's, and that of the job's pods."""

    people: FaultProxy
    pods: FaultProxy
    own: Authority
    """The cluster's."""
    other: Authority
    trusted: Path
    """The authority that people trust: a file, which their kubeconfig names."""
    addresses: tuple[str, str]

    @classmethod
    def make(cls, site: Site, namespace: Kubectl, folder: Path) -> "Front":
        """Made of the rights of whoever runs the tests. Pods bring their own."""
        plane = site.local().plane
        access, _ = discovery_access()
        uncertified = replace(access, tls=lambda: client_context(cafile=plane.keys / "ca.crt"))
        (folder / "own").mkdir()
        own = replace(Authority.load(plane.keys), folder=folder / "own")
        trusted = folder / "trusted.crt"
        shutil.copyfile(plane.keys / "ca.crt", trusted)
        addresses = ("127.0.0.1", plane.subnets.gateway)
        shown = own.issue("first", "front", answers_to=addresses)
        return cls(
            people=FaultProxy(access, address=addresses[0], certificate=shown),
            pods=FaultProxy(uncertified, address=addresses[1], certificate=shown),
            own=own,
            other=Authority.create(folder / "other"),
            trusted=trusted,
            addresses=addresses,
        )

    @property
    def both(self) -> tuple[FaultProxy, FaultProxy]:
        return self.people, self.pods

    @property
    def server(self) -> dict[str, str]:
        """For a kubeconfig."""
        return {"server": f"https://127.0.0.1:{self.people.port}", "certificate-authority": str(self.trusted)}

    def show(self, authority: Authority, *proxies: FaultProxy) -> None:
        """Show a new certificate of this authority."""
        shown = authority.issue("next", "front", answers_to=self.addresses)
        for proxy in proxies:
            proxy.requests.clear()
            proxy.show(shown)

    def heal(self) -> None:
        for proxy in self.both:
            proxy.heal()
            proxy.requests.clear()

    def go_on(self, job: Job, begun: Waiters, after: str) -> None:
        """Everybody asks again since the last change, and nobody has ended."""
        waiting.until("people ask again", lambda: len(self.people.requests) > 20, within_seconds=60, seen=begun.tell)
        waiting.until("the sidecar asks again", lambda: self.pods.requests, within_seconds=60)
        go_on(job, begun, after)


def go_on(job: Job, begun: Waiters, after: str) -> None:
    """Nobody has ended, the autoscaler goes on, and the job trains."""
    autoscaler_holds_its_lease(job, begun)
    begun.require_all(after)
    still_trains(job)


def autoscaler_holds_its_lease(job: Job, begun: Waiters) -> None:
    """It renews its Lease from now on."""
    now = datetime.now(UTC)

    def renewed() -> bool:
        lease = job.kubectl.find("lease", LEASE_NAME)
        return lease is not None and datetime.fromisoformat(lease["spec"]["renewTime"]) > now

    waiting.until("the autoscaler renews its Lease", renewed, within_seconds=60, seen=begun.tell)


@pytest.fixture
def front(cluster: Site, namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    made = Front.make(cluster, namespace, tmp_path)
    yield made
    for proxy in made.both:
        proxy.stop()


def test_no_fault_ends_a_wait(cluster: Site, namespace: Kubectl, front: Front, tmp_path: Path) -> None:
    job = trains(cluster, namespace, api_server=(front.addresses[1], front.pods.port))
    with waiters(cluster, job, kubeconfig_of(tmp_path, namespace, front.server), tmp_path) as begun:
        for fault in FAULTS:
            for proxy in front.both:
                proxy.fail(fault)
            time.sleep(FAULT_SECONDS)  # the fault lasts for so long
            front.heal()
            front.go_on(job, begun, repr(fault))
        front.show(front.own, *front.both)
        front.go_on(job, begun, "another certificate of the authority")
        front.show(front.other, *front.both)
        time.sleep(FAULT_SECONDS)  # for so long nobody trusts it
        shutil.copyfile(front.other.root, front.trusted)
        front.show(front.own, front.pods)
        front.go_on(job, begun, "another authority")
        all_end(job, begun)


def test_no_restart_of_the_api_server_ends_a_wait(cluster: Site, namespace: Kubectl, tmp_path: Path) -> None:
    """Straight to it: the job's sidecar, too."""
    machine = cluster.local()
    job = trains(cluster, namespace)
    with waiters(cluster, job, kubeconfig_of(tmp_path, namespace), tmp_path) as begun:
        machine.restart_api_server(away_seconds=FAULT_SECONDS)
        go_on(job, begun, "a restart")
        machine.renew_certificate()
        go_on(job, begun, "another certificate")
        all_end(job, begun)
