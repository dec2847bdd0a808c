import multiprocessing
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.collectives.setup import setup_calls
from hvd_elastic.trainer.collectives.setup.setup_calls import SetupCalls
from hvd_elastic.trainer.elastic import horovod_patches, init_patch
from hvd_elastic.trainer.elastic.world import world_membership
from hvd_elastic.trainer.elastic.world.world_membership import WorldMember
from tests.trainer.elastic.fake_launcher import FakeLauncher


@pytest.mark.parametrize("solo", [False, True])
def test_a_standby_waits_once_and_then_enters_the_launchers_world(
    launcher: FakeLauncher, member: WorldMember, monkeypatch: pytest.MonkeyPatch, solo: bool
) -> None:
    import horovod.torch as hvd
    import horovod.torch.elastic as stock

    from hvd_elastic.trainer.elastic.run import run

    up: list[bool] = []

    def stock_init(*_: Any) -> None:
        if not up:  # as Horovod: a second call does nothing
            up.append(True)
            launcher.init()

    for module, name, value in ((hvd, "init", stock_init), (stock, "run", stock.run)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(hvd, "shutdown", up.clear)
    monkeypatch.setattr(hvd, "is_initialized", lambda: bool(up))
    monkeypatch.setattr(world_membership, "THIS_PROCESS", member)
    setup, met = SetupCalls(), list[str]()
    monkeypatch.setattr(setup_calls, "THIS_PROCESS", setup)
    monkeypatch.setattr(setup, "meet", lambda _: met.append("meets"))
    monkeypatch.setattr(setup, "begin", lambda *_: met.append("begins"))
    waited: list[int] = []
    monkeypatch.setattr(hvd, "local_rank", lambda: 0)
    monkeypatch.setattr(hvd, "rank", lambda: 0)
    horovod_patches.install(lambda: waited.append(len(launcher.inits)), solo=(3, 4) if solo else None)
    horovod_patches.install()
    assert stock.run is run

    hvd.init()
    hvd.init()
    assert waited == ([] if solo else [0])
    assert hvd.local_rank() == (3 if solo else 0)
    assert member.pass_gate(init_patch.enter_world) is solo
    assert hvd.local_rank() == 0
    assert not member.pass_gate()
    assert waited == ([1] if solo else [0])
    assert [init["ELASTIC"] for init in launcher.inits if init["SIZE"] == "2"] == (["1", "0"] if solo else ["1"])
    assert launcher.asked == ["join/uid-1:0"]
    assert met == (["begins", "meets"] if solo else ["meets", "begins"])


def test_a_process_that_imports_the_script_forms_no_world(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """multiprocessing does so with the start methods spawn and forkserver, and it has its parent's environment."""
    import horovod.torch as hvd

    def stock_init(*_: Any) -> None:
        raise AssertionError("it would take its parent's place")

    monkeypatch.setattr(hvd, "init", stock_init)
    monkeypatch.setattr(hvd, "is_initialized", lambda: False)
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    horovod_patches.install()
    with pytest.raises(SystemExit) as ended:
        hvd.init()
    assert ended.value.code == Exit.SCRIPT_MISTAKE
    assert "__main__" in capsys.readouterr().err
