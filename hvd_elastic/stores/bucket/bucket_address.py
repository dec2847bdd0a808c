"""Where a bucket is and for which region its requests are signed, where the environment says it without boto3's help.

boto3 takes half a second of CPU to start: it reads the model of S3 and works out the same two words from its rules. In
a pod the environment mostly says all of it. Whatever could change the answer, such as a profile or a proxy, leaves it
to boto3. A test holds each answer beside the request that boto3 would send. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_BUCKET: Final = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
"""One that is a label of a host name, and no alias or directory bucket, whose names end in `--` and a kind."""
_REGION: Final = re.compile(r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-[0-9]+")
"""Of the partition `aws` (botocore 1.44, `data/partitions.json`). Others have other domains."""
_SPECIAL: Final = frozenset(
    {
        "AWS_CREDENTIAL_EXPIRATION",
        "AWS_DEFAULT_PROFILE",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
        "AWS_PROFILE",
        "AWS_SECURITY_TOKEN",
        "AWS_USE_DUALSTACK_ENDPOINT",
        "AWS_USE_FIPS_ENDPOINT",
        "ALL_PROXY",
        "HTTPS_PROXY",
        "HTTP_PROXY",
    }
)
"""Variables that change where requests go, or by whom they are signed. boto3 knows them."""
_KEYS: Final = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """Of one bucket."""

    url: str
    """Of the bucket, in either style, without a slash at its end."""
    region: str
    """For which requests are signed."""

    @classmethod
    def of(cls, bucket: str, *, endpoint: str | None, environment: Mapping[str, str]) -> "BucketAddress | None":
        """What boto3 would find, for who has no profile. None: ask boto3.

        The environment must hold keys, too: without them boto3 looks for credentials, and is there anyway.
        """
        given = {name: value for name, value in environment.items() if value}
        if (
            not given.keys() >= _KEYS
            or any(name.upper() in _SPECIAL for name in given)
            or not _BUCKET.fullmatch(bucket)
        ):
            return None
        region = given.get("AWS_DEFAULT_REGION", "")
        own = endpoint or given.get("AWS_ENDPOINT_URL_S3") or given.get("AWS_ENDPOINT_URL")
        if own:
            return cls(url=f"{own.rstrip('/')}/{bucket}", region=region or "us-east-1")
        return cls(url=_aws_url(bucket, region), region=region) if _REGION.fullmatch(region) else None


def _aws_url(bucket: str, region: str) -> str:
    host = "s3" if region == "us-east-1" else f"s3.{region}"
    return f"https://{bucket}.{host}.amazonaws.com"
