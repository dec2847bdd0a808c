"""`horovod.run(function)`: function and results travel as pickles, in a store that a stranger must not write to."""

import stat
from pathlib import Path
from typing import Any

import horovod
import pytest

pytestmark = pytest.mark.process


@pytest.fixture(params=["static", "elastic"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where one process runs, and by which launcher."""
    if request.param == "static":
        return {"num_proc": 1}
    script = tmp_path / "discover"
    script.write_text("#!/bin/sh\necho localhost:1\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    found = {"host_discovery_script": str(script), "network_interfaces": ["lo"]}
    return {"num_proc": 1, "min_num_proc": 1, "max_num_proc": 1, **found}


def answers_of_the_store(word: str) -> list[int]:
    """In a worker: what the store says to a stranger, who shows no token, and to one who shows another."""
    import http.client
    import sys

    address, port = sys.argv[1:]
    found = []
    for headers in ({}, {"X-Horovod-Token": word}):
        for method, path in (("PUT", "/runfunc_result/0"), ("GET", "/runfunc/func")):
            connection = http.client.HTTPConnection(address, int(port), timeout=30)
            connection.request(method, path, b"gASVBA==" if method == "PUT" else None, headers)
            found.append(connection.getresponse().status)
            connection.close()
    return found


def run(kind: dict[str, Any]) -> list[list[int]]:
    found: list[list[int]] = horovod.run(answers_of_the_store, args=("another",), use_gloo=True, **kind)
    return found


@pytest.mark.core
@pytest.mark.needs_patch("run-function-token")
def test_a_stranger_cannot_write_to_the_store(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_RENDEZVOUS_TOKEN", "")
    assert run(kind) == [[403] * 4], "and the worker's own result has arrived"
