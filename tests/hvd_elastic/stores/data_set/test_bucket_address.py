"""obstore reads where boto3 lists, for the same region, by the same credentials and with the same trust."""

import os
from pathlib import Path
from typing import Any

import pytest
from botocore.httpsession import get_cert_path

from hvd_elastic.stores.s3_requests import S3Requests, make_client

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
HERE = {**KEYS, "AWS_DEFAULT_REGION": "eu-central-1"}
OWN = "http://minio.team.svc:9000"
FRANKFURT = "https://team-bucket.s3.eu-central-1.amazonaws.com"


class Sent(Exception):
    """A request would have gone out."""


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable but those that a test sets, and no files."""
    for name in os.environ:
        if name.startswith("AWS_") or name.upper().endswith(("_PROXY", "_CA_BUNDLE")):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))


def listed(bucket: str, endpoint: str | None) -> tuple[S3Requests, str]:
    """What has listed a bucket, and whom boto3 trusts."""
    trusted: list[str] = []
    client = make_client(endpoint=endpoint, region=None, threads=1)
    requests = S3Requests(client, bucket=bucket, prefix="set")

    def stop(**_: Any) -> None:
        trusted.append(get_cert_path(client._endpoint.http_session._verify))
        raise Sent

    client.meta.events.register_last("before-send.s3.ListObjectsV2", stop)
    with pytest.raises(Sent):
        requests.page("", None)
    return requests, trusted[0]


@pytest.mark.parametrize(
    ("bucket", "endpoint", "environment", "url", "region"),
    [
        ("team-bucket", None, HERE, FRANKFURT, "eu-central-1"),
        ("team-bucket", None, {**KEYS, "AWS_DEFAULT_REGION": "us-east-1"}, "https://team-bucket.s3.amazonaws.com",
         "us-east-1"),
        ("team-bucket", None, {**HERE, "AWS_REGION": "us-west-2"}, FRANKFURT, "eu-central-1"),
        ("team-bucket", None, {**HERE, "AWS_SESSION_TOKEN": "token"}, FRANKFURT, "eu-central-1"),
        ("team-bucket", OWN, KEYS, f"{OWN}/team-bucket", "us-east-1"),
        ("team-bucket", f"{OWN}/", HERE, f"{OWN}/team-bucket", "eu-central-1"),
        ("team-bucket", f"{OWN}/s3", HERE, f"{OWN}/s3/team-bucket", "eu-central-1"),
        ("team-bucket", None, {**HERE, "AWS_ENDPOINT_URL": OWN}, f"{OWN}/team-bucket", "eu-central-1"),
        ("team-bucket", None, {**KEYS, "AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": OWN},
         f"{OWN}/team-bucket", "us-east-1"),
        ("team-bucket", OWN, {**HERE, "AWS_ENDPOINT_URL_S3": "http://other"}, f"{OWN}/team-bucket", "eu-central-1"),
        ("team-bucket", None, {**HERE, "AWS_SKIP_SIGNATURE": "true", "AWS_S3_EXPRESS": "true"}, FRANKFURT,
         "eu-central-1"),
        ("team-bucket", None, {**HERE, "AWS_USE_FIPS_ENDPOINT": "true"},
         "https://team-bucket.s3-fips.eu-central-1.amazonaws.com", "eu-central-1"),
        ("team-bucket", None, {**HERE, "AWS_USE_DUALSTACK_ENDPOINT": "true"},
         "https://team-bucket.s3.dualstack.eu-central-1.amazonaws.com", "eu-central-1"),
        ("team-bucket", None, {**KEYS, "AWS_DEFAULT_REGION": "cn-north-1"},
         "https://team-bucket.s3.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("team.bucket", None, HERE, "https://s3.eu-central-1.amazonaws.com/team.bucket", "eu-central-1"),
        ("arn:aws:s3:eu-central-1:123456789012:accesspoint:mine", None, HERE,
         "https://mine-123456789012.s3-accesspoint.eu-central-1.amazonaws.com", "eu-central-1"),
    ],
)  # fmt: skip
def test_obstore_is_sent_where_boto3_goes(
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    endpoint: str | None,
    environment: dict[str, str],
    url: str,
    region: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    requests, authorities = listed(bucket, endpoint)
    store = requests.bulk_store()
    found: dict[str, Any] = dict(store.config)
    assert found["endpoint_url_s3"] == url
    assert found["region"] == region
    assert {name: found[name] for name in ("virtual_hosted_style_request", "skip_signature", "s3_express")} == {
        "virtual_hosted_style_request": "true", "skip_signature": "false", "s3_express": "false",
    }  # fmt: skip
    assert store.client_options
    assert store.client_options["root_certificate"] == Path(authorities).read_bytes()
    given = requests._credential()
    assert (given["access_key_id"], given["secret_access_key"]) == ("id", "secret")
    assert given.get("token") == environment.get("AWS_SESSION_TOKEN")


def test_a_profile_is_boto3s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "bundle"
    bundle.write_bytes(Path(get_cert_path(True)).read_bytes())
    words = {"region": "eu-west-3", "ca_bundle": str(bundle), "aws_access_key_id": "id", "aws_secret_access_key": "s"}
    lines = (f"{name} = {value}\n" for name, value in words.items())
    (tmp_path / "AWS_CONFIG_FILE").write_text("[profile team]\n" + "".join(lines))
    monkeypatch.setenv("AWS_PROFILE", "team")
    requests, authorities = listed("team-bucket", None)
    assert authorities == str(bundle)
    assert dict(requests.bulk_store().config)["endpoint_url_s3"] == "https://team-bucket.s3.eu-west-3.amazonaws.com"
