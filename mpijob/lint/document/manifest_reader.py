"""Reads a YAML or JSON stream into documents that know the line and column of each value."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView, Path
from hvd_elastic.mpijob.yaml_input.yaml_composer import (
    MAX_CHARACTERS,
    SourceRange,
    UnreadableError,
    YamlComposer,
    YamlNode,
    plain,
)
from hvd_elastic.priorityclasses.problem import Problem

_SEPARATOR: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^%", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a stream."""

    source: str
    """The file's name as the user wrote it; `-` is standard input."""
    node: YamlNode
    value: object
    """Plain dicts, lists and scalars. YAML aliases are expanded to copies, so nothing in it is shared."""

    def source_range(self, path: Path) -> SourceRange:
        """Where the value at `path` is, or the nearest value around it if it is missing.

        A mapping or list is located by its key.
        """
        node = self.node
        start = node.source_range
        source_range = SourceRange(start.line, start.column, start.line, start.column + 1)
        for key in path:
            child = _child(node, key)
            if child is None:
                break
            scalar = not isinstance(child.content, list | dict)
            source_range = child.source_range if scalar else node.keys.get(str(key), child.source_range)
            node = child
        return source_range

    def duplicates(self) -> Iterator[tuple[Path, SourceRange]]:
        """Keys that one mapping has twice: the path of the key, and where its second occurrence is."""
        return _duplicates(self.node, ())

    @property
    def view(self) -> ManifestView:
        """The document's root."""
        return ManifestView(self.value)


def _child(node: YamlNode, key: str | int) -> YamlNode | None:
    content = node.content
    if isinstance(content, dict):
        return content.get(str(key))
    if isinstance(content, list) and isinstance(key, int) and key < len(content):
        return content[key]
    return None


def _duplicates(node: YamlNode, path: Path) -> Iterator[tuple[Path, SourceRange]]:
    for name, source_range in node.duplicates:
        yield (*path, name), source_range
    children: list[tuple[str | int, YamlNode]] = []
    if isinstance(node.content, dict):
        children = list(node.content.items())
    elif isinstance(node.content, list):
        children = list(enumerate(node.content))
    for key, child in children:
        yield from _duplicates(child, (*path, key))


def read(text: str, source: str = "-") -> tuple[list[Document], list[Problem]]:
    """Every readable document of the stream, and a problem for each unreadable one. Empty documents are skipped.

    A broken document does not hide the others, because the stream is first split at its `---` lines, as kubectl does.
    Values of JSON may follow one another without them.
    """
    if len(text) > MAX_CHARACTERS:
        return [], [
            Problem(path=source, value=len(text), what=f"more than {MAX_CHARACTERS} characters", way_out="split it")
        ]
    documents: list[Document] = []
    problems: list[Problem] = []
    composer = YamlComposer()
    for first_line, chunk in _chunks(text):
        try:
            nodes = composer.compose(chunk, first_line)
            documents.extend(Document(source=source, node=node, value=plain(node)) for node in nodes)
        except UnreadableError as error:
            problems.append(_problem(source, error))
    return documents, problems


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    cuts = _ends_of_json(text) or [match.start() for match in _SEPARATOR.finditer(text)]
    if _DIRECTIVE.search(text):  # a directive comes before its `---`, so a split would separate them
        cuts = []
    edges = sorted({0, *cuts, len(text)})
    line = 0
    for start, end in pairwise(edges):
        yield line, text[start:end]
        line += text.count("\n", start, end)


def _ends_of_json(text: str) -> list[int]:
    """Where each object of a JSON stream ends; empty if this is none (apimachinery 0.34, `YAMLOrJSONDecoder`)."""
    ends: list[int] = []
    decoder, end = json.JSONDecoder(), 0
    try:
        while (start := text.find("{", end)) >= 0 and not text[end:start].strip():
            _, end = decoder.raw_decode(text, start)
            ends.append(end)
    except (ValueError, RecursionError):
        return []
    return [] if text[end:].strip() else ends


def _problem(source: str, error: UnreadableError) -> Problem:
    place = f"{source}:{error.line}:{error.column}"
    return Problem(path=place, value="", what=error.what, way_out=error.way_out)
