"""A linter for MPIJobs, generated or hand-written. Each rule has an id, the reason why it matters and a fix.

`read` turns a YAML or JSON stream into documents, `check` runs the rules over the documents, and `fix` returns the
documents with every safe fix applied. Nothing here talks to a cluster.

How to add a rule:

1. Choose the module in `rules/` (or `rules/api/`) whose docstring names the range of ids (`HE3xx: worker pods ...`),
   and take the next free id. An id is never reused. A new module also needs a line in `rules/__init__.py` and a title
   in `report/rule_pages.py`.
2. Write a function from a LintedJob to violations, and decorate it with `@rule(id, name, severity, why=..., fix=...,
   part=..., bad=..., good=...)`. The docstring is the one-sentence summary. `bad` and `good` are YAML fragments of
   `part`. The function must accept any manifest: read values only through ManifestView, which never raises.
3. Pass edits to the violation only if they cannot make the job worse; `--fix` applies them without asking.
4. Run `pytest tests/mpijob/lint`. `test_rules.py` lays both examples over `manifests/clean.yaml`: the bad one must
   trigger the rule and the good one must not. Every other file in `manifests/` lists in its first line the ids that the
   linter must find there; add yours where it applies, or add a manifest. What stopped somebody is a manifest in
   `manifests/reported/`: its first line names first what keeps the job from starting.

Where to change what:

- what the linter takes besides manifests: `lint_input.py`; what it names and leaves alone: `foreign_input.py`; its
  settings: `lint_settings.py`; known findings: `baseline.py`; since when Horovod has an option, and which of its
  builds run what they are sent: `job/horovod_version.py`; values that the API server refuses of pods:
  `job/pod_values.py`; which errors are told first: `check.py`.
"""

from hvd_elastic.mpijob.lint import rules as _rules  # importing the modules registers their rules
from hvd_elastic.mpijob.lint.check import LintReport, check, select_rules
from hvd_elastic.mpijob.lint.document.manifest_reader import Document, read
from hvd_elastic.mpijob.lint.fix import fix
from hvd_elastic.mpijob.lint.rule import Finding, Rule, RulePage, Severity, Violation, all_rules

__all__ = [
    "Document",
    "Finding",
    "LintReport",
    "Rule",
    "RulePage",
    "Severity",
    "Violation",
    "all_rules",
    "check",
    "fix",
    "read",
    "select_rules",
]

assert _rules
