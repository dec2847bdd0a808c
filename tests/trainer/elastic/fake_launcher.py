"""Horovod's own rendezvous server, with a handler that answers as a launcher would."""

import os
import threading
from dataclasses import dataclass, field

from horovod.runner.http.http_server import RendezvousHandler

ASSIGNED = "1,3,0,1,1,3"
HELD = "no answer yet"


@dataclass
class FakeLauncher:
    """Answers in turn; what is asked beyond them is not found."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    shown: list[tuple[str | None, str | None]] = field(default_factory=list)
    """The token of each request, and what it says of the worker's Horovod."""
    put: list[tuple[str, bytes]] = field(default_factory=list)
    inits: list[dict[str, str]] = field(default_factory=list)
    fails: list[str] = field(default_factory=list)
    """With which messages the next inits fail."""
    over: threading.Event = field(default_factory=threading.Event)
    """Ends what is held."""

    def init(self) -> None:
        """In place of `hvd.init()`: note what it would have read."""
        self.inits.append({name: os.environ.get(f"HOROVOD_{name}", "") for name in ("ELASTIC", "RANK", "SIZE")})
        if self.fails:
            raise ValueError(self.fails.pop(0))

    def handler(self) -> type[RendezvousHandler]:
        """The server's request handler."""
        launcher = self

        class Handler(RendezvousHandler):  # type: ignore[misc]
            def parse_request(self) -> bool:
                parsed: bool = super().parse_request()
                launcher.shown.append((self.headers["X-Horovod-Token"], self.headers["X-Horovod-Shows-Token"]))
                return parsed

            def _put_value(self, scope: str, key: str, value: bytes) -> None:
                launcher.put.append((f"{scope}/{key}", value))

            def _get_value(self, scope: str, key: str) -> bytes | None:
                launcher.asked.append(f"{scope}/{key}")
                queue = launcher.answers.get(scope, [])
                if queue and queue[0] == HELD:
                    launcher.over.wait(60)
                return queue.pop(0).encode() if queue else None

        return Handler


class LauncherStore:
    """What processes leave for each other at a launcher, by key."""

    def __init__(self) -> None:
        self.said: dict[str, str | None] = {}

    def publish(self, _scope: str, key: str, text: str) -> None:
        self.said[key] = text

    def published(self, _scope: str, key: str) -> str | None:
        return self.said.get(key)
