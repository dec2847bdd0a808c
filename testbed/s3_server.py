"""A real S3 server (moto), and fixtures: a bucket of it for each test. A conftest imports those that its tests use."""

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest

Put = Callable[[str, bytes], None]
PutParts = Callable[..., None]

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def s3_server() -> Iterator[tuple[str, int]]:
    """A server on this machine. Yields its address; meanwhile the environment has credentials, of which any will do."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with mock.patch.dict(os.environ, CREDENTIALS):
        server.start()
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        try:
            yield server.get_host_and_port()
        finally:
            server.stop()


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    with s3_server() as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(scope="session")
def client(endpoint: str) -> Any:
    import boto3

    return boto3.client("s3", endpoint_url=endpoint)


@pytest.fixture
def bucket(client: Any) -> str:
    name = f"b{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def put(client: Any, bucket: str) -> Put:
    """Puts an object below the prefix `set/`."""
    return lambda key, data: client.put_object(Bucket=bucket, Key=f"set/{key}", Body=data)


@pytest.fixture
def put_parts(client: Any, bucket: str) -> PutParts:
    """Puts an object below the prefix `set/` by an upload in these parts, with boto3's options."""

    def put(key: str, pieces: Sequence[bytes], **options: str) -> None:
        at = {"Bucket": bucket, "Key": f"set/{key}"}
        upload = client.create_multipart_upload(**at, **options)["UploadId"]
        tags = [
            client.upload_part(**at, UploadId=upload, PartNumber=number, Body=piece)["ETag"]
            for number, piece in enumerate(pieces, 1)
        ]
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload={"Parts": parts})

    return put
