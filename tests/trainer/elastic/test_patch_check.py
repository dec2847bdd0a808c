import logging
from collections.abc import Iterator

import horovod.torch as hvd
import pytest

from hvd_elastic.horovod.patch_set import Patch, read_patches
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.elastic import patch_check
from hvd_elastic.trainer.elastic.world.world_membership import WorldMember

MISSING = tuple(patch for patch in read_patches() if patch.name in ("init-error", "gloo-message"))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    patch_check.warn_of_missing_patches.cache_clear()
    yield
    patch_check.warn_of_missing_patches.cache_clear()


def warnings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, rank: int, missing: tuple[Patch, ...]
) -> list[str]:
    """What two inits of one process say."""
    from hvd_elastic.trainer.elastic.init_patch import patch_init

    monkeypatch.setattr(patch_check, "missing_patches", lambda: missing)
    monkeypatch.setattr(hvd, "init", lambda: None)
    monkeypatch.setattr(hvd, "is_initialized", lambda: False)
    monkeypatch.setattr(hvd, "rank", lambda: rank)
    monkeypatch.setattr(WorldMember, "enter", lambda *_: monkeypatch.setattr(hvd, "is_initialized", lambda: True))
    with caplog.at_level(logging.WARNING):
        patch_init()
        hvd.init()
        hvd.init()
    return [record.getMessage() for record in caplog.records]


def test_rank_0_says_once_what_is_different(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    (message,) = warnings(monkeypatch, caplog, rank=0, missing=MISSING)

    for patch in MISSING:
        assert f"{patch.without} ({patch.name})" in message
    assert "hvd-elastic install-horovod" in message


@pytest.mark.parametrize(("rank", "missing"), [(1, MISSING), (0, ())])
def test_no_other_rank_does_and_none_where_all_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rank: int, missing: tuple[Patch, ...]
) -> None:
    assert warnings(monkeypatch, caplog, rank=rank, missing=missing) == []


@pytest.mark.parametrize(
    ("address", "patches", "ends"),
    [("[fd00::1]", ("init-error",), True), ("[fd00::1]", ("ipv6",), False), ("10.0.0.1", (), False), (None, (), False)],
)
def test_a_horovod_that_knows_ipv4_alone_ends_where_the_launcher_has_ipv6(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    address: str | None,
    patches: tuple[str, ...],
    ends: bool,
) -> None:
    monkeypatch.setattr(patch_check, "installed_patches", lambda: patches)
    monkeypatch.delenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", raising=False)
    if address is not None:
        monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", address)
    if not ends:
        patch_check.check_address()
        return
    with pytest.raises(SystemExit) as ended:
        patch_check.check_address()
    assert ended.value.code == Exit.SCRIPT_MISTAKE
    assert (
        "[fd00::1], and this Horovod knows IPv4 alone: build it by `hvd-elastic install-horovod`"
        in capsys.readouterr().err
    )
