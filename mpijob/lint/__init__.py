"""Names the hazards of MPIJobs, however they were written: each a rule with an identity, a reason and a way out.

`read` makes documents of a stream, `check` a report of documents, `fix` better documents.
"""

from mpijob.lint import rules as _rules  # registers them
from mpijob.lint.check import Report, check, chosen
from mpijob.lint.fix import fix
from mpijob.lint.manifest import Document, read
from mpijob.lint.rule import Finding, Hit, Page, Rule, Severity, registered

__all__ = [
    "Document",
    "Finding",
    "Hit",
    "Page",
    "Report",
    "Rule",
    "Severity",
    "check",
    "chosen",
    "fix",
    "read",
    "registered",
]

assert _rules
