"""The documentation of the rules: complete and valid."""

import re
from pathlib import Path

import yaml

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.lint.report import rule_pages
from hvd_elastic.mpijob.lint.rule import SILENCE_ANNOTATION_PREFIX, STATIC

PAGE = Path(__file__).parents[4] / "docs" / "lint" / "index.md"
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def test_every_example_is_yaml() -> None:
    for rule in lint.all_rules():
        for example in (rule.page.bad, rule.page.good):
            assert [part for part in yaml.safe_load_all(example) if part], rule.id


def test_the_page_written_by_hand_has_the_names_of_the_annotations() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"{SILENCE_ANNOTATION_PREFIX}{STATIC}:" in text
    assert f"`{ANNOTATION_SPEC}`" in text


def test_every_rule_is_on_the_page_of_its_group() -> None:
    pages = rule_pages.pages()
    for rule in lint.all_rules():
        assert f"\n## {rule.id} {rule.name}\n" in pages[f"{rule.group}.md"]
    assert {rule.group for rule in lint.all_rules()} == set(rule_pages.GROUPS)


def test_every_link_leads_to_a_heading() -> None:
    pages = rule_pages.pages()
    anchors = {f"{name}#{_slug(heading)}" for name, text in pages.items() for heading in _HEADING.findall(text)}
    links = re.findall(r"\]\(([^)]+)\)", "".join(pages.values()))
    assert len(links) > len(lint.all_rules())
    assert [link for link in links if link not in pages and link not in anchors] == []


def _slug(heading: str) -> str:
    """The anchor of a heading, as both GitHub and Python-Markdown's `toc` (mkdocs) derive it."""
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")
