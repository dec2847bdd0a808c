"""What a request to a bucket needs: its address, credentials, and whom to trust."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hvd_elastic.stores.bucket.bucket_address import BucketAddress

if TYPE_CHECKING:
    from obstore.store import S3Credential

_FILES: Final = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAccess:
    """Of one bucket."""

    address: BucketAddress
    credentials: "Callable[[], S3Credential]"
    """Is asked again when those that it gave are about to end."""
    authorities: Path | None
    """The certificates of those who may vouch for an `https:` address. None: those of the system."""


def access_of_environment(bucket: str, *, endpoint: str | None, environment: Mapping[str, str]) -> BucketAccess | None:
    """What the environment says of a bucket. None: not all of it, so ask boto3."""
    address = BucketAddress.of(bucket, endpoint=endpoint, environment=environment)
    if address is None or _has_profiles(environment):
        return None
    keys: S3Credential = {
        "access_key_id": environment["AWS_ACCESS_KEY_ID"],
        "secret_access_key": environment["AWS_SECRET_ACCESS_KEY"],
        "token": environment.get("AWS_SESSION_TOKEN") or None,
        "expires_at": None,
    }
    return BucketAccess(address=address, credentials=lambda: keys, authorities=_authorities(environment))


def _has_profiles(environment: Mapping[str, str]) -> bool:
    return any(Path(environment.get(name) or usual).expanduser().exists() for name, usual in _FILES.items())


def _authorities(environment: Mapping[str, str]) -> Path:
    """As boto3: the environment's, or certifi's, or those that come with botocore (`botocore.httpsession.where`)."""
    if named := environment.get("AWS_CA_BUNDLE") or environment.get("REQUESTS_CA_BUNDLE"):
        return Path(named)
    try:
        from certifi import where
    except ImportError:
        import botocore  # the package alone is light

        return Path(botocore.__file__).parent / "cacert.pem"
    return Path(where())
