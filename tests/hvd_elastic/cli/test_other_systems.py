"""The command line on a machine that is not Linux: what macOS lacks is taken away in a child interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.cli import LINUX_ONLY, OF_PODS, VERBS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
JOB = str(ROOT / "examples" / "jobs" / "first.yaml")

LACKING = """
import ctypes, json, os, select, signal, socket, sys, sysconfig, types, urllib.request

# Python's documentation says "Availability: Linux" (or leaves macOS out) of each.
for module, names in {
    os: "eventfd eventfd_read eventfd_write EFD_CLOEXEC EFD_NONBLOCK memfd_create pidfd_open pipe2 posix_fadvise"
    " POSIX_FADV_DONTNEED sched_getaffinity sched_setaffinity setns unshare P_PIDFD",
    select: "epoll EPOLLIN EPOLLOUT EPOLLHUP EPOLLERR EPOLLRDHUP",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "AF_NETLINK AF_PACKET AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED TCP_KEEPIDLE TCP_USER_TIMEOUT",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
socket.TCP_KEEPALIVE = 0x10


class CDLL(ctypes.CDLL):
    def __init__(self, name, *arguments, **options):
        if name is not None and str(name).startswith("libc.so"):
            raise OSError(f"{name}: image not found")
        super().__init__(name, *arguments, **options)


def without_proc(call):
    def checked(path, *arguments, **options):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return call(path, *arguments, **options)

    return checked


import builtins, io

ctypes.CDLL = CDLL
builtins.open = io.open = without_proc(open)
os.open = without_proc(os.open)
sysconfig.get_config_vars()  # the interpreter's own, which are kept
sys.modules["_scproxy"] = types.SimpleNamespace(_get_proxy_settings=dict, _get_proxies=dict)
sys.platform = "darwin"

from hvd_elastic.cli import main

outcomes = {}
for call in json.loads(sys.stdin.read()):
    sys.argv = ["hvd-elastic", *call]
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        code = f"{type(error).__name__}: {error}"
    outcomes[" ".join(call)] = [code, sys.stdout.getvalue(), sys.stderr.getvalue()]
sys.stdout = sys.__stdout__
print(json.dumps(outcomes))
"""


def calls(folder: Path, *arguments: list[str]) -> dict[str, Any]:
    """Exit code, stdout and stderr of each call, in one interpreter without what is Linux's."""
    kubeconfig = folder / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}
    user: dict[str, Any] = {"name": "u", "user": {}}
    config = {"current-context": "c", "clusters": [cluster], "contexts": [context], "users": [user]}
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    done = subprocess.run(
        [sys.executable, "-c", LACKING],
        input=json.dumps(arguments),
        cwd=folder,
        env=os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, Any] = json.loads(done.stdout)
    return outcomes


@pytest.mark.core
def test_what_needs_no_cluster_works(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests.yaml"
    made = calls(tmp_path, ["generate", JOB], ["simulate", JOB, "--nodes", "2", "--seed", "1"], ["schema"])
    assert [code for code, _, _ in made.values()] == [0, 0, 0], made
    manifests.write_text(made[f"generate {JOB}"][1])
    kit = ["platform-kit", str(tmp_path / "kit")]
    rest = calls(tmp_path, ["lint", str(manifests)], kit, ["priorityclasses"], ["alerts"], ["operator-role"])
    assert [code for code, _, _ in rest.values()] == [0, 0, 0, 0, 0], rest
    assert (tmp_path / "kit" / "kustomization.yaml").exists()


@pytest.mark.parametrize(
    "call",
    [
        ["submit", JOB],
        ["list"],
        ["status", "first"],
        ["watch", "first"],
        ["logs", "first"],
        ["events", "first"],
        ["discover", "--job", "first"],
        ["cost", "first"],
        ["scale", "first", "2"],
        ["suspend", "first"],
        ["resume", "first"],
        ["restart", "first"],
        ["delete", "first", "--yes"],
        ["doctor"],
        ["profile", "first"],
        ["autoscale", "--once"],
    ],
    ids=lambda call: call[0],
)
def test_what_asks_a_cluster_comes_to_ask_it(tmp_path: Path, call: list[str]) -> None:
    ((code, _, said),) = calls(tmp_path, call).values()
    assert code not in {0, 2}
    assert "127.0.0.1:1" in said or "Connection refused" in said, (code, said)


def test_what_needs_linux_says_so(tmp_path: Path) -> None:
    arguments = {"run": ["--", "python", "x.py"], "launch": ["-np", "1", "--", "x"], "horovodrun": ["x"]}
    told = calls(tmp_path, *([verb, *arguments.get(verb, [])] for verb in sorted(LINUX_ONLY - OF_PODS.keys())))
    for call, (code, _, said) in told.items():
        verb = call.split()[0]
        assert code == 2, (call, said)
        assert said.startswith(f"error: {verb} needs Linux, and this is darwin: "), said
        assert said.count("\n") == 1


def test_each_of_them_is_a_verb_and_answers_its_help(tmp_path: Path) -> None:
    assert VERBS.keys() >= LINUX_ONLY
    helped = calls(tmp_path, *([verb, "--help"] for verb in VERBS))
    assert {call: code for call, (code, _, _) in helped.items() if code} == {}
