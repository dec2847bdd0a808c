"""Webhooks of a manager that is a process of this machine.

The API server reaches webhooks by a service address, and no kube-proxy translates any on this machine: it is told where
the process listens.
"""

import base64
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import yaml

from testbed.kube.certificates import Authority


def certify(folder: Path, name: str) -> bytes:
    """Make `tls.crt` and `tls.key` of a server on this machine, in a new folder; return their authority's (PEM)."""
    shutil.rmtree(folder, ignore_errors=True)
    authority = Authority.create(folder)
    authority.issue("tls", name, answers_to=("127.0.0.1",))
    return authority.root.read_bytes()


def client(url: str, root: bytes) -> dict[str, str]:
    """How the API server reaches a webhook whose certificate is of the authority `root` (PEM)."""
    return {"url": url, "caBundle": base64.b64encode(root).decode()}


def answered(
    manifests: Path, names: Collection[str], server: str, root: bytes, *, prefix: str
) -> Iterator[dict[str, Any]]:
    """Of a manager's own manifests the webhooks of these names, as `server` answers them."""
    for item in yaml.safe_load_all(manifests.read_text()):
        item["metadata"]["name"] = f"{prefix}{item['metadata']['name']}"
        item["webhooks"] = [webhook for webhook in item["webhooks"] if webhook["name"] in names]
        for webhook in item["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = client(server + path, root)
        yield item
