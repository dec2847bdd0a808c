"""The launcher uses private members of Horovod, which may change without notice. These tests name what has changed.

If one fails after an update of Horovod: read the named module's diff, fix the code that uses it, then this test.
"""

import inspect
import pickle
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

horovod = pytest.importorskip("horovod")

from horovod.runner import gloo_run, launch  # noqa: E402
from horovod.runner.common.util import hosts, network, secret, timeout  # noqa: E402
from horovod.runner.elastic import constants, discovery, rendezvous, worker  # noqa: E402
from horovod.runner.elastic.driver import ElasticDriver  # noqa: E402
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars  # noqa: E402
from horovod.runner.http import http_client  # noqa: E402

from hvd_elastic.discovery.snapshot import Host  # noqa: E402
from hvd_elastic.horovod.patch_set import installed_patches  # noqa: E402
from hvd_elastic.launcher.core.slot_placement import REMOVED_RESPONSE, place  # noqa: E402
from hvd_elastic.launcher.horovodrun import stock_horovodrun  # noqa: E402
from hvd_elastic.launcher.horovodrun.horovodrun_rendezvous import HorovodrunRendezvous  # noqa: E402
from hvd_elastic.launcher.horovodrun.stock_output import _RESET_LIMIT  # noqa: E402
from hvd_elastic.trainer.collectives import notifications  # noqa: E402

WHAT_TO_DO = "Horovod is not what hvd_elastic.launcher was written against (0.28.1): read the diff of"


def is_patched() -> bool:
    """Whether workers register and are notified in JSON."""
    return "worker-addresses" in installed_patches()


def test_the_version_is_the_one_that_was_read() -> None:
    assert version("horovod").partition("+")[0] == "0.28.1", f"{WHAT_TO_DO} horovod/runner"


@pytest.mark.parametrize(
    ("function", "parameters", "used_by"),
    [
        (http_client.put_data_into_kvstore, ["addr", "port", "scope", "key", "value"], notifications.in_stock_form),
        (hosts.get_host_assignments, ["hosts", "min_num_proc", "max_num_proc"], place),
        (network.Wire.write, ["self", "obj", "wfile"], "horovod_messages.Registration"),
        (
            gloo_run.launch_gloo_elastic,
            ["command_or_func", "exec_command", "settings", "env", "get_common_interfaces", "rendezvous", "executable"],
            stock_horovodrun._launch_elastic,
        ),
        (ElasticDriver.record_ready, ["self", "host", "slot"], HorovodrunRendezvous),
        (ElasticDriver.get_slot_info, ["self", "host", "slot"], HorovodrunRendezvous),
        (ElasticDriver._handle_worker_exit, ["self", "slot_info", "exit_code", "timestamp"], HorovodrunRendezvous),
        (secret.check_digest, ["key", "message", "digest"], "horovod_messages.Registration"),
        (worker.HostsUpdatedRequest.__init__, ["self", "timestamp", "res"], "horovod_messages.Registration.notify"),
    ],
)
def test_signatures(function: Callable[..., Any], parameters: list[str], used_by: object) -> None:
    where = f"{function.__module__}.{function.__qualname__}"
    assert list(inspect.signature(function).parameters) == parameters, f"{WHAT_TO_DO} {where}, used by {used_by}"


def test_names_and_numbers() -> None:
    assert rendezvous.GET_RANK_AND_SIZE == "rank_and_size", WHAT_TO_DO
    assert rendezvous.PUT_WORKER_ADDRESSES == "worker_addresses", WHAT_TO_DO
    assert secret.DIGEST_LENGTH == 32, WHAT_TO_DO
    assert worker.HostUpdateResult.mixed == 3, WHAT_TO_DO
    assert hosts.INVALID_SLOT_INFO.to_response_string() == REMOVED_RESPONSE, WHAT_TO_DO
    put = "put_bytes_into_kvstore" if is_patched() else "put_data_into_kvstore"
    assert hasattr(worker, put), f"{WHAT_TO_DO} elastic/worker: notifications replaces it"
    assert hasattr(worker, "put_bytes_into_kvstore") is is_patched(), f"{WHAT_TO_DO} elastic/worker"
    assert set(vars(network.AckResponse())) == set(), f"{WHAT_TO_DO} network.AckResponse: wire lets it be built"
    assert pickle.dumps(network.AckResponse()), WHAT_TO_DO


def test_the_look_for_gloo_that_a_start_does_without() -> None:
    assert [*inspect.signature(stock_horovodrun._has_gloo).parameters] == ["verbose"]
    assert inspect.getsource(launch._run_elastic).count("gloo_built(verbose=") == 1, f"{WHAT_TO_DO} runner/launch"
    if is_patched():
        assert launch.gloo_built(verbose=False), "a build with our patches lacks Gloo"


def test_the_message_of_the_reset_limit() -> None:
    said = constants.RESET_LIMIT_EXCEEDED_MESSAGE.format(7)
    assert _RESET_LIMIT.decode() in said, f"{WHAT_TO_DO} elastic/constants, used by stock_output"


def test_the_environment_of_a_worker_is_horovods() -> None:
    host = Host(alias="uid-1", address="10.0.0.1", slots=2)
    for slot in place([host, Host(alias="uid-2", address="10.0.0.2", slots=1)], None):
        info = hosts.SlotInfo(
            slot.host.alias, slot.rank, slot.local_rank, slot.cross_rank, slot.size, slot.local_size, slot.cross_size
        )
        assert slot.environment() == create_slot_env_vars(info), f"{WHAT_TO_DO} gloo_run.create_slot_env_vars"
        assert slot.response() == info.to_response_string(), f"{WHAT_TO_DO} hosts.SlotInfo"


def test_the_run_environment_has_no_other_names() -> None:
    names = set(create_run_env_vars("127.0.0.1", ["lo"], 1, elastic=True))
    ours = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR",
        "HOROVOD_GLOO_RENDEZVOUS_PORT",
        "HOROVOD_CONTROLLER",
        "HOROVOD_CPU_OPERATIONS",
        "HOROVOD_GLOO_IFACE",
        "NCCL_SOCKET_IFNAME",
        "HOROVOD_ELASTIC",
    }
    assert names == ours, f"{WHAT_TO_DO} gloo_run.create_run_env_vars, used by worker_environment"


def test_a_step_of_the_wall_clock_ends_no_wait_of_horovodrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (timeout, discovery):
        used = re.findall(r"\btime\.(\w+)", inspect.getsource(module))
        assert set(used) == {"time"}, f"{WHAT_TO_DO} {module.__name__}"
        monkeypatch.setattr(module, "time", module.time)  # put back afterwards
    stock_horovodrun.wait_by_a_steady_clock()
    waiting, host = timeout.Timeout(600, "{activity}"), discovery.HostState(cooldown_range=(60, 120))
    host.blacklist()
    wall = time.time
    for step in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda step=step: wall() + step)
        assert not waiting.timed_out()
        assert 0 < waiting.remaining() <= 600
        assert not host.is_resurrected()
    steady = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: steady() + 601)
    stock_horovodrun.wait_by_a_steady_clock()
    assert waiting.timed_out()
    assert host.is_resurrected()
