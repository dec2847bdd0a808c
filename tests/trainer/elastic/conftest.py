from collections.abc import Iterator

import pytest
from horovod.runner.http.http_server import RendezvousServer

from hvd_elastic.trainer.elastic.world import rendezvous_client
from hvd_elastic.trainer.elastic.world.place import Place
from hvd_elastic.trainer.elastic.world.world_membership import WorldMember
from tests.trainer.elastic.fake_launcher import ASSIGNED, FakeLauncher, LauncherStore


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLauncher]:
    launcher = FakeLauncher()
    server = RendezvousServer()
    port = server.start(launcher.handler())
    environ = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_HOSTNAME": "uid-1",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_RANK": "0",
        "HOROVOD_SIZE": "2",
        "HOROVOD_ELASTIC": "1",
    }
    for name in Place.parse(ASSIGNED).environment():
        monkeypatch.setenv(name, "0")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    yield launcher
    launcher.over.set()
    server.stop()
    server._httpd.server_close()


@pytest.fixture
def horovod(launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch) -> FakeLauncher:
    import horovod.torch as hvd

    monkeypatch.setattr(hvd, "shutdown", lambda: None)
    monkeypatch.setattr(hvd, "init", launcher.init)
    return launcher


@pytest.fixture
def member() -> WorldMember:
    return WorldMember()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> LauncherStore:
    store = LauncherStore()
    monkeypatch.setattr(rendezvous_client, "launched", lambda: True)
    monkeypatch.setattr(rendezvous_client, "publish", store.publish)
    monkeypatch.setattr(rendezvous_client, "published", store.published)
    return store
