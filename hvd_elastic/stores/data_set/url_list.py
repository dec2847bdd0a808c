"""The files of an HTTP server, by a list in the form of Google's Storage Transfer Service ("Create a URL list").

    TsvHttpData-1.0
    https://example.com/set/a.tar→1357→wHENa08V36iPYAsOa2JAdw==

A line for each file, with tabs between its URL, its size in bytes and its MD5 in base64. Here size and MD5 are needed,
and the files are below the folder of the list. The server must answer requests for ranges.
"""

import base64
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import obstore
from obstore.exceptions import BaseError
from obstore.store import HTTPStore

from hvd_elastic.stores.errors import StoreError
from hvd_elastic.stores.object_requests import ListedObject, bulk_options
from hvd_elastic.stores.retry import no_answer
from hvd_elastic.stores.stored_digest import StoredDigest

if TYPE_CHECKING:
    from obstore import GetOptions

_FORM: Final = "TsvHttpData-1.0"
_MD5: Final = re.compile(r"[A-Za-z0-9+/]{22}==")
_MOST_BYTES: Final = 1 << 30
"""Of a list: some millions of files."""
_MOST_SHOWN: Final = 20


class UrlList:
    """A list and its files."""

    def __init__(self, url: str) -> None:
        folder, _, self._name = url.rpartition("/")
        self.where = f"{folder}/"

    def page(self, below: str, more: str | None) -> tuple[Sequence[ListedObject], str | None]:
        """All files; none below anything: who reads one finds out. Raises StoreError, which names all wrong lines."""
        if below:
            return (), None
        url = f"{self.where}{self._name}"
        try:
            answer = obstore.get(self.bulk_store(), self._name)
            if answer.meta["size"] > _MOST_BYTES:
                raise StoreError(f"{url}: is longer than {_MOST_BYTES} bytes")
            text = bytes(answer.bytes()).decode(errors="replace")
        except FileNotFoundError as error:
            raise StoreError(f"{url}: is not there: correct the URL") from error
        except (BaseError, OSError) as error:
            raise no_answer(url, error) from error
        first, *lines = (line.rstrip("\r") for line in text.split("\n"))
        if first != _FORM:
            raise StoreError(f"{url}: is not a list of files, whose first line is {_FORM}")
        found = [self._listed(line) for line in lines if line]
        if wrong := list(self._problems(lines)):
            raise StoreError("\n".join(f"{url}: {problem}" for problem in wrong[:_MOST_SHOWN]))
        return [one for one in found if one], None

    def _problems(self, lines: Sequence[str]) -> Iterator[str]:
        for number, line in enumerate(lines, 2):
            if line and not self._listed(line):
                yield f"line {number}: {line[:200]!r}: write {self.where}PATH, size and MD5 in base64, tabs between"

    def _listed(self, line: str) -> ListedObject | None:
        url, size, md5, *rest = (*line.split("\t"), "", "")
        key = unquote(url.removeprefix(self.where))
        if not url.startswith(self.where) or not key or "?" in url or any(rest) or not size.isdecimal():
            return None
        if not _MD5.fullmatch(md5):
            return None
        digest = StoredDigest(algorithm="md5", value=base64.b64decode(md5))
        return ListedObject(key=key, size_bytes=int(size), version=digest.value.hex(), digest=digest)

    def digest_of(self, one: ListedObject) -> StoredDigest | None:
        """That of the list."""
        return one.digest

    def bulk(self, one: ListedObject) -> "tuple[str, GetOptions]":
        """Under no condition: bytes of another version have another MD5."""
        return one.key, {}

    def bulk_store(self) -> HTTPStore:
        options = bulk_options(self.where, authorities=os.environ.get("REQUESTS_CA_BUNDLE"))
        return HTTPStore.from_url(self.where.rstrip("/"), client_options=options, retry_config={"max_retries": 0})

    def close(self) -> None:
        """Nothing is open."""
