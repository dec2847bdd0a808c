"""A worker without torch: a plain Python process that speaks the launcher's protocol, so that hundreds can run.

It does what a worker of the product does, in the same order: join barrier (unless `--stock`), a world formed over the
rendezvous server's key-value store, registration of the notification service, steps that every member takes together,
a commit each step, a reset on a notification or on a lost peer. Its collectives go through rank 0 (a star of TCP
connections). Its state is the number of steps, which rank 0 hands to newcomers, so that a lost or repeated step shows.

Environment: WORKER_LOG (a file; one JSON object per line), WORKER_STEPS, WORKER_STEP_SECONDS, WORKER_TROUBLE (a folder:
a file `HOST:LOCAL_RANK@POINT` in it says what to do at that point: `kill`, `hang`, `sleep N`, `exit N`),
WORKER_REMOVED_CODE (the exit code of a removed worker).
"""

import base64
import hmac
import http.client
import io
import json
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import types

STOCK = "--stock" in sys.argv
ENV = os.environ
NAME = f"{ENV['HOROVOD_HOSTNAME']}:{ENV['HOROVOD_LOCAL_RANK']}"
PROOF = {} if STOCK else {"X-Horovod-Token": ENV.get("HOROVOD_RENDEZVOUS_TOKEN", "")}
PEER_SECONDS = float(ENV.get("HOROVOD_GLOO_TIMEOUT_SECONDS", "30"))


class PeerLost(Exception):
    pass


class HostsUpdated(Exception):
    pass


def log(event: str, **fields: object) -> None:
    line = json.dumps({"time": time.time(), "event": event, "name": NAME, "pid": os.getpid(), **fields}) + "\n"
    fd = os.open(ENV["WORKER_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)


def point(where: str) -> None:
    """A point at which a test may have ordered trouble."""
    path = f"{ENV.get('WORKER_TROUBLE', '')}/{NAME}@{where}"
    try:
        fd = os.open(path, os.O_RDONLY)
        what = os.read(fd, 100).decode().split()
        os.close(fd)
        os.unlink(path)  # noqa: PTH108 - pathlib would double this program's start
    except OSError:
        return
    log("trouble", where=where, what=what)
    if what[0] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what[0] == "hang":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what[0] == "sleep":
        time.sleep(float(what[1]))
    else:
        print(f"ValueError: trouble at {where}", file=sys.stderr, flush=True)
        os._exit(int(what[1]))


ATTEMPTS, PAUSE_SECONDS = 3, 0.5
"""As in Horovod's http_store.cc: stock's server resets connections when many processes come at once."""


def request(method: str, path: str, body: bytes | None = None) -> bytes | None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            status, data = request_once(method, path, body)
            break
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS:
                log("launcher lost", error=repr(error))
                os._exit(78)
            time.sleep(PAUSE_SECONDS)
    if status == 404:
        return None
    if status != 200:
        raise PeerLost(f"status {status}")
    return data


def request_once(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(
        ENV["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(ENV["HOROVOD_GLOO_RENDEZVOUS_PORT"]), timeout=3600
    )
    connection.request(method, path, body, PROOF)
    response = connection.getresponse()
    return response.status, response.read()


# --- The rendezvous --------------------------------------------------------------------------------------------------


def join() -> bool:
    if STOCK:
        return True
    while True:
        point("barrier")
        log("joins")
        answer = request("GET", f"/join/{NAME}")
        log("answered", answer=str(answer))
        if answer is None:
            return True
        if answer != b"wait":
            return answer == b"go"


def ask_place() -> None:
    while True:
        point("ask")
        log("asks")
        answer = request("GET", f"/rank_and_size/{NAME}")
        log("told")
        assert answer is not None, "no place was answered"
        numbers = answer.decode().split(",")
        if numbers[0] == "-1":
            log("removed")
            point("removed")
            sys.exit(int(ENV.get("WORKER_REMOVED_CODE", "77")))
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        ENV.update({f"HOROVOD_{name}": number for name, number in zip(names, numbers, strict=True)})
        if join():
            return


def local_place() -> dict[str, int]:
    """Where it is on its host, and where its host is among those that have its slot."""
    return {
        name: int(ENV[f"HOROVOD_{name.upper()}"]) for name in ("local_rank", "local_size", "cross_rank", "cross_size")
    }


def tell_synced() -> None:
    if not STOCK and "SYNCED" not in ENV:
        ENV["SYNCED"] = "1"
        request("GET", f"/synced/{NAME}")


# --- A world: a star of connections around rank 0 --------------------------------------------------------------------


class World:
    def __init__(self) -> None:
        self.rank, self.size = int(ENV["HOROVOD_RANK"]), int(ENV["HOROVOD_SIZE"])
        self.peers: list[socket.socket] = []
        point("init")
        server = socket.create_server(("127.0.0.1", 0), backlog=128)
        request("PUT", f"/global/{self.rank}", str(server.getsockname()[1]).encode())
        try:
            ports = [self._port_of(rank) for rank in range(self.size)]
            if self.rank == 0:
                server.settimeout(PEER_SECONDS)
                while len(self.peers) < self.size - 1:
                    self.peers.append(server.accept()[0])
            else:
                port = int(ports[0])
                self.peers.append(socket.create_connection(("127.0.0.1", port), timeout=PEER_SECONDS))
        except OSError as error:
            self.close()
            raise PeerLost(str(error)) from error
        finally:
            server.close()

    def _port_of(self, rank: int) -> bytes:
        """As in Gloo, every process waits for the key of every other one."""
        deadline = time.monotonic() + PEER_SECONDS
        while (port := request("GET", f"/global/{rank}")) is None:
            if time.monotonic() > deadline:
                raise PeerLost(f"rank {rank} did not come")
            time.sleep(0.01)
        return port

    def close(self) -> None:
        for peer in self.peers:
            peer.close()

    def exchange(self, value: object) -> object:
        """All members wait for each other; all get rank 0's value."""
        try:
            if self.rank == 0:
                waiting = list(self.peers)
                while waiting:
                    ready, _, _ = select.select(waiting, [], [], PEER_SECONDS)
                    if not ready:
                        raise PeerLost("a peer is silent")
                    for peer in ready:
                        self._read(peer)
                        waiting.remove(peer)
                for peer in self.peers:
                    self._write(peer, value)
                return value
            self._write(self.peers[0], None)
            return self._read(self.peers[0])
        except OSError as error:
            raise PeerLost(str(error)) from error

    def _write(self, peer: socket.socket, value: object) -> None:
        data = json.dumps(value).encode()
        peer.sendall(struct.pack("I", len(data)) + data)

    def _read(self, peer: socket.socket) -> object:
        peer.settimeout(PEER_SECONDS)
        (length,) = struct.unpack("I", self._exactly(peer, 4))
        return json.loads(self._exactly(peer, length))

    def _exactly(self, peer: socket.socket, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = peer.recv(length - len(data))
            if not more:
                raise PeerLost("a peer has hung up")
            data += more
        return data


# --- The notification service (horovod.runner.elastic.worker), without importing Horovod: that takes 0.4 s -----------


class _Unpickler(pickle.Unpickler):
    """Builds an empty object with the name of the pickled class."""

    def find_class(self, module: str, name: str) -> type:
        return type(name, (), {"__init__": lambda self, *_: None})


WRITES_JSON = ENV.get("WORKER_MESSAGES") == "json"
"""As Horovod does with the patch `worker-addresses`."""
PONG = {"service_name": "worker notification service", "source_address": "127.0.0.1"}


class Notices:
    def __init__(self) -> None:
        self.count = 0
        self._key = os.urandom(32)
        self._server = socket.create_server(("127.0.0.1", 0), backlog=16)
        threading.Thread(target=self._serve, daemon=True).start()
        table = {"lo": [("127.0.0.1", self._server.getsockname()[1])]}
        if WRITES_JSON:
            body = json.dumps({"addresses": table, "secret_key": self._key.hex()}).encode()
        else:
            body = base64.b64encode(pickle.dumps((table, self._key)))
        request("PUT", f"/worker_addresses/{NAME}", body)

    def _serve(self) -> None:
        replies = self._json_replies() if WRITES_JSON else self._pickled_replies()
        while True:
            connection, _ = self._server.accept()
            with connection, connection.makefile("rb") as reader:
                digest = reader.read(32)
                (length,) = struct.unpack("i", reader.read(4))
                body = reader.read(length)
                if not hmac.compare_digest(digest, hmac.digest(self._key, body, "sha256")):
                    continue
                kind = json.loads(body)["type"] if WRITES_JSON else type(_Unpickler(io.BytesIO(body)).load()).__name__
                message = replies["PingResponse" if kind == "PingRequest" else "AckResponse"]
                if kind != "PingRequest":
                    log("notified")
                    self.count += 1
                connection.sendall(hmac.digest(self._key, message, "sha256") + struct.pack("i", len(message)) + message)

    def _json_replies(self) -> dict[str, bytes]:
        arguments = {"PingResponse": PONG, "AckResponse": {}}
        return {kind: json.dumps({"type": kind, "arguments": given}).encode() for kind, given in arguments.items()}

    def _pickled_replies(self) -> dict[str, bytes]:
        module = types.ModuleType("horovod.runner.common.util.network")
        ping, ack = (type(name, (), {"__module__": module.__name__}) for name in ("PingResponse", "AckResponse"))
        module.PingResponse, module.AckResponse = ping, ack  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        for name in ("horovod", "horovod.runner", "horovod.runner.common", "horovod.runner.common.util"):
            sys.modules.setdefault(name, types.ModuleType(name))
        pong = ping()
        vars(pong).update(PONG)
        return {"PingResponse": pickle.dumps(pong), "AckResponse": pickle.dumps(ack())}


# --- Training --------------------------------------------------------------------------------------------------------


def main() -> None:
    steps, pause = int(ENV.get("WORKER_STEPS", "1000000")), float(ENV.get("WORKER_STEP_SECONDS", "0.01"))
    log("started", rank=int(ENV["HOROVOD_RANK"]), size=int(ENV["HOROVOD_SIZE"]))
    point("start")
    if not join():
        ask_place()
    state, notices, world = {"step": 0}, None, None
    while True:
        try:
            world = World()
            notices = notices or Notices()
            if STOCK:
                # Horovod empties the queue once the new world is formed: notices that came meanwhile are lost.
                notices.count = 0
            point("sync")
            state["step"] = world.exchange(state["step"])  # type: ignore[assignment]
            tell_synced()
            log("joined", rank=world.rank, size=world.size, step=state["step"], **local_place())
            while state["step"] < steps:
                train(world, state, notices, pause)
            point("end")
            log("finished", rank=world.rank, step=state["step"])
            return
        except (PeerLost, HostsUpdated) as reason:
            log("reset", why=type(reason).__name__, step=state["step"])
            if world is not None:
                world.close()
            if notices:
                notices.count = 0
            ask_place()


def train(world: World, state: dict[str, int], notices: Notices, pause: float) -> None:
    time.sleep(pause)
    point("step")
    updated = world.exchange(notices.count > 0)
    state["step"] += 1
    log("step", rank=world.rank, size=world.size, step=state["step"])
    if updated:
        raise HostsUpdated


main()
