"""Jobs for tests of single rules: the clean job with something changed, and what one rule says of it."""

from collections.abc import Sequence

import yaml

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.rule import ManifestPart
from tests.mpijob.lint.overlay import overlaid

HOROVODRUN = ("horovodrun", "-np", "2", "--network-interface", "eth0", "--host-discovery-script", "/hosts")


def launcher(command: Sequence[str], **fields: object) -> list[lint.Document]:
    """The clean stream, with this command and these fields in the launcher's container."""
    return changed(ManifestPart.LAUNCHER, {"command": list(command), "args": None, **fields})


def changed(part: ManifestPart, patch: object) -> list[lint.Document]:
    """The clean stream with `patch` laid over that part."""
    documents, problems = lint.read(overlaid(yaml.safe_dump(patch), part), "job.yaml")
    assert problems == []
    return documents


def findings(identity: str, documents: list[lint.Document], **options: object) -> list[lint.Violation]:
    """What one rule finds."""
    rules = lint.select_rules([identity])
    return [finding.violation for finding in lint.check(documents, rules, **options).findings]  # type: ignore[arg-type]
