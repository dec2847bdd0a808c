"""A real server of Azure Blob Storage on this machine: Azurite, from npm."""

import contextlib
import datetime as dt
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from testbed.debian_programs import needed
from testbed.kube import folders

VERSION: Final = "3.37.0"
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everybody knows (its README)."""

_NODE: Final = 20
"""It asks for 22, and 20 serves; that of Debian 12 is older."""


def installed() -> Path:
    """The folder that it is installed in, once. Skips the test, with the reason, without node and npm."""
    npm = needed("npm")
    version = subprocess.run([needed("node"), "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.lstrip("v").partition(".")[0]) < _NODE:
        pytest.skip(f"{version.stdout.strip()} of node is too old: Azurite needs {_NODE} or later (https://nodejs.org)")
    kept = folders.cache() / f"azurite-{VERSION}"
    with folders.alone(kept.name):  # several test processes ask at once
        if not kept.is_dir():
            with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
                into = Path(scratch) / "azurite"
                command = [npm, "install", "--prefix", str(into), "--ignore-scripts", "--omit=optional", "--no-audit"]
                command.append(f"azurite@{VERSION}")
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    pytest.skip(f"azurite {VERSION} cannot be installed: {done.stderr[-500:]}")
                into.rename(kept)
    return kept


@contextlib.contextmanager
def azure_server(address: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """A server on an address of this machine, whose port it chooses. Skips the test, with the reason, without node."""
    main = installed() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    command = [needed("node"), str(main), "--blobHost", address, "--blobPort", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            found = next(filter(None, (re.search(r"listens on http://(.*):(\d+)", line) for line in server.stdout)))
            yield found[1], int(found[2])
        finally:
            server.kill()


def create_container(endpoint: str, name: str) -> None:
    """Make a container. `endpoint`: of the account."""
    from azure.core.credentials import AzureNamedKeyCredential
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient(endpoint, credential=AzureNamedKeyCredential(ACCOUNT, KEY)) as client:
        client.create_container(name)


def signature() -> str:
    """The query of a request that may do all. It does not cover what a proxy changes in the request."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    whole = AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True)
    where = ResourceTypes(container=True, object=True)
    expiry = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    return str(generate_account_sas(ACCOUNT, KEY, resource_types=where, permission=whole, expiry=expiry))
