"""Whom a TLS connection trusts: the one place that makes contexts."""

import ssl
from pathlib import Path


def client_context(*, cafile: Path | str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """Trust these authorities; without any, those of the system.

    Python 3.13 made `ssl.create_default_context` refuse certificates that RFC 5280 does not allow. Many authorities of
    clusters and object stores lack the key identifiers or the key usage it wants, and kubectl and boto3 take them.
    """
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
