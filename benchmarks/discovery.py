"""What discovery costs: time from event to snapshot, memory and CPU of the sidecar, and its script beside /bin/true.

    python -m benchmarks.discovery [--pods 1000 ...] [--changes 50] [--seconds 30]

The sidecar is a separate process. It uses TLS, and a small API server and real ready ports in this process. A change
flips the Ready condition of one pod; its latency ends when a reader of the snapshot file sees it. Then all but half of
the pods are not ready any more, all at once, and come back. With several numbers of pods, a table says how the costs
grow. A fault lasts
FAULT_SECONDS, during which the pods change; measured is the time from the API server's return to the right list. CPU is
user and system time: on a busy machine, compare two versions by it, in turns, and not by the clock.
"""

import argparse
import contextlib
import datetime
import json
import os
import random
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report.growth import growth
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.discovery import Host, Snapshot, uptime_seconds, write_script, write_snapshot
from hvd_elastic.mpijob.contract import SNAPSHOT_FILE
from tests.discovery.kubeapi import JOBS, NODES, PODS, Cut, Fault, KubeApi, Request, Status, mpijob, pod

SHELL = "/bin/sh"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where the run folder is: in a pod it is an emptyDir in memory."""

FAULT_SECONDS = 5.0
FAULT_PODS = 8
RUNS = 100

Action = Callable[[KubeApi], object]

CHILD = """
import json, sys
from pathlib import Path
from hvd_elastic import logs
from hvd_elastic.discovery.kube import credentials
from hvd_elastic.discovery.sidecar.sidecar import Sidecar
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics
folder = Path(sys.argv[1])
logs.configure("json")
options = SidecarOptions(run_dir=folder, **json.loads(sys.argv[2]))
Sidecar(options, credentials.in_cluster(folder=folder), Metrics()).run()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, nargs="+", default=[1000])
    parser.add_argument("--changes", type=int, default=50, help="a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    record = Record(name="discovery", question="What does discovery cost, and how fast is it?")
    sidecars = Table(
        name="discovery-sidecar",
        title=f"The sidecar, at {options.changes} changes a second for {options.seconds:.0f} s",
        columns=SIDECAR_COLUMNS,
        rows=[sidecar(pods, options.changes, options.seconds) for pods in sorted(options.pods)],
        note=f"A pod has {len(json.dumps(large(0)))} bytes. This server refuses to list nodes, as a cluster may.",
    )
    record.add(sidecars)
    if len(options.pods) > 1:
        record.add(growth(sidecars, name="discovery-growth", of=COSTS))
    record.add(faults())
    record.add(imports())
    record.add(scripts(sorted({3, 64, *options.pods})))
    record.write()


FIRST_CPU, CHANGE_CPU, HALF_CPU, BACK_CPU = "CPU s, first list", "CPU ms a change", "CPU s, half leave", "CPU s, back"
QUIET, RESIDENT, MOST = "of a core, quiet", "MiB", "MiB, most"
COSTS = (FIRST_CPU, CHANGE_CPU, HALF_CPU, BACK_CPU, QUIET, RESIDENT, MOST)
"""Columns of which a table says how they grow."""
SIDECAR_COLUMNS = (
    Column(title="pods", format="d"),
    Column(title="s, first list", format=".2f"),
    Column(title=FIRST_CPU, format=".2f"),
    *(Column(title=f"ms, event to snapshot, {which}", format=".1f") for which in ("p50", "p99", "most")),
    Column(title=CHANGE_CPU, format=".2f"),
    Column(title="of a core, changes", format=".2%"),
    Column(title="s, half leave", format=".2f"),
    Column(title=HALF_CPU, format=".2f"),
    Column(title="s, back", format=".2f"),
    Column(title=BACK_CPU, format=".2f"),
    Column(title=QUIET, format=".2%"),
    Column(title=RESIDENT, format=".1f"),
    Column(title=MOST, format=".1f"),
    Column(title="lists of pods", format="d"),
    Column(title="pages", format="d"),
    Column(title="watches of pods", format="d"),
    Column(title="at a time", format="d"),
)


def sidecar(pods: int, changes: int, seconds: float) -> list[Value]:
    """One sidecar, as a row of the table. Its seconds count from the start of its process."""
    with discovering(pods) as (api, folder, process):
        started = time.perf_counter()
        until_shown(folder, pods)
        full, first_cpu = time.perf_counter() - started, cpu_seconds(process.pid)
        time.sleep(3)
        quiet = busy_share(process.pid, lambda: time.sleep(10))
        latencies: list[float] = []
        loaded = busy_share(process.pid, lambda: latencies.extend(churn(api, folder, pods, changes, seconds)))
        bulk(process.pid, api, folder, range(pods), pods, ready=True)
        left = bulk(process.pid, api, folder, range(pods - pods // 2, pods), pods, ready=False)
        back = bulk(process.pid, api, folder, range(pods - pods // 2, pods), pods, ready=True)
        memory = psutil.Process(process.pid).memory_info().rss / 2**20
        peak = resource_peak(process.pid)
    cuts = statistics.quantiles(latencies, n=100)
    return [
        pods,
        full,
        first_cpu,
        *(1e3 * value for value in (cuts[49], cuts[98], max(latencies))),
        1e3 * loaded / changes,
        loaded,
        *left,
        *back,
        quiet,
        memory,
        peak,
        api.lists(),
        api.asked(watch=False),
        api.asked(watch=True),
        api.most_watching[PODS],
    ]


def bulk(
    pid: int, api: KubeApi, folder: Path, changed: Sequence[int], pods: int, *, ready: bool
) -> tuple[float, float]:
    """Change many pods at once. Returns the seconds until the list is right, and the sidecar's CPU seconds for it."""
    before, started = cpu_seconds(pid), time.perf_counter()
    for index in changed:
        api.put(PODS, large(index, ready=ready))
    until_shown(folder, pods if ready else pods - len(changed))
    return time.perf_counter() - started, cpu_seconds(pid) - before


def faults() -> Table:
    """Each fault in turn, on one sidecar: seconds from its end to the right list."""
    with discovering(FAULT_PODS) as (api, folder, _):
        until_shown(folder, FAULT_PODS)
        took: dict[str, float] = {}
        for name, (begin, end) in FAULTS.items():
            begin(api)
            api.cut()
            api.put(PODS, large(0, ready=False))
            time.sleep(FAULT_SECONDS)
            started = time.perf_counter()
            end(api)
            until_shown(folder, FAULT_PODS - 1)
            took[name] = time.perf_counter() - started
            api.put(PODS, large(0))
            until_shown(folder, FAULT_PODS)
    return Table(
        name="discovery-faults",
        title=f"After a fault of the API server of {FAULT_SECONDS:.0f} s, {FAULT_PODS} pods",
        columns=(Column(title="fault"), Column(title="s until the list is right", format=".2f")),
        rows=list(took.items()),
    )


def refusing(fault: Fault) -> tuple[Action, Action]:
    """Every request for pods meets the fault."""

    def begin(api: KubeApi) -> None:
        def on_pods(request: Request) -> None:
            if request.path == PODS:
                fault(request)
            no_nodes(request)

        api.fault = on_pods

    def end(api: KubeApi) -> None:
        api.fault = no_nodes

    return begin, end


def status(code: int) -> Fault:
    def fault(_: Request) -> None:
        raise Status(code, {"Retry-After": "1"} if code == HTTPStatus.TOO_MANY_REQUESTS else {})

    return fault


def cut(_: Request) -> None:
    raise Cut


def hanging() -> tuple[Action, Action]:
    """Requests are accepted and not answered."""
    healed = threading.Event()

    def hang(_: Request) -> None:
        healed.wait()

    begin, end = refusing(hang)

    def heal(api: KubeApi) -> None:
        end(api)
        healed.set()

    return begin, heal


def garbled() -> tuple[Action, Action]:
    """Pods are listed, but their events cannot be read."""

    def begin(api: KubeApi) -> None:
        api.chop = lambda line: [line.replace(b'"type":', b'"tyqe":')]

    def end(api: KubeApi) -> None:
        api.chop = lambda line: [line]

    return begin, end


FAULTS: dict[str, tuple[Action, Action]] = {
    "stopped": (KubeApi.stop, KubeApi.start),
    "cutting": refusing(cut),
    **{str(code): refusing(status(code)) for code in (401, 403, 429, 500, 503)},
    "hanging": hanging(),
    "garbled": garbled(),
}


@contextlib.contextmanager
def discovering(pods: int) -> Iterator[tuple[KubeApi, Path, subprocess.Popen[bytes]]]:
    """A sidecar in a separate process, its API server and the folder it writes to."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, serving(Path(name), pods) as (api, port):
        options = {"job": "job", "namespace": "default", "max_workers": pods, "ready_port": port}
        with sidecar_process(Path(name), "127.0.0.1", api.port, options) as process:
            yield api, Path(name), process


@contextlib.contextmanager
def sidecar_process(
    folder: Path, host: str, port: int, options: Mapping[str, object]
) -> Iterator[subprocess.Popen[bytes]]:
    """A sidecar in a process of its own, with fields of SidecarOptions. CA and token lie in `folder`, where it runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), json.dumps(options)],
        env={**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def until_shown(folder: Path, hosts: int) -> None:
    while len(names(folder)) != hosts:
        time.sleep(0.005)


def no_nodes(request: Request) -> None:
    if request.path == NODES:
        raise Status(403)


@contextlib.contextmanager
def serving(folder: Path, pods: int) -> Iterator[tuple[KubeApi, int]]:
    """An API server with a job and its pods, credentials in `folder`, and the workers' ready port."""
    api = KubeApi(tls=certificate(folder))
    api.fault = no_nodes
    api.put(JOBS, mpijob(replicas=pods))
    for index in range(pods):
        api.put(PODS, large(index))
    listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
    threading.Thread(target=answer, args=(listener,), daemon=True).start()
    try:
        yield api, listener.getsockname()[1]
    finally:
        listener.close()
        api.stop()


def large(index: int, *, ready: bool = True) -> dict[str, Any]:
    """A pod as large as a real one; discovery needs little of it."""
    made = pod(index, ip=f"127.{1 + index // 65025}.{index // 255 % 255}.{index % 255 + 1}", ready=ready)
    environment = [{"name": f"VARIABLE_{number}", "value": "some value of a usual length"} for number in range(60)]
    made["spec"]["containers"] = [{"name": "worker", "image": "registry.example.com/a:1", "env": environment}]
    made["metadata"]["managedFields"] = [
        {"manager": "kubelet", "fieldsV1": {f"f:field-{number}": {"f:x": {}} for number in range(40)}}
    ]
    return made


def answer(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.send(b"hvd-elastic 1 0 training 1000 0\n")
            connection.close()


def certificate(folder: Path) -> ssl.SSLContext:
    """A self-signed server certificate; CA and token are where a pod finds them."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "token").write_text("token")
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    return context


def churn(api: KubeApi, folder: Path, pods: int, changes: int, seconds: float) -> list[float]:
    """Change one pod after the other, evenly spaced; return how long each change took to show, in seconds."""
    dice, latencies, stop = random.Random(1), [], threading.Event()
    pending: dict[str, tuple[float, bool]] = {}

    def observe() -> None:
        seen = 0
        while not stop.is_set() or pending:
            inode = (folder / SNAPSHOT_FILE).stat().st_ino
            if inode != seen:
                seen, present, now = inode, names(folder), time.perf_counter()
                for name, (since, expected) in list(pending.items()):
                    if (name in present) is expected:
                        del pending[name]
                        latencies.append(now - since)
            time.sleep(0.0005)

    observer = threading.Thread(target=observe)
    observer.start()
    down: set[int] = set()
    due = time.perf_counter()
    for _ in range(int(seconds * changes)):
        index = dice.randrange(pods)
        down ^= {index}
        made = large(index, ready=index not in down)
        if made["metadata"]["name"] not in pending:
            pending[made["metadata"]["name"]] = (time.perf_counter(), index not in down)
            api.put(PODS, made)
        else:
            down ^= {index}
        due += 1 / changes
        time.sleep(max(0.0, due - time.perf_counter()))
    stop.set()
    observer.join()
    return latencies


def names(folder: Path) -> set[str]:
    try:
        return {line.rpartition(" ")[2] for line in (folder / SNAPSHOT_FILE).read_text().splitlines()[:-1]}
    except FileNotFoundError:
        return set()


def busy_share(pid: int, work: Any) -> float:
    """CPU seconds of `pid` per second while `work` runs."""
    before, started = cpu_seconds(pid), time.perf_counter()
    work()
    return (cpu_seconds(pid) - before) / (time.perf_counter() - started)


def cpu_seconds(pid: int) -> float:
    """User and system time so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def resource_peak(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def imports() -> Table:
    """Why the sidecar uses http.client and not the `kubernetes` package."""
    rows: list[list[Value]] = []
    for what in ("hvd_elastic.discovery.sidecar.sidecar", "kubernetes.client"):
        code = (
            f"import time; t = time.time(); import {what}; d = time.time() - t\n"
            "import psutil; print(d, psutil.Process().memory_info().rss)"
        )
        seconds, rss = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        rows.append([what, float(seconds), int(rss) / 2**20])
    columns = (Column(title="import"), Column(title="s", format=".2f"), Column(title="MiB resident", format=".0f"))
    return Table(name="discovery-imports", title="What importing takes", columns=columns, rows=rows)


def scripts(sizes: Sequence[int]) -> Table:
    return Table(
        name="discovery-script",
        title=f"The discovery script, above /bin/true through {SHELL}, medians of {RUNS}",
        columns=(
            Column(title="hosts", format="d"),
            Column(title="ms", format=".2f"),
            Column(title="CPU ms", format=".2f"),
        ),
        rows=[script(hosts) for hosts in sizes],
    )


def script(hosts: int) -> list[Value]:
    with tempfile.TemporaryDirectory() as name:
        path = write_script(Path(name))
        offered = tuple(
            Host(
                address=f"10.0.{i // 250}.{i % 250}",
                slots=8,
                alias=f"1f1e2d3c-aaaa-4bbb-8ccc-{i:012}-0",
                pod=f"job-worker-{i}",
            )
            for i in range(hosts)
        )
        write_snapshot(
            path.parent,
            Snapshot(hosts=offered, generation=1, uptime_seconds=uptime_seconds(), unix_seconds=int(time.time())),
        )
        rounds = [(timed("/bin/true"), timed(str(path))) for _ in range(RUNS)]
    wall, cpu = ([script[kind] - true[kind] for true, script in rounds] for kind in (0, 1))
    return [hosts, statistics.median(wall) * 1e3, statistics.median(cpu) * 1e3]


def timed(command: str) -> tuple[float, float]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([SHELL, "-c", command], stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
