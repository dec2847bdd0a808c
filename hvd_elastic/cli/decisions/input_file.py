"""A file that a verb reads: of this machine, or an object in a bucket, which is brought here first."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click


class InputFile(click.Path):
    """A path, or the URL of an object (`s3://bucket/spot.csv`). The command gets a path, which is gone afterwards."""

    def __init__(self, *, exists: bool = False) -> None:
        """`exists`: a path that is not there is refused by click."""
        super().__init__(exists=exists, dir_okay=not exists, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises HvdElasticError for a URL that cannot be used and for a store that does not answer."""
        url = str(value)
        if "://" not in url:
            return super().convert(value, param, ctx)
        path = _fetched(url, (ctx or click.get_current_context()).with_resource(_folder()))
        return path or self.fail(f"{url} is not there", param, ctx)


def fetch_speeds(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> tuple[str, ...]:
    """The `[JOB=]FILE` words of a flag, as `callback`: with a path in place of each URL."""
    return tuple(_fetched_word(word, param, ctx) for word in words)


def _fetched_word(word: str, param: click.Parameter, ctx: click.Context) -> str:
    before, separator, rest = word.partition("://")
    name, equals, scheme = before.rpartition("=")
    return f"{name}{equals}{InputFile().convert(f'{scheme}://{rest}', param, ctx)}" if separator else word


def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="hvd-elastic-")


def _fetched(url: str, folder: str) -> Path | None:
    """None: there is no such object. A small one is read, of 64 MiB at most."""
    from hvd_elastic.stores.location import Location

    location = Location.parse(url)
    above, _, name = location.path.rpartition("/")
    store = replace(location, path=above or ("/" if location.scheme == "file" else "")).open()
    try:
        found = store.read(name)
    finally:
        store.close()
    if found is None:
        return None
    path = Path(folder, name)
    path.write_bytes(found.data)
    return path
