"""Carries out the safe fixes, one by one until none is left, and writes the stream again.

Order and values of everything else stay as they are; comments, anchors and the style of the YAML do not survive.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final

from hvd_elastic.mpijob.lint.check import check
from hvd_elastic.mpijob.lint.document.edit import Edit, apply
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.document.yaml_composer import Node, Region
from hvd_elastic.mpijob.lint.rule import Finding, Rule
from hvd_elastic.mpijob.manifests.output import yaml_stream

MOST_ROUNDS: Final = 1_000
_NOWHERE: Final = Region(1, 1, 1, 2)


def fix(documents: Sequence[Document], rules: Sequence[Rule] | None = None) -> tuple[list[Document], list[Finding]]:
    """The documents with every safe fix, and the findings that were put right. Silenced findings are left alone."""
    current, fixed = list(documents), []
    for _ in range(MOST_ROUNDS):
        findings = [finding for finding in check(current, rules).findings if finding.hit.edits]
        if not findings:
            break
        # One a document and round: an edit moves what the others point at.
        for index, document in enumerate(current):
            finding = next((f for f in findings if f.document is document), None)
            if finding is not None:
                current[index] = _edited(document, finding.hit.edits)
                fixed.append(finding)
    return current, fixed


def _edited(document: Document, edits: Sequence[Edit]) -> Document:
    value = copy.deepcopy(document.value)
    for edit in edits:
        apply(value, edit)
    return Document(source=document.source, node=_node(value), value=value)


def _node(value: object) -> Node:
    """Places no longer mean anything once a document was changed."""
    content: Any = value
    if isinstance(value, dict):
        content = {key: _node(child) for key, child in value.items()}
    elif isinstance(value, list):
        content = [_node(child) for child in value]
    return Node(_NOWHERE, content, keys=dict.fromkeys(content, _NOWHERE) if isinstance(value, dict) else {})


def dump(documents: Sequence[Document]) -> str:
    """The documents as one YAML stream."""
    return yaml_stream.dump(document.value for document in documents)
