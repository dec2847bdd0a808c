"""Where a bucket is, is where boto3 would look for it."""

from typing import Any

import pytest

from hvd_elastic.stores.bucket.boto3_requests import Boto3Requests
from hvd_elastic.stores.bucket.bucket_access import BucketAccess, access_of_environment
from hvd_elastic.stores.bucket.bucket_address import BucketAddress

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
HERE = {**KEYS, "AWS_DEFAULT_REGION": "eu-central-1"}
OWN = "http://minio.team.svc:9000"


class Sent(Exception):
    """A request would have gone out."""


@pytest.fixture
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable but those that a test sets."""
    import os

    for name in os.environ:
        if name.startswith("AWS_") or name.upper().endswith(("_PROXY", "_CA_BUNDLE")):
            monkeypatch.delenv(name)


def found_by_boto3(bucket: str, endpoint: str | None) -> BucketAccess | None:
    """What boto3 would list the bucket with."""
    learned: list[BucketAccess | None] = []

    def stop(**_: Any) -> None:
        raise Sent

    boto3 = Boto3Requests(bucket, endpoint=endpoint, threads=1, learned=learned.append)
    boto3.client.meta.events.register_last("before-send.s3.ListObjectsV2", stop)
    with pytest.raises(Sent):
        boto3.page("set/", None)
    return learned[0]


@pytest.mark.usefixtures("nothing_else")
@pytest.mark.parametrize(
    ("bucket", "endpoint", "environment"),
    [
        ("team-bucket", None, HERE),
        ("team-bucket", None, {**KEYS, "AWS_DEFAULT_REGION": "us-east-1"}),
        ("team-bucket", None, {**KEYS, "AWS_DEFAULT_REGION": "us-west-2"}),
        ("team-bucket", None, {**HERE, "AWS_REGION": "us-west-2"}),
        ("team-bucket", None, {**HERE, "AWS_SESSION_TOKEN": "token"}),
        ("team-bucket", OWN, KEYS),
        ("team-bucket", f"{OWN}/", HERE),
        ("team-bucket", f"{OWN}/s3", HERE),
        ("team-bucket", None, {**HERE, "AWS_ENDPOINT_URL": OWN}),
        ("team-bucket", None, {**KEYS, "AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": OWN}),
        ("team-bucket", OWN, {**HERE, "AWS_ENDPOINT_URL_S3": "http://other"}),
    ],
)
def test_what_the_environment_says_is_what_boto3_finds(
    monkeypatch: pytest.MonkeyPatch, bucket: str, endpoint: str | None, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ours = access_of_environment(bucket, endpoint=endpoint, environment=environment)
    theirs = found_by_boto3(bucket, endpoint)
    assert ours is not None
    assert theirs is not None
    assert ours.address == theirs.address
    assert ours.authorities == theirs.authorities
    wanted, got = theirs.credentials(), ours.credentials()
    assert all(got.get(name) == wanted.get(name) for name in ("access_key_id", "secret_access_key", "token"))


@pytest.mark.parametrize(
    ("bucket", "environment"),
    [
        ("team-bucket", {"AWS_DEFAULT_REGION": "eu-central-1"}),
        ("team-bucket", {**HERE, "AWS_SECRET_ACCESS_KEY": ""}),
        ("team-bucket", KEYS),
        ("team-bucket", {**KEYS, "AWS_REGION": "eu-central-1"}),
        ("team-bucket", {**HERE, "AWS_DEFAULT_REGION": "cn-north-1"}),
        ("team-bucket", {**HERE, "AWS_DEFAULT_REGION": "us-gov-west-1"}),
        ("team.bucket", HERE),
        ("team_bucket", HERE),
        ("Team", HERE),
        ("alias--ol-s3", HERE),
        ("directory--euc1-az1--x-s3", HERE),
        ("arn:aws:s3:eu-central-1:123456789012:accesspoint", HERE),
        *(("team-bucket", {**HERE, name: "x"}) for name in ("AWS_PROFILE", "AWS_USE_FIPS_ENDPOINT", "https_proxy")),
    ],
)
def test_what_it_does_not_say_is_left_to_boto3(bucket: str, environment: dict[str, str]) -> None:
    assert BucketAddress.of(bucket, endpoint=None, environment=environment) is None


@pytest.mark.parametrize("variable", ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"])
def test_files_with_settings_are_left_to_boto3(tmp_path: Any, variable: str) -> None:
    file = tmp_path / "settings"
    environment = {**HERE, variable: str(file)}
    assert access_of_environment("team-bucket", endpoint=None, environment=environment) is not None
    file.touch()
    assert access_of_environment("team-bucket", endpoint=None, environment=environment) is None
