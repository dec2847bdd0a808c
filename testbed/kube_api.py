"""A small API server over real HTTP: lists in pages, watches, bookmarks, the other verbs, and faults on request."""

import contextlib
import copy
import itertools
import json
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hvd_elastic.discovery.kube.api_server import Access
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE

Json = dict[str, Any]

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

OWNER = "0f0f0f0f-0000-4000-8000-000000000001"


def mpijob(name: str = "job", uid: str = OWNER, replicas: int = 3, annotations: dict[str, str] | None = None) -> Json:
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "uid": uid, "annotations": annotations or {}},
        "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": replicas}}},
    }


def pod(
    index: int,
    *,
    job: str = "job",
    uid: str = "",
    ip: str | None = None,
    phase: str = "Running",
    ready: bool = True,
    withdrawn: bool = False,
    started: str = "",
    since: str = "2026-01-01T00:00:00Z",
    owner: str = OWNER,
    node: str = "node-a",
    scheduled: str = "True",
    nominated: str = "",
    disrupted: str = "",
    deleting: str = "",
    reason: str = "",
    annotations: dict[str, str] | None = None,
) -> Json:
    conditions = [
        {"type": "PodScheduled", "status": scheduled, "lastTransitionTime": since},
        {"type": "Ready", "status": str(ready and not withdrawn), "lastTransitionTime": since},
        {"type": "ContainersReady", "status": str(ready), "lastTransitionTime": since},
    ]
    if not ready:
        for condition in conditions[1:]:
            condition["reason"] = "ContainersNotReady"
    if disrupted:
        conditions.append({"type": "DisruptionTarget", "status": "True", "reason": disrupted})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job}-worker-{index}",
            "namespace": "default",
            "uid": uid or f"uid-{job}-{index}",
            "resourceVersion": "",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {LABEL_JOB_NAME: job, LABEL_JOB_ROLE: "worker"},
            "annotations": annotations or {},
            "ownerReferences": [{"controller": True, "uid": owner, "kind": "MPIJob", "name": job}],
            **({"deletionTimestamp": deleting} if deleting else {}),
        },
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": conditions,
            **({"reason": reason} if reason else {}),
            **({"nominatedNodeName": nominated} if nominated else {}),
            **({"containerStatuses": [container("worker", started)]} if started else {}),
            **({"podIP": f"127.0.1.{index + 1}" if ip is None else ip} if ip != "" else {}),
        },
    }


def container(name: str, started: str, restarts: int = 0) -> Json:
    """The status of a container that runs. `started`: its start, in RFC 3339."""
    return {"name": name, "restartCount": restarts, "state": {"running": {"startedAt": started}}}


def node(
    name: str,
    *,
    ready: bool = True,
    taints: tuple[str, ...] = (),
    cordoned: bool = False,
    labels: dict[str, str] | None = None,
) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints], "unschedulable": cordoned},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Json | None
    headers: dict[str, str]
    certified: str = ""
    """The common name in the client's certificate."""

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query


@dataclass
class Status(Exception):
    """Answer with this HTTP status."""

    code: int
    headers: dict[str, str] = field(default_factory=dict)
    details: Json = field(default_factory=dict)
    message: str = "injected"


class Cut(Exception):
    """Close the connection without another byte."""


Fault = Callable[[Request], None]
"""Looks at a request; may raise Status or Cut, or wait."""


class KubeApi:
    """Serves until `stop`; `start` again takes the same port. `fault` is asked about every request."""

    def __init__(
        self, *, chop: Callable[[bytes], Iterable[bytes]] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.changed = threading.Condition()
        self.objects: dict[str, dict[str, Json]] = {
            PODS: {},
            JOBS: {},
            NODES: {},
            EVENTS: {},
            CONFIG_MAPS: {},
            LEASES: {},
        }
        self.history: list[tuple[int, str, str, Json]] = []
        """Version, collection, type, object."""
        self.replays: set[int] = set()
        """Places in the history that are sent although the client is past their version."""
        self.version = 1000
        self.compacted = 0
        self.answers: dict[str, Callable[[Request], Json]] = {}
        """Paths that are no collections, and what is answered there, such as a review of rights."""
        self.streams: dict[str, Callable[[Request], Iterable[bytes]]] = {}
        """Paths that are answered with pieces of any text, such as a container's log; may raise Status or Cut."""
        self.requests: list[Request] = []
        self.watching: Counter[str] = Counter()
        """Open watches, by path."""
        self.most_watching: Counter[str] = Counter()
        """The most that were open at a time, by path."""
        self.fault: Fault = lambda request: None
        self.chop = chop or (lambda data: [data])
        self.tls = tls
        self.port = 0
        self._epoch = 0
        self._server: ThreadingHTTPServer | None = None
        self._sockets: set[socket.socket] = set()
        self.start()

    # --- what a test does ---

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server(("127.0.0.1", self.port), handler)
        self.port = self._server.server_port
        if self.tls:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """Close every open connection."""
        with self.changed:
            self._epoch += 1
            self.changed.notify_all()
        for open_socket in list(self._sockets):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)

    def access(self) -> Access:
        return Access(host="127.0.0.1", port=self.port)

    def kubeconfig(self, folder: Path) -> Path:
        """Write the file of a person who may do everything here, in the namespace `default`; return its path."""
        path = folder / "kubeconfig"
        config = {
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(json.dumps(config))
        return path

    def put(self, path: str, thing: Json) -> Json:
        with self.changed:
            known = self.objects[path]
            name = thing["metadata"]["name"]
            return self._record(path, "MODIFIED" if name in known else "ADDED", thing)

    def remove(self, path: str, name: str) -> None:
        with self.changed:
            if name in self.objects[path]:
                self._record(path, "DELETED", self.objects[path][name])

    def bookmark(self, path: str = PODS) -> None:
        with self.changed:
            self._record(path, "BOOKMARK", {"kind": "Pod", "metadata": {}})

    def replay(self, place: int) -> None:
        """Send an old event once more, as a server that lags behind would."""
        with self.changed:
            if self.history:
                self.replays.add(len(self.history))
                self.history.append(self.history[place % len(self.history)])
                self.changed.notify_all()

    def compact(self) -> None:
        """Forget the past: a request for it gets 410."""
        with self.changed:
            self.compacted = self.version

    def asked(self, *, watch: bool, path: str = PODS) -> int:
        return sum(request.path == path and request.is_watch is watch for request in self.requests)

    def lists(self, path: str = PODS) -> int:
        """Lists, not pages."""
        return sum(
            request.path == path and not request.is_watch and "continue" not in request.query
            for request in self.requests
        )

    # --- what a request does ---

    def _record(self, path: str, kind: str, thing: Json) -> Json:
        self.version += 1
        thing = copy.deepcopy(thing)
        thing["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            del self.objects[path][thing["metadata"]["name"]]
        elif kind != "BOOKMARK":
            self.objects[path][thing["metadata"]["name"]] = thing
        self.history.append((self.version, path, kind, thing))
        self.changed.notify_all()
        return thing

    def listing(self, path: str, query: dict[str, str]) -> Json:
        with self.changed:
            items = [thing for thing in self.objects[path].values() if _selected(thing, query)]
            first, size = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(items) or 1
            more = {"continue": str(first + size)} if first + size < len(items) else {}
            return {"kind": "List", "metadata": {"resourceVersion": str(self.version), **more},
                    "items": items[first : first + size]}  # fmt: skip

    def group_versions(self, group: str) -> list[Json]:
        """Discovery: the versions of a group of which there is a collection."""
        found = sorted({path.split("/")[3] for path in self.objects if path.startswith(f"/apis/{group}/")})
        return [{"groupVersion": f"{group}/{version}", "version": version} for version in found]

    def collection(self, path: str) -> str | None:
        """The collection at a path; that of all namespaces is that of the only one."""
        everywhere = {"/api/v1/pods": PODS, JOBS.replace("/namespaces/default", ""): JOBS}
        return path if path in self.objects else everywhere.get(path)

    def events(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        since, deadline = int(query["resourceVersion"]), time.monotonic() + float(query.get("timeoutSeconds", 60))
        if since < self.compacted:
            yield _line("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
            return
        epoch, position = self._epoch, 0
        while (left := deadline - time.monotonic()) > 0:
            with self.changed:
                if position == len(self.history):
                    self.changed.wait(left)
                if epoch != self._epoch:
                    raise Cut
                fresh = self.history[position:]
                position = len(self.history)
            for place, (version, where, kind, thing) in enumerate(fresh, position - len(fresh)):
                due = version > since or place in self.replays
                if due and where == self.collection(path) and (kind == "BOOKMARK" or _selected(thing, query)):
                    yield _line(kind, thing)

    @contextlib.contextmanager
    def counted(self, path: str) -> Iterator[None]:
        with self.changed:
            self.watching[path] += 1
            self.most_watching[path] = max(self.most_watching[path], self.watching[path])
        try:
            yield
        finally:
            with self.changed:
                self.watching[path] -= 1

    def patch(self, path: str, name: str, body: Json) -> Json:
        with self.changed:
            if name not in self.objects[path]:
                raise Status(404)
            merged = copy.deepcopy(self.objects[path][name])
            meta = body.get("metadata", {})
            wanted = {key: meta[key] for key in ("uid", "resourceVersion") if meta.get(key) is not None}
            if any(merged["metadata"].get(key) != value for key, value in wanted.items()):
                raise Status(409)
            _merge(merged, body)
            return self._record(path, "MODIFIED", merged)

    def apply(self, path: str, name: str, body: Json, *, dry_run: bool) -> Json:
        """Server-side apply, without the bookkeeping of managers."""
        with self.changed:
            live = self.objects[path].get(name)
            merged = copy.deepcopy(live or {"metadata": {"uid": f"uid-{name}-{self.version}"}})
            _merge(merged, body)
            if dry_run or merged == live:
                return merged
            return self._record(path, "MODIFIED" if live else "ADDED", merged)

    def delete(self, path: str, name: str, body: Json) -> Json:
        with self.changed:
            thing = self.objects[path].get(name)
            if thing is None:
                raise Status(404)
            if body.get("preconditions", {}).get("uid") not in {None, thing["metadata"]["uid"]}:
                raise Status(409)
            if body.get("dryRun"):
                return thing
            if thing["metadata"].get("finalizers"):
                _merge(thing, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
                return self._record(path, "MODIFIED", thing)
            return self._record(path, "DELETED", thing)

    def create(self, path: str, body: Json, number: Iterator[int] = itertools.count()) -> Json:  # noqa: B008
        meta = body["metadata"]
        meta["name"] = meta.get("name") or f"{meta['generateName']}{next(number)}"
        meta.setdefault("uid", f"uid-{meta['name']}")
        with self.changed:
            if meta["name"] in self.objects[path] and path == LEASES:
                raise Status(409)
            return self._record(path, "ADDED", body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    api: KubeApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.api._sockets.add(self.connection)

    def finish(self) -> None:
        self.api._sockets.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_DELETE = do_GET

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        address = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        body = json.loads(self.rfile.read(length)) if length else None
        request = Request(self.command, address.path, query, body, dict(self.headers), self._certified())
        self.api.requests.append(request)
        try:
            self.api.fault(request)
            if request.is_watch:
                self._stream(address.path, query)
            elif address.path in self.api.streams:
                self._send_pieces(self.api.streams[address.path](request))
            else:
                self._answer(200, self._do(request))
        except Status as status:
            body = {"kind": "Status", "code": status.code, "message": status.message, "details": status.details}
            self._answer(status.code, body, status.headers)
        except (Cut, OSError):
            self.close_connection = True

    def _certified(self) -> str:
        shown = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
        subject: Any = (shown or {}).get("subject") or ()
        return next((value for pairs in subject for name, value in pairs if name == "commonName"), "")

    def _do(self, request: Request) -> Json:
        if request.path in self.api.answers:
            return self.api.answers[request.path](request)
        if request.method == "POST":
            return self.api.create(request.path, request.body or {})
        if (listed := self.api.collection(request.path)) is not None:
            return self.api.listing(listed, request.query)
        collection, _, name = request.path.rpartition("/")
        if collection == "/apis" and (served := self.api.group_versions(name)):
            return {"kind": "APIGroup", "name": name, "versions": served}
        if collection not in self.api.objects:
            raise Status(404)
        if request.headers.get("Content-Type") == "application/apply-patch+yaml":
            return self.api.apply(collection, name, request.body or {}, dry_run="dryRun" in request.query)
        if request.method == "PATCH":
            return self.api.patch(collection, name, request.body or {})
        if request.method == "DELETE":
            return self.api.delete(collection, name, request.body or {})
        if name not in self.api.objects[collection]:
            raise Status(404)
        return self.api.objects[collection][name]

    def _answer(self, code: int, body: Json, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        for key, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, path: str, query: dict[str, str]) -> None:
        with self.api.counted(path):
            self._send_pieces(piece for line in self.api.events(path, query) for piece in self.api.chop(line))

    def _send_pieces(self, pieces: Iterable[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in filter(None, pieces):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def _line(kind: str, thing: Json) -> bytes:
    return json.dumps({"type": kind, "object": thing}, separators=(",", ":")).encode() + b"\n"


def _selected(thing: Json, query: dict[str, str]) -> bool:
    labels = thing["metadata"].get("labels", {})
    selectors = [pair for pair in re.split(r",(?![^(]*\))", query.get("labelSelector", "")) if pair]
    wanted = [pair.split("=") for pair in selectors if "=" in pair]
    sets = [pair.removesuffix(")").split(" in (") for pair in selectors if " in (" in pair]
    given = [pair for pair in query.get("fieldSelector", "").split(",") if pair]
    fields = [pair.split("=") for pair in given if "!=" not in pair]
    others = [pair.split("!=") for pair in given if "!=" in pair]
    return (
        all(key in labels for key in selectors if "=" not in key and " in (" not in key)
        and all(labels.get(key) in values.split(",") for key, values in sets)
        and all(labels.get(key) == value for key, value in wanted)
        and all(_field(thing, path) == value for path, value in fields)
        and all(_field(thing, path) != value for path, value in others)
    )


def _field(thing: Any, path: str) -> Any:
    for key in path.split("."):
        thing = thing.get(key, {})
    return thing


def _merge(into: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
