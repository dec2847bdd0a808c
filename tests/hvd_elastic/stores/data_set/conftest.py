"""The same data set at each kind of source, behind the fault-injecting proxy."""

import base64
import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

import pytest

from hvd_elastic.stores.data_set.object_source import ObjectSource
from testbed import azure_server
from testbed.gcs_server import create_bucket
from testbed.s3_server import bucket, client, endpoint, put, put_parts
from tests.hvd_elastic.stores.store_servers import (
    OTHER_CLOUDS,
    azure_faults,
    azure_proxy,
    faults,
    gcs_faults,
    gcs_proxy,
    s3_client,
    s3_proxy,
)
from tests.trainer.checkpoint.proxy import Faults, proxy

__all__ = [
    "azure_faults",
    "azure_proxy",
    "bucket",
    "client",
    "endpoint",
    "faults",
    "gcs_faults",
    "gcs_proxy",
    "put",
    "put_parts",
    "s3_client",
    "s3_proxy",
]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a data set is, below the prefix `set/`."""

    url: str
    endpoint: str | None
    faults: Faults
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]

    def source(self, **options: Any) -> ObjectSource:
        options = {"endpoint": self.endpoint, "threads": 2, "sleep": lambda _: None, **options}
        return ObjectSource(self.url, **options)


@pytest.fixture
def s3_place(s3_proxy: tuple[str, Faults], s3_client: Any, faults: Faults) -> Place:
    name = f"b{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=name)
    return Place(
        url=f"s3://{name}/set",
        endpoint=s3_proxy[0],
        faults=faults,
        put=lambda key, data: s3_client.put_object(Bucket=name, Key=f"set/{key}", Body=data),
        delete=lambda key: s3_client.delete_object(Bucket=name, Key=f"set/{key}"),
    )


@pytest.fixture
def gcs_place(gcs_proxy: tuple[str, Faults], gcs_faults: Faults) -> Iterator[Place]:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.storage import Client

    name = f"b{uuid.uuid4().hex}"
    create_bucket(gcs_proxy[0], name)
    options = {"api_endpoint": "http://{}:{}".format(*gcs_proxy[1].upstream)}
    with Client(project="p", credentials=AnonymousCredentials(), client_options=options) as client:
        blob = client.bucket(name).blob
        yield Place(
            url=f"gs://{name}/set",
            endpoint=gcs_proxy[0],
            faults=gcs_faults,
            put=lambda key, data: blob(f"set/{key}").upload_from_string(data),
            delete=lambda key: blob(f"set/{key}").delete(),
        )


@pytest.fixture
def azure_place(
    azure_proxy: tuple[str, Faults], azure_faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    from azure.storage.blob import ContainerClient

    name = f"b{uuid.uuid4().hex}"
    direct = "http://{}:{}/{}".format(*azure_proxy[1].upstream, azure_server.ACCOUNT)
    azure_server.create_container(direct, name)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", azure_server.signature())
    with ContainerClient(direct, name, credential=azure_server.KEY) as client:
        yield Place(
            url=f"az://{name}/set",
            endpoint=f"{azure_proxy[0]}/{azure_server.ACCOUNT}",
            faults=azure_faults,
            # Of what is large it keeps no MD5 unless it is given.
            put=lambda key, data: client.upload_blob(f"set/{key}", data, overwrite=True, content_settings=md5_of(data)),
            delete=lambda key: client.delete_blob(f"set/{key}"),
        )


def md5_of(data: bytes) -> Any:
    from azure.storage.blob import ContentSettings

    return ContentSettings(content_md5=bytearray(hashlib.md5(data, usedforsecurity=False).digest()))


class FileServer(BaseHTTPRequestHandler):
    """Answers requests for ranges."""

    protocol_version = "HTTP/1.1"

    def __init__(self, files: dict[str, bytes], *arguments: Any) -> None:
        self.files = files
        super().__init__(*arguments)

    def do_GET(self) -> None:
        data = self.files.get(unquote(self.path))
        if data is None:
            self.send_error(404)
            return
        asked = self.headers.get("Range", "")
        start, _, last = asked.removeprefix("bytes=").partition("-")
        found = data[int(start) : int(last) + 1] if asked else data
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{int(start) + len(found) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(found)))
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def http_files() -> dict[str, bytes]:
    """What the server has, by path."""
    return {}


@pytest.fixture
def http_place(http_files: dict[str, bytes]) -> Iterator[Place]:
    files = http_files
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(FileServer, files)) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with proxy(("127.0.0.1", server.server_port)) as (url, faults):
            lines = dict[str, str]()

            def publish() -> None:
                files["/set/list.tsv"] = "\n".join(["TsvHttpData-1.0", *lines.values(), ""]).encode()

            def put(key: str, data: bytes) -> None:
                md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
                files[f"/set/{key}"], lines[key] = data, f"{url}/set/{quote(key)}\t{len(data)}\t{md5}"
                publish()

            def delete(key: str) -> None:
                del files[f"/set/{key}"], lines[key]
                publish()

            publish()
            yield Place(url=f"{url}/set/list.tsv", endpoint=None, faults=faults, put=put, delete=delete)
        server.shutdown()


@pytest.fixture(params=["s3", *OTHER_CLOUDS, "http"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture
def data() -> bytes:
    return os.urandom((1 << 20) + 17)
