"""Pods with an identity of their cloud and no key anywhere: tokens are fetched, used and renewed, at stand-ins."""

import hashlib
import json
import os
import ssl
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from hvd_elastic.stores.data_set.object_source import ObjectSource
from hvd_elastic.stores.errors import StoreError
from hvd_elastic.stores.location import Location
from hvd_elastic.stores.retry import TransientError
from testbed import azure_server
from testbed.gcs_server import create_bucket
from testbed.kube.certificates import Authority
from testbed.s3_server import CREDENTIALS
from tests.trainer.checkpoint.proxy import Faults, proxy

TENANT = "11111111-2222-3333-4444-555555555555"


@dataclass(kw_only=True)
class Tokens:
    """What the stand-in hands out, and to whom."""

    token: str = "first"
    seconds: int = 3600
    """Left of its life."""
    fails: int = 0
    """So many requests are answered first as a proxy does that reaches nobody: with 503, and words that are not XML."""
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str, headers: Message, form: str) -> tuple[int, Any]:
        host = headers["Host"]
        self.asked.append(f"{path} {form}")
        if self.fails:
            self.fails -= 1
            return 503, ""
        if found := self.of_aws(path, headers, form) or self.of_google(path, form):
            return found
        if "/service-accounts/" in path and "/token" not in path:
            return 200, {"email": "job@project", "scopes": [], "aliases": ["default"]}
        if path.startswith("/computeMetadata/v1/universe"):
            return 404, {}
        if path.endswith("openid-configuration"):
            root = f"https://{host}/{TENANT}"
            return 200, {
                "issuer": f"{root}/v2.0",
                "authorization_endpoint": f"{root}/oauth2/v2.0/authorize",
                "token_endpoint": f"{root}/oauth2/v2.0/token",
            }
        if "/oauth2/" in path or "/service-accounts/" in path:
            return 200, {"access_token": self.token, "expires_in": self.seconds, "token_type": "Bearer"}
        return 200, {}

    def of_aws(self, path: str, headers: Message, form: str) -> tuple[int, Any] | None:
        """As keys that end: the token is the key's ID. Whoever does not show what he was given gets nothing."""
        end = datetime.now(UTC) + timedelta(seconds=self.seconds)
        keys = {"AccessKeyId": self.token, "SecretAccessKey": "secret", "Expiration": f"{end:%Y-%m-%dT%H:%M:%SZ}"}
        if "Action=AssumeRole" in form:
            is_signed = "Credential=first/" in headers.get("Authorization", "")
            is_known = "WebIdentityToken=of+kubernetes" in form or is_signed
            given = {**keys, "SessionToken": "session"} if is_known else {}
            content = "".join(f"<{name}>{value}</{name}>" for name, value in given.items())
            name = form.partition("Action=")[2].partition("&")[0]
            result = f"<{name}Result><Credentials>{content}</Credentials></{name}Result>"
            return 200, f"<{name}Response>{result}</{name}Response>"
        if path == "/v1/credentials":
            return (200, {**keys, "Token": "session"}) if headers.get("Authorization") == "of kubernetes" else (400, {})
        if path == "/latest/api/token":
            return 200, "of the node"
        if path.startswith("/latest/meta-data/"):
            if headers.get("x-aws-ec2-metadata-token") != "of the node":
                return 401, {}
            is_role = path.endswith("/trainer")
            return 200, {**keys, "Token": "session", "Code": "Success"} if is_role else "trainer"
        if path.startswith("/federation/credentials"):
            if headers.get("x-amz-sso_bearer_token") != "of a person":
                return 401, {}
            named = {"accessKeyId": self.token, "secretAccessKey": "secret", "sessionToken": "session"}
            return 200, {"roleCredentials": {**named, "expiration": int(end.timestamp() * 1000)}}
        return None

    def of_google(self, path: str, form: str) -> tuple[int, Any] | None:
        """For what a file of application default credentials says."""
        shown = {"/of-an-account": "assertion=ey", "/of-a-pool": "subject_token=of+kubernetes"}.get(path)
        if shown is None:
            return None
        kind = "urn:ietf:params:oauth:token-type:access_token"
        given = {"access_token": self.token, "issued_token_type": kind, "expires_in": self.seconds}
        return (200, {**given, "token_type": "Bearer"}) if shown in form else (400, {"error": "invalid_grant"})


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority") / "own")


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    pair = authority.issue("server", "server", answers_to=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def served(tokens: Tokens, tls: ssl.SSLContext | None) -> Iterator[str]:
    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            form = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            status, answer = tokens.answer(self.path, self.headers, form)
            self.send_response(status)
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
            self.end_headers()
            self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

        do_POST = do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@cache
def node() -> tuple[Tokens, str, Iterator[str]]:
    """What a node's service hands out, its address, and the service: one for the process, whatever its modules.

    Google's library reads the address once.
    """
    tokens = Tokens()
    service = served(tokens, None)
    return tokens, next(service), service


@pytest.fixture
def tokens() -> Tokens:
    found = node()[0]
    found.__init__()  # type: ignore[misc]
    return found


@pytest.fixture
def metadata() -> str:
    return node()[1]


@pytest.fixture
def entra(tokens: Tokens, tls: ssl.SSLContext) -> Iterator[str]:
    yield from served(tokens, tls)


@pytest.fixture(autouse=True)
def a_pod_without_keys(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    # Not HOME, where the servers that the tests run on are kept: they would be built anew.
    for name, file in (("AWS_CONFIG_FILE", ".aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")):
        monkeypatch.setenv(name, str(tmp_path / file))
    for name in ("CLOUDSDK_CONFIG", "AZURE_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.root))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")


def google_store(gcs_proxy: tuple[str, Faults], tls: ssl.SSLContext) -> Iterator[tuple[str, Faults]]:
    bucket = f"b{uuid.uuid4().hex}"
    create_bucket(gcs_proxy[0], bucket)
    with proxy(gcs_proxy[1].upstream, tls=tls) as (endpoint, faults):
        yield f"gs://{bucket}/jobs/a?endpoint={endpoint}", faults


@pytest.fixture
def gke(
    gcs_proxy: tuple[str, Faults], metadata: str, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Faults]]:
    """Workload Identity Federation: the node's metadata server answers for the pod."""
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, metadata)
    yield from google_store(gcs_proxy, tls)


@pytest.fixture
def account_file(
    gcs_proxy: tuple[str, Faults], entra: str, tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Faults]]:
    """The key of a service account, which signs what a token is given for."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    account = {
        "type": "service_account",
        "client_email": "job@project.iam.gserviceaccount.com",
        "private_key": key.private_bytes(*encoding).decode(),
        "token_uri": f"https://{entra}/of-an-account",
    }
    (tmp_path / "adc.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
    yield from google_store(gcs_proxy, tls)


@pytest.fixture
def federation_file(
    gcs_proxy: tuple[str, Faults],
    entra: str,
    tls: ssl.SSLContext,
    kubernetes_token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[str, Faults]]:
    """A pool of identities that trusts the cluster, which need not be Google's. The file has no key."""
    pool = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/cluster",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"https://{entra}/of-a-pool",
        "credential_source": {"file": kubernetes_token},
    }
    (tmp_path / "adc.json").write_text(json.dumps(pool))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
    yield from google_store(gcs_proxy, tls)


def azure_store(azure_proxy: tuple[str, Faults], tls: ssl.SSLContext) -> Iterator[tuple[str, Faults]]:
    container = f"b{uuid.uuid4().hex}"
    azure_server.create_container(f"{azure_proxy[0]}/{azure_server.ACCOUNT}", container)
    with proxy(azure_proxy[1].upstream, tls=tls) as (endpoint, faults):
        faults.signature = azure_server.signature()
        yield f"az://{container}/jobs/a?endpoint={endpoint}/{azure_server.ACCOUNT}", faults


@pytest.fixture
def managed_identity(
    azure_proxy: tuple[str, Faults], metadata: str, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Faults]]:
    """The node's instance metadata service answers for the pod."""
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://{metadata}")
    yield from azure_store(azure_proxy, tls)


@pytest.fixture
def workload_identity(
    azure_proxy: tuple[str, Faults], entra: str, tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Faults]]:
    """What the webhook of AKS gives to a pod: a token of Kubernetes, and whom to show it."""
    (tmp_path / "token").write_text("of kubernetes")
    monkeypatch.setenv("AZURE_CLIENT_ID", "job")
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"https://{entra}")
    # Without it the library asks at most every 30 seconds.
    monkeypatch.setattr("azure.identity._internal.utils.DEFAULT_TOKEN_REFRESH_RETRY_DELAY", 0)
    monkeypatch.setattr("msal.authority.WELL_KNOWN_AUTHORITY_HOSTS", frozenset({entra}))
    yield from azure_store(azure_proxy, tls)


@pytest.fixture
def s3(s3_proxy: tuple[str, Faults], s3_client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Faults]]:
    for name in CREDENTIALS:  # of the server's own
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = f"b{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=bucket)
    with proxy(s3_proxy[1].upstream) as (endpoint, faults):
        yield f"s3://{bucket}/jobs/a?endpoint={endpoint}&region=us-east-1", faults


@pytest.fixture
def kubernetes_token(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("of kubernetes")
    return str(file)


@pytest.fixture
def irsa(
    s3: tuple[str, Faults], metadata: str, kubernetes_token: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Faults]:
    """What EKS' webhook gives to a pod: a token of Kubernetes, for which STS gives keys of the role."""
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/trainer")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", kubernetes_token)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{metadata}")
    return s3


@pytest.fixture
def pod_identity(
    s3: tuple[str, Faults], metadata: str, kubernetes_token: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Faults]:
    """EKS Pod Identity: an agent of the node answers for the pod."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{metadata}/v1/credentials")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", kubernetes_token)
    return s3


@pytest.fixture
def instance_profile(s3: tuple[str, Faults], metadata: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Faults]:
    """The node's role, by version 2 of its metadata service, which asks for a session first."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{metadata}")
    return s3


@pytest.fixture
def sso(s3: tuple[str, Faults], metadata: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Faults]:
    """A person who has said `aws sso login`."""
    start = "https://example.awsapps.com/start"
    profile = {"sso_start_url": start, "sso_region": "us-east-1", "sso_account_id": "123456789012"}
    lines = "".join(f"{key} = {value}\n" for key, value in {**profile, "sso_role_name": "trainer"}.items())
    cache = tmp_path / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    (tmp_path / ".aws" / "config").write_text(f"[profile person]\n{lines}")
    login = {"startUrl": start, "accessToken": "of a person", "expiresAt": "2100-01-01T00:00:00Z"}
    (cache / f"{hashlib.sha1(start.encode(), usedforsecurity=False).hexdigest()}.json").write_text(json.dumps(login))
    monkeypatch.setattr("botocore.credentials.SSOProvider._SSO_TOKEN_CACHE_DIR", str(cache))  # read at the import
    monkeypatch.setenv("AWS_PROFILE", "person")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", f"http://{metadata}")
    return s3


@pytest.fixture
def assumed_role(
    instance_profile: tuple[str, Faults], metadata: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Faults]:
    """A profile that assumes another role, as that of the node: a bucket of another account, say."""
    (tmp_path / ".aws").mkdir()
    role = "role_arn = arn:aws:iam::123456789012:role/trainer\ncredential_source = Ec2InstanceMetadata\n"
    (tmp_path / ".aws" / "config").write_text(f"[profile trainer]\n{role}")
    monkeypatch.setenv("AWS_PROFILE", "trainer")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{metadata}")
    return instance_profile


AWS = ("irsa", "pod_identity", "instance_profile", "assumed_role", "sso")


@pytest.fixture(params=AWS)
def aws(request: pytest.FixtureRequest) -> tuple[str, Faults]:
    """A bucket that takes one key alone, and what it does."""
    found: tuple[str, Faults] = request.getfixturevalue(request.param)
    return found


def test_keys_of_a_role_are_fetched_used_and_renewed_before_their_end(
    aws: tuple[str, Faults], tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, faults = aws
    store: Any = Location.parse(url).open(sleep=lambda _: None)
    faults.credential = "Credential=first/"
    assert store.create("manifests/a", b"1")
    asked = len(tokens.asked)
    assert store.keys("manifests") == ("manifests/a",)
    assert len(tokens.asked) == asked, "one key serves many requests"
    keys = store.requests.client._request_signer._credentials
    keys._time_fetcher = near_end = lambda: datetime.now(UTC) + timedelta(seconds=3540)
    monkeypatch.setattr("botocore.credentials._local_now", near_end)
    tokens.token, faults.credential, tokens.seconds = "second", "Credential=second/", 2 * tokens.seconds
    assert store.create("manifests/b", b"1")
    assert store.keys("manifests") == ("manifests/a", "manifests/b")
    store.close()


def test_who_hands_out_keys_may_be_away_for_a_moment(aws: tuple[str, Faults], tokens: Tokens) -> None:
    url, faults = aws
    faults.credential, tokens.fails = "Credential=first/", 1
    store = Location.parse(url).open(sleep=lambda _: None)
    assert store.create("manifests/a", b"1")
    store.close()


PODS = {
    **dict.fromkeys(("gke", "account_file", "federation_file"), "gcs"),
    **dict.fromkeys(("managed_identity", "workload_identity"), "azure"),
}
"""Whose store takes the token."""


@pytest.fixture(params=PODS)
def pod(request: pytest.FixtureRequest) -> tuple[str, Faults]:
    """A store that takes the identity's token alone, and what it does."""
    found: tuple[str, Faults] = request.getfixturevalue(request.param)
    return found


def test_a_token_is_fetched_and_used(pod: tuple[str, Faults], tokens: Tokens) -> None:
    url, faults = pod
    store = Location.parse(url).open()
    faults.credential = "Bearer first"
    assert store.create("manifests/a", b"1")
    asked = len(tokens.asked)
    assert store.keys("manifests") == ("manifests/a",)
    assert len(tokens.asked) == asked, "one token serves many requests"
    store.close()


def test_objects_are_read_by_a_token_and_its_renewal(pod: tuple[str, Faults], tokens: Tokens) -> None:
    url, faults = pod
    faults.credential, tokens.seconds = "Bearer first", 100  # less than what is left when it is renewed
    store = Location.parse(url).open()
    assert store.create("a", b"data")
    source = ObjectSource(url, endpoint=None, threads=1, sleep=lambda _: None)
    (one,) = source.objects()
    assert b"".join(source.pieces(one, 0, 4)) == b"data"
    tokens.token, faults.credential = "second", "Bearer second"
    assert b"".join(source.pieces(one, 0, 4)) == b"data"
    source.close()
    store.close()


def test_a_token_is_renewed_before_its_end(pod: tuple[str, Faults], tokens: Tokens) -> None:
    url, faults = pod
    faults.credential, tokens.seconds = "Bearer first", 100  # less than what is left when it is renewed
    store = Location.parse(url).open()
    assert store.create("manifests/b", b"1")
    tokens.token, faults.credential = "second", "Bearer second"
    assert store.create("manifests/c", b"1")
    store.close()


def test_a_token_that_is_refused_early_is_replaced(gke: tuple[str, Faults], tokens: Tokens) -> None:
    url, faults = gke
    faults.credential = "Bearer first"
    store = Location.parse(url).open(sleep=lambda _: None)
    assert store.create("manifests/a", b"1")
    tokens.token, faults.credential = "second", "Bearer second"
    assert store.create("manifests/b", b"1")
    store.close()


def test_who_hands_out_tokens_may_be_away_for_a_moment(pod: tuple[str, Faults], tokens: Tokens) -> None:
    url, faults = pod
    faults.credential, tokens.fails = "Bearer first", 1
    store = Location.parse(url).open(sleep=lambda _: None)
    assert store.create("manifests/a", b"1")
    store.close()


def test_no_identity_is_said(
    tmp_path: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, azure_proxy: tuple[str, Faults]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "environmentcredential")
    monkeypatch.setenv("PATH", str(tmp_path))
    for url in ("gs://bucket/a", "az://bucket/a?account=account1"):
        with pytest.raises(StoreError, match="no credentials") as caught:
            Location.parse(url).open().read("owner.json")
        assert not isinstance(caught.value, TransientError)


def test_a_token_never_goes_over_a_connection_without_tls(gke: tuple[str, Faults], tokens: Tokens) -> None:
    url, faults = gke
    plain = f"http://{faults.upstream[0]}:{faults.upstream[1]}"
    store = Location.parse(f"{url.partition('?')[0]}?endpoint={plain}").open()
    assert store.keys("manifests") == ()
    assert tokens.asked == []
