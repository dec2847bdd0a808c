"""Names the hazards of MPIJobs, however they were written: each a rule with an identity, a reason and a way out.

`read` makes documents of a stream, `check` a report of documents, `fix` better documents.
"""

from hvd_elastic.mpijob.lint import rules as _rules  # registers them
from hvd_elastic.mpijob.lint.check import LintReport, check, chosen
from hvd_elastic.mpijob.lint.document.manifest_reader import Document, read
from hvd_elastic.mpijob.lint.fix import fix
from hvd_elastic.mpijob.lint.rule import Finding, Hit, Page, Rule, Severity, registered

__all__ = [
    "Document",
    "Finding",
    "Hit",
    "LintReport",
    "Page",
    "Rule",
    "Severity",
    "check",
    "chosen",
    "fix",
    "read",
    "registered",
]

assert _rules
