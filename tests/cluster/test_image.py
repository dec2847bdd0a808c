"""The project's own image: what is in it, what is not, and that ssh trusts the job's key and no other."""

import json
import subprocess

import pytest

from testbed.cluster.site import Site
from testbed.kube import images, waiting
from testbed.kube.kubectl import Kubectl, condition_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]

_READY_SECONDS = 60


@pytest.fixture
def pod(cluster: Site, namespace: Kubectl) -> Kubectl:
    """A pod of the image that passes `restricted`, with an empty place for a key."""
    _run(namespace, "probe", cluster.image)
    return namespace


@pytest.mark.core
def test_what_a_worker_needs_is_there(pod: Kubectl) -> None:
    said = _shell(pod, "id -u; python -c 'import horovod.torch, mpi4py.MPI; print(mpi4py.MPI.Get_library_version())'")
    assert said.startswith("1000\n")
    assert "Open MPI" in said
    assert "hvd-elastic, version" in _shell(pod, "hvd-elastic --version")
    assert "Gloo" in _shell(pod, "horovodrun --check-build")
    # `hvd-elastic tensorboard` runs it, and without it torch writes no events.
    assert _shell(pod, "python -c 'import torch.utils.tensorboard' && tensorboard --version 2>/dev/null")


def test_byte_code_is_compiled(pod: Kubectl) -> None:
    """A pod cannot write it, and would compile torch at each start."""
    program = (
        "import os, torch, horovod.torch, hvd_elastic as h; print([os.path.exists(m.__cached__) for m in (torch, h)])"
    )
    assert _shell(pod, f'python -c "{program}"').strip() == "[True, True]"


def test_the_bill_of_materials_lists_what_is_installed(pod: Kubectl) -> None:
    """The build has checked it against CycloneDX's schema (docker/sbom); here it is compared to what is there."""
    bill = json.loads(_shell(pod, "cat /usr/share/doc/hvd-elastic/sbom.cdx.json"))
    listed = {f"{part['name']} {part['version']}" for part in bill["components"]}
    program = "from importlib import metadata as m; [print(d.metadata['Name'], d.version) for d in m.distributions()]"
    python = set(_shell(pod, f'python -c "{program}"').splitlines())
    debian = set(_shell(pod, "dpkg-query --show --showformat='${Package} ${Version}\\n'").splitlines())
    assert len(python) > 50
    assert len(debian) > 100
    assert (python | debian) - listed == set()


def test_no_key_is_baked_in(pod: Kubectl) -> None:
    find = "find / -xdev \\( -name 'ssh_host_*' -o -name 'id_rsa*' -o -name 'id_ed25519*' \\) 2>/dev/null; true"
    assert _shell(pod, find) == ""


@pytest.mark.core
def test_ssh_accepts_the_jobs_key_and_no_other(pod: Kubectl) -> None:
    """horovodrun's `StrictHostKeyChecking=no` is on the command line, and does not win."""
    options = "-o PasswordAuthentication=no -o StrictHostKeyChecking=no"
    login = f"ssh {options} 127.0.0.1 'echo in as $(id -u); command -v python'"
    assert _first_login(pod, login) == "in as 1000\n/opt/hvd-elastic/bin/python\n"
    _shell(
        pod, "cd ~/.ssh && cp id_rsa.pub was.pub && ssh-keygen -q -t ecdsa -N '' -f other && cp other.pub id_rsa.pub"
    )
    assert _try(pod, login) is None
    assert "Host key verification failed" in _shell(pod, f"{login} 2>&1 || true")


@pytest.mark.core
def test_ssh_lets_in_whose_connections_broke_off(pod: Kubectl) -> None:
    """A launcher's do when it is killed, and its next container has the same address."""
    assert _first_login(pod, "ssh 127.0.0.1 id -u") == "1000\n"
    program = """import socket
for _ in range(40):
    with socket.create_connection(("127.0.0.1", 2222)) as connection:
        connection.recv(100)"""
    _shell(pod, f"python - <<'EOF'\n{program}\nEOF")
    # sshd has seen the end of each once it has no child left.
    waiting.until(
        "sshd is alone",
        lambda: _shell(pod, "cat /proc/$(cat /tmp/sshd.pid)/task/*/children") == "",
        within_seconds=20,
    )
    assert _shell(pod, "ssh 127.0.0.1 id -u") == "1000\n"


def test_a_users_own_image(cluster: Site, namespace: Kubectl) -> None:
    """`FROM` ours, a script and a package of their own, as docs/image.md shows it."""
    machine = cluster.local()
    lines = [f"FROM {cluster.image}", "USER 0", "RUN uv pip install --no-cache tomli-w==1.2.0"]
    lines += ["RUN echo 'import tomli_w, horovod.torch; print(tomli_w.__name__)' > /workspace/own.py", "USER 1000:1000"]
    tag = images.derive("own", "\n".join(lines))
    name = f"{images.REPOSITORY}-own:{tag}"
    machine.load_image(images.layout(), tag, name)
    _run(namespace, "own", name)
    assert _shell(namespace, "python own.py", pod="own") == "tomli_w\n"


def _first_login(pod: Kubectl, command: str) -> str:
    """Make the job's key, start sshd with it, and return what ssh's command says once it is let in."""
    _shell(pod, "cd ~/.ssh && ssh-keygen -q -t ecdsa -N '' -f id_rsa && cp id_rsa.pub authorized_keys")
    _shell(pod, "/usr/sbin/sshd -E /tmp/sshd.log -o PidFile=/tmp/sshd.pid")
    said = waiting.until("ssh lets us in", lambda: _try(pod, command), within_seconds=20)
    assert said is not None
    return said


def _run(kubectl: Kubectl, name: str, image: str) -> None:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    mounts = [{"name": "keys", "mountPath": "/home/mpiuser/.ssh"}, {"name": "tmp", "mountPath": "/tmp"}]
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "600"],
        "securityContext": {**security, "readOnlyRootFilesystem": True},
        "volumeMounts": mounts,
    }
    pod = {
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": "keys", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
        "containers": [container],
    }
    kubectl.apply([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}])

    def ready() -> bool:
        found = kubectl.find("pod", name)
        return found is not None and condition_of(found, "Ready") == "True"

    waiting.until(
        f"pod {name} runs", ready, within_seconds=_READY_SECONDS, seen=lambda: kubectl("describe", "pod", name)
    )


def _shell(kubectl: Kubectl, script: str, *, pod: str = "probe") -> str:
    return kubectl("exec", pod, "--", "sh", "-c", script, within_seconds=120)


def _try(kubectl: Kubectl, script: str) -> str | None:
    argv = kubectl.argv("exec", "probe", "--", "sh", "-c", script)
    done = subprocess.run(argv, text=True, capture_output=True, check=False, timeout=60)
    return done.stdout if done.returncode == 0 else None
