"""The report on a hazardous manifest, for tests of its renderings."""

from hvd_elastic.mpijob import lint
from tests.mpijob.lint.overlay import MANIFESTS

STOCK = MANIFESTS / "stock-elastic.yaml"


def stock_report() -> lint.LintReport:
    documents, problems = lint.read(STOCK.read_text(), "jobs/stock elastic.yaml")
    assert problems == []
    return lint.check(documents)
