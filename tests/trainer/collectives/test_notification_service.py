"""The notification service of a process over torch.distributed, as the launcher reaches it."""

from collections.abc import Iterator

import pytest

from hvd_elastic.launcher.protocol.horovod_messages import Form, HorovodMessageError, Registration
from hvd_elastic.mpijob.contract import HOSTS_MIXED
from hvd_elastic.trainer.collectives.torch_engine.notification_service import NotificationService


class Listener:
    def __init__(self) -> None:
        self.told: list[tuple[int, object]] = []

    def on_hosts_updated(self, timestamp: int, update_res: object) -> None:
        self.told.append((timestamp, update_res))


@pytest.fixture
def registration(service: NotificationService, monkeypatch: pytest.MonkeyPatch) -> Registration:
    """What the launcher knows of the service."""
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "80")
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "lo")
    monkeypatch.setenv("HOROVOD_HOSTNAME", "a")
    monkeypatch.setenv("HOROVOD_LOCAL_RANK", "1")
    put: list[tuple[str, int, str, str, bytes]] = []
    service.start(lambda *given: put.append(given))
    service.start(lambda *given: put.append(given))
    ((*where, body),) = put
    assert where == ["127.0.0.1", 80, "worker_addresses", "a:1"]
    return Registration.parse(body)


@pytest.fixture
def service() -> Iterator[NotificationService]:
    made = NotificationService()
    yield made
    made.stop()


def test_the_launcher_reaches_it(service: NotificationService, registration: Registration) -> None:
    registration.ping()
    registration.notify(4)  # nobody listens yet
    listener = Listener()
    with service.listening(listener):
        registration.notify(5)
    assert listener.told == [(5, HOSTS_MIXED)]


def test_who_does_not_know_its_key_tells_it_nothing(service: NotificationService, registration: Registration) -> None:
    stranger = Registration(registration.addresses, bytes(32), Form.JSON)
    listener = Listener()
    with service.listening(listener), pytest.raises(HorovodMessageError):
        stranger.notify(5)
    assert listener.told == []


@pytest.mark.parametrize("message", [b"[]", b"1", b'{"type": "Other", "arguments": {}}'])
def test_another_message_is_refused(service: NotificationService, message: bytes) -> None:
    with pytest.raises(ValueError, match="not a message of the launcher's"):
        service.answer(message)


def test_without_a_launcher_nothing_listens(service: NotificationService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", raising=False)
    service.start(lambda *_: pytest.fail("there is no launcher"))
