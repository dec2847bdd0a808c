"""An API server of this process with a job and its pods, their ready port, and a sidecar that watches them."""

import contextlib
import datetime
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from benchmarks.sidecar.sidecar_process import answer, names, sidecar_process
from testbed.kube_api import JOBS, NODES, PODS, KubeApi, Request, Status, mpijob, pod

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where the run folder is: in a pod it is an emptyDir in memory."""


@contextlib.contextmanager
def discovering(pods: int) -> Iterator[tuple[KubeApi, Path, subprocess.Popen[bytes]]]:
    """A sidecar in a separate process, its API server and the folder it writes to."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, serving(Path(name), pods) as (api, port):
        options = {"job": "job", "namespace": "default", "max_workers": pods, "ready_port": port}
        with sidecar_process(Path(name), "127.0.0.1", api.port, options) as process:
            yield api, Path(name), process


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
