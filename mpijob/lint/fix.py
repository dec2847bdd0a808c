"""Applies the safe fixes, one after another until none is left, and writes the stream again.

The order and the values of everything else stay. Comments, anchors and YAML style are lost.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final

from hvd_elastic.mpijob.lint.check import check
from hvd_elastic.mpijob.lint.document.manifest_edit import ManifestEdit, apply
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.document.yaml_composer import SourceRange, YamlNode
from hvd_elastic.mpijob.lint.job.horovod_version import HorovodVersion
from hvd_elastic.mpijob.lint.rule import Finding, Rule
from hvd_elastic.mpijob.manifests.writers import yaml_stream

MAX_ROUNDS: Final = 1_000
_UNKNOWN_RANGE: Final = SourceRange(1, 1, 1, 2)


def fix(
    documents: Sequence[Document], rules: Sequence[Rule] | None = None, *, horovod: HorovodVersion | None = None
) -> tuple[list[Document], list[Finding]]:
    """The documents with every safe fix applied, and the findings that were fixed. Silenced findings stay.

    `horovod`: as for `check`. Without it, a fix that needs a certain Horovod says so in its violation's `assumes`.
    """
    current, fixed = list(documents), []
    for _ in range(MAX_ROUNDS):
        findings = [finding for finding in check(current, rules, horovod=horovod).findings if finding.violation.edits]
        if not findings:
            break
        # One fix per document and round, because an edit can move the places that other findings point at.
        for index, document in enumerate(current):
            finding = next((f for f in findings if f.document is document), None)
            if finding is not None:
                current[index] = _edited(document, finding.violation.edits)
                fixed.append(finding)
    return current, fixed


def _edited(document: Document, edits: Sequence[ManifestEdit]) -> Document:
    value = copy.deepcopy(document.value)
    for edit in edits:
        apply(value, edit)
    return Document(source=document.source, node=_node(value), value=value)


def _node(value: object) -> YamlNode:
    """Nodes without source ranges: the ranges no longer mean anything once a document has changed."""
    content: Any = value
    if isinstance(value, dict):
        content = {key: _node(child) for key, child in value.items()}
    elif isinstance(value, list):
        content = [_node(child) for child in value]
    keys = dict.fromkeys(content, _UNKNOWN_RANGE) if isinstance(value, dict) else {}
    return YamlNode(_UNKNOWN_RANGE, content, keys=keys)


def dump(documents: Sequence[Document]) -> str:
    """The documents as one YAML stream."""
    return yaml_stream.dump(document.value for document in documents)
