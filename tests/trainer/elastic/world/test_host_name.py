"""A host whose own name does not resolve: said before `hvd.init()`, which would crash."""

import os
import socket
import subprocess
import sys

import pytest

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.elastic.world.host_name import check_host_name

NAME = "no-such-host.invalid"
CHECK = "from hvd_elastic.trainer.elastic.world.host_name import check_host_name; check_host_name()"
WORLD = "import horovod.torch as hvd; hvd.init(); print(hvd.size())"


def test_a_name_that_resolves_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    check_host_name()
    assert capsys.readouterr().err == ""


def on_a_host_of_that_name(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    in_its_own_space = ["unshare", "--uts", "sh", "-c", f'hostname {NAME} && exec "$@"', "sh"]
    if subprocess.run([*in_its_own_space, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not give itself a host name of its own (unshare --uts)")
    command = [*in_its_own_space, sys.executable, "-c", code]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **environment})


@pytest.mark.core
@pytest.mark.process
def test_a_name_that_nobody_knows_ends_the_process_with_the_way_out() -> None:
    ended = on_a_host_of_that_name(CHECK)
    # Without a DNS server that answers, it is not known that nobody knows the name.
    assert ended.returncode in {Exit.SCRIPT_MISTAKE, Exit.HOST_CHANGE}
    (sentence,) = ended.stderr.splitlines()
    assert f"the name of this host, {NAME}, does not resolve" in sentence
    assert f"127.0.1.1 {NAME}" in sentence


@pytest.mark.process
@pytest.mark.needs_patch("process-set-interface")
def test_horovod_forms_a_world_without_the_hosts_name() -> None:
    ended = on_a_host_of_that_name(f"{CHECK}; {WORLD}", HOROVOD_GLOO_IFACE="lo")
    assert (ended.returncode, ended.stdout.split()) == (0, ["1"]), ended.stderr


@pytest.mark.parametrize(
    ("number", "code"),
    [(socket.EAI_NONAME, Exit.SCRIPT_MISTAKE), (socket.EAI_AGAIN, Exit.HOST_CHANGE)],
)
def test_dns_that_is_away_is_no_mistake(monkeypatch: pytest.MonkeyPatch, number: int, code: Exit) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "made up")

    monkeypatch.delenv("HOROVOD_GLOO_IFACE", raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", fails)
    with pytest.raises(SystemExit) as ended:
        check_host_name()
    assert ended.value.code == code
