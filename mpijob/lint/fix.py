"""Applies the safe fixes, one after another until none is left, and writes the stream again.

The order and the values of everything else stay. Comments, anchors and YAML style are lost.
"""

from collections.abc import Sequence
from typing import Final

from hvd_elastic.mpijob.lint.check import check
from hvd_elastic.mpijob.lint.document.manifest_edit import ManifestEdit, apply
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.job.horovod_version import HorovodVersion
from hvd_elastic.mpijob.lint.rule import Finding, Rule
from hvd_elastic.mpijob.manifests.writers import yaml_stream
from hvd_elastic.mpijob.yaml_input.yaml_composer import plain

MAX_ROUNDS: Final = 1_000


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
    """The document with the edits in it. What they leave alone keeps its line and column in the source."""
    node = document.node
    for edit in edits:
        node = apply(node, edit)
    return Document(source=document.source, node=node, value=plain(node))


def dump(documents: Sequence[Document]) -> str:
    """The documents as one YAML stream."""
    return yaml_stream.dump(document.value for document in documents)
