"""Builds values with their source ranges from a YAML parser's events.

Safe on hostile input: nothing is recursive but `plain`, and depth, size, aliases and merge keys are limited before
anything is built.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from hvd_elastic.mpijob.yaml_input.yaml_scalars import KUBECTL, Dialect, Scalar

MAX_CHARACTERS: Final = 32 << 20
"""Longest stream that is read, in characters: about 2,000 generated jobs."""
MAX_VALUES: Final = 50_000
"""Most values in one document, counted with aliases expanded."""
MAX_COPIED: Final = 200_000
"""Most values that the aliases and merge keys of one stream may copy. 300 characters copy MAX_VALUES."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"
_STRING_TAGS: Final = frozenset(_TAG + name for name in ("str", "binary", "timestamp"))
_RESOLVED_TAGS: Final = frozenset(_TAG + name for name in ("int", "float", "bool", "null"))
_COLLECTION_TAGS: Final = frozenset(_TAG + name for name in ("map", "seq", "omap", "set"))


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Lines and columns count from 1. The end column is the one after the last character."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(slots=True)
class YamlNode:
    """A value with its source range. `content` is a scalar, a list of nodes or a dict of nodes."""

    source_range: SourceRange
    content: "Scalar | list[YamlNode] | dict[str, YamlNode]"
    keys: dict[str, SourceRange] = field(default_factory=dict)
    """Where each key of a mapping is."""
    duplicates: list[tuple[str, SourceRange]] = field(default_factory=list)
    size: int = 1
    depth: int = 1


class UnreadableError(Exception):
    """What is wrong with a chunk and where; line and column count from 1. As text it says both."""

    def __init__(self, what: str, line: int, column: int, way_out: str = "") -> None:
        super().__init__(f"line {line}, column {column}: {what}")
        self.what, self.line, self.column, self.way_out = what, line, column, way_out


@dataclass(slots=True)
class _OpenCollection:
    """A collection whose end event has not arrived yet."""

    node: YamlNode
    anchor: str | None
    key: str | None = None
    merges: list[YamlNode] = field(default_factory=list)
    explicit: set[str] = field(default_factory=set)


class YamlComposer:
    """Builds nodes from parser events. One instance reads one stream, whole or in chunks."""

    def __init__(self, dialect: Dialect = KUBECTL) -> None:
        self._dialect = dialect
        self._copied = 0
        self._begin_chunk(0)

    def _begin_chunk(self, first_line: int) -> None:
        self._first_line = first_line
        self._stack: list[_OpenCollection] = []
        self._begin_document()

    def _begin_document(self) -> None:
        self._anchors: dict[str, YamlNode] = {}
        self._root: YamlNode | None = None
        self._values = 0

    def compose(self, text: str, first_line: int = 0) -> Iterator[YamlNode]:
        """The root nodes of the documents of a chunk, without empty ones. Raises UnreadableError.

        `first_line`: lines of the stream before the chunk.
        """
        self._begin_chunk(first_line)
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                self._take(event)
                if isinstance(event, yaml.DocumentEndEvent) and self._root is not None:
                    if self._root.content is not None:
                        yield self._root
                    self._begin_document()
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from error
        except (yaml.YAMLError, UnicodeError) as error:
            raise UnreadableError(f"not readable: {error}".replace("\n", " "), self._first_line + 1, 1) from error

    def _syntax(self, error: yaml.MarkedYAMLError) -> UnreadableError:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        what = " ".join(part for part in (error.context, error.problem) if part)
        return UnreadableError(f"not YAML: {what}", self._first_line + line + 1, column + 1)

    def _take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            value = str(event.value) if self._dialect.keys_are_text and self._awaits_key() else self._scalar(event)
            self._add(YamlNode(self._source_range(event), value), event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._aliased(event), None)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close(event)

    def _awaits_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].node.content, dict) and self._stack[-1].key is None

    def _source_range(self, event: yaml.Event) -> SourceRange:
        start, end = event.start_mark, event.end_mark
        assert start is not None
        assert end is not None
        line = self._first_line + 1
        return SourceRange(line + start.line, start.column + 1, line + end.line, end.column + 1)

    def _refuse(self, event: yaml.Event, what: str, way_out: str = "") -> UnreadableError:
        mark = event.start_mark
        assert mark is not None
        return UnreadableError(what, self._first_line + mark.line + 1, mark.column + 1, way_out)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        tag = event.tag
        if tag in (None, "!"):
            return self._dialect.resolve(event.value) if event.implicit[0] else str(event.value)
        if tag in _STRING_TAGS:
            return str(event.value)
        if tag in _RESOLVED_TAGS:
            return self._dialect.resolve(event.value)
        raise self._refuse(event, f"tag {tag} is not known", "write a plain value")

    def _aliased(self, event: yaml.AliasEvent) -> YamlNode:
        if event.anchor not in self._anchors:
            raise self._refuse(event, f"alias *{event.anchor} has no complete anchor", "an alias cannot contain itself")
        node = self._anchors[event.anchor]
        self._copied += node.size
        if self._copied > MAX_COPIED:
            raise self._refuse(
                event, f"aliases copy more than {MAX_COPIED} values", "write them out, or divide the file"
            )
        return node

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag not in (None, "!") and event.tag not in _COLLECTION_TAGS:
            raise self._refuse(event, f"tag {event.tag} is not known", "write a plain value")
        if len(self._stack) >= self._dialect.max_depth:
            raise self._refuse(event, f"nested deeper than {self._dialect.max_depth} levels")
        content: dict[str, YamlNode] | list[YamlNode] = {} if isinstance(event, yaml.MappingStartEvent) else []
        if event.anchor:
            self._anchors.pop(event.anchor, None)
        self._stack.append(_OpenCollection(YamlNode(self._source_range(event), content), event.anchor))

    def _close(self, event: yaml.Event) -> None:
        closing = self._stack.pop()
        node = closing.node
        for merged in closing.merges:
            self._merge(closing, merged, event)
        end = self._source_range(event)
        node.source_range = SourceRange(node.source_range.line, node.source_range.column, end.end_line, end.end_column)
        self._values -= node.size - 1  # its children have been counted, and are counted again as part of it
        self._add(node, closing.anchor)

    def _merge(self, closing: _OpenCollection, merged: YamlNode, event: yaml.Event) -> None:
        """`<<: *base`: keys of the mapping itself win over merged ones."""
        target = closing.node.content
        sources = merged.content if isinstance(merged.content, list) else [merged]
        for source in sources:
            if not isinstance(source.content, dict) or not isinstance(target, dict):
                raise self._refuse(event, "`<<` merges a value that is not a mapping")
            for key, value in source.content.items():
                if key not in target:
                    target[key] = value
                    closing.node.keys[key] = source.keys[key]
                    self._grow(closing.node, value)

    def _grow(self, node: YamlNode, child: YamlNode) -> None:
        node.size += child.size
        node.depth = max(node.depth, child.depth + 1)
        self._values += child.size

    def _add(self, node: YamlNode, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = node
        if not self._stack:
            self._check(node)
            self._root = node
            return
        top = self._stack[-1]
        content = top.node.content
        if isinstance(content, list):
            content.append(node)
            self._grow(top.node, node)
        elif isinstance(content, dict):
            self._add_entry(top, content, node)
        self._check(node)

    def _add_entry(self, top: _OpenCollection, content: "dict[str, YamlNode]", node: YamlNode) -> None:
        if top.key is None:
            if isinstance(node.content, list | dict):
                raise UnreadableError("a key is not a scalar", node.source_range.line, node.source_range.column)
            top.key = _key(node.content)
            if top.key in content:
                top.node.duplicates.append((top.key, node.source_range))
            top.node.keys[top.key] = node.source_range
            return
        key, top.key = top.key, None
        if key == "<<":
            top.merges.append(node)
            self._values += node.size  # `{<<: *a, <<: *a, ...}` looks at each of its keys each time
            top.node.keys.pop(key, None)
        else:
            content[key] = node
            self._grow(top.node, node)

    def _check(self, node: YamlNode) -> None:
        place = (node.source_range.line, node.source_range.column)
        if self._values > MAX_VALUES:
            what = f"more than {MAX_VALUES} values once its aliases are expanded"
            raise UnreadableError(what, *place, "shorten the document")
        if len(self._stack) + node.depth > self._dialect.max_depth + 1:
            what = f"nested deeper than {self._dialect.max_depth} levels once its aliases are expanded"
            raise UnreadableError(what, *place)


def plain(node: YamlNode) -> object:
    """The node's value without source ranges. The dialect's depth bounds the recursion."""
    content = node.content
    if isinstance(content, dict):
        return {key: plain(child) for key, child in content.items()}
    if isinstance(content, list):
        return [plain(child) for child in content]
    return content


def read_values(text: str) -> list[Any]:
    """The values of a stream's documents, with scalars as kubectl reads them. Raises UnreadableError."""
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError(f"more than {MAX_CHARACTERS} characters", 1, 1, "divide the file")
    return [plain(node) for node in YamlComposer().compose(text)]


def read_value(text: str) -> Any:
    """The value of the only document; None for an empty one. Raises UnreadableError."""
    values = read_values(text)
    if len(values) > 1:
        raise UnreadableError("more than one document", 1, 1, "keep one of them")
    return values[0] if values else None


def _key(value: object) -> str:
    """A key as JSON writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
