"""The only YAML writer. Any YAML tool that reads its output gets back the values that went in."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import yaml

from hvd_elastic.system.plain_words import printable

_AMBIGUOUS: Final = re.compile(
    r"[-+._0-9][-+._0-9:a-fxo]*|[-+]?\.(inf|nan)|y|n|yes|no|on|off|true|false|null|~|", re.IGNORECASE
)
"""Text that some reader takes for a number, a truth value or null if it is not quoted. YAML 1.1 and 1.2 differ, and
Kubernetes reads a mixture of both (`1e3`, `0o17` and `+_84` are text to PyYAML and numbers to Go)."""
_LINES: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*\n)+")
"""Lines of plain ASCII, such as a script. They are written as a block."""

_WIDTH: Final = 120

_MAPPING, _SEQUENCE, _TEXT = (f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str"))
_SCALARS: Final = yaml.representer.SafeRepresenter()
"""Writes null, truth values and numbers."""


def dump(documents: Iterable[Any]) -> str:
    """One YAML stream: documents separated by `---`, keys in the order of the mappings.

    Takes the types that JSON has, and raises RepresenterError for others. Each value gets a node of its own, so the
    stream has no aliases. Where a text would steer a terminal, all that is not ASCII is written as escapes.
    """
    nodes = [_node(document) for document in documents]
    stream = _serialized(nodes, allow_unicode=True)
    return stream if stream == printable(stream, lines=True) else _serialized(nodes, allow_unicode=False)


def _serialized(nodes: Sequence[yaml.Node], *, allow_unicode: bool) -> str:
    return str(yaml.serialize_all(nodes, Dumper=yaml.CSafeDumper, allow_unicode=allow_unicode, width=_WIDTH))


def _node(value: Any) -> yaml.Node:
    """Faster than PyYAML's own representer, which looks up a type and an alias for each value."""
    if isinstance(value, str):
        return yaml.ScalarNode(_TEXT, str(value), style=_style(value))
    if isinstance(value, dict):
        pairs = [(_node(key), _node(inner)) for key, inner in value.items()]
        return yaml.MappingNode(_MAPPING, pairs, flow_style=False)
    if isinstance(value, list | tuple):
        return yaml.SequenceNode(_SEQUENCE, [_node(inner) for inner in value], flow_style=False)
    return _SCALARS.represent_data(value)


@lru_cache(maxsize=4096)
def _style(text: str) -> str | None:
    """The quoting style. Cached, because keys and most values are repeated."""
    return '"' if _AMBIGUOUS.fullmatch(text) else "|" if _LINES.fullmatch(text) else None
