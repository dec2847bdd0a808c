"""The page of `benchmarks.report`: complete without a network, and the same figures as its files."""

import csv
import html
import json
import math
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.report.__main__ import Kept, section
from benchmarks.report.aim import Aim, Outcome
from benchmarks.report.growth import growth
from benchmarks.report.machine import product_digest
from benchmarks.report.page import Section, states, write_page
from benchmarks.report.programs import CLUSTER, PROGRAMS, Program
from benchmarks.report.record import Column, Record, Table, Value, spread
from hvd_elastic.client.bench.line_chart import Axis, Line, line_chart
from testbed.debian_programs import needed


def record() -> Record:
    found = Record(name="made_up", question="Is <this> shown?", options=("--size", "3"))
    columns = (Column(title="what"), Column(title="share", format=".1%"), Column(title="seconds", format=".2f"))
    found.add(
        Table(
            name="made-up",
            title="Shares & seconds",
            columns=columns,
            rows=[["ours", 0.987, 1.5], ["stock", None, "never"]],
            note="The second was given up.",
        )
    )
    axis = Axis(title="x", ticks=[(0.0, "0"), (1.0, "1")])
    found.promise(
        Aim(what="share of ours", bound=0.97, measured=0.987, is_least=True, format=".1%"),
        Aim(what="seconds of ours", bound=1.0, measured=1.5, reason="one <core>"),
        Aim(what="seconds of stock", bound=1.0, measured=None),
    )
    found.pictures["line"] = line_chart([Line(name="a < b", points=[(0, 0), (1, 1)])], title="T", x=axis, y=axis)
    return found


class Page(HTMLParser):
    """What a browser would look for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element points to."""
        found = dict(attrs)
        self.links += [found["href"] or ""] if tag == "a" else []
        self.loaded += [value or "" for name, value in attrs if name in {"src", "xlink:href", "data"}]
        self.ids += [found["id"] or ""] if "id" in found else []

    def handle_data(self, data: str) -> None:
        """Note the text."""
        self.texts.append(data)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    sections = [
        Section(name="made_up", record=record(), said=""),
        Section(name="absent", record=None, said="skipped: there is no <trace>\nexit code 0"),
    ]
    left_out = [Program(name="far_away", options=("--small",), left_out="there is no <cluster>")]
    return write_page(sections, tmp_path, left_out=left_out)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = record()
    written.write(tmp_path)
    read = Record.read(tmp_path / "made_up.json")
    assert [table.texts() for table in read.tables] == [table.texts() for table in written.tables]
    assert (read.question, read.machine, read.pictures) == (written.question, written.machine, written.pictures)
    assert read.aims == written.aims


@pytest.mark.process
def test_a_round_goes_on_where_it_was_and_is_of_one_state_of_the_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    small = Program(name="made_up", options=("--size", "3"))

    def shown(product: str, *, full: bool = False, keeps: Kept = Kept.OF_THIS_PRODUCT) -> Record | None:
        written = record()
        written.product = product
        written.write(tmp_path / "benchmarks")
        return section(small, keeps=keeps, full=full).record  # there is no such module, so running it gives no record

    kept = shown(product_digest())
    assert kept is not None
    assert shown(product_digest(), full=True) is None
    assert shown("another") is None
    old = shown("another", keeps=Kept.ALL)
    assert old is not None
    assert states([kept, kept]) == f"All are of one state of the product, {product_digest()}."
    assert states([kept, old]).startswith("They are of 2 states of the product")


def test_an_aim_is_met_at_its_bound_and_missed_beyond_it() -> None:
    outcomes = {
        (is_least, measured): Aim(what="", bound=2.0, measured=measured, is_least=is_least).outcome
        for is_least in (False, True)
        for measured in (1.9, 2.0, 2.1, math.inf, None)
    }
    missed = {key for key, outcome in outcomes.items() if outcome is Outcome.MISSED}
    assert missed == {(False, 2.1), (False, math.inf), (True, 1.9)}
    assert {key for key, outcome in outcomes.items() if outcome is Outcome.UNKNOWN} == {(False, None), (True, None)}
    assert Aim(what="", bound=2.0, measured=math.inf).found == "never"
    assert Aim(what="", bound=math.inf, measured=math.inf).outcome is Outcome.MISSED, "neither came"


def test_the_page_begins_with_every_aim_and_what_became_of_it(page: Path) -> None:
    text = page.read_text()
    assert "Of 3 aims: 1 met, 1 missed, 1 not measured. Not among them" in text
    assert "which have found nothing: absent." in text
    rows = re.findall(r"<tr>(.*?)</tr>", text[: text.index("</section>")])[1:]
    cells = [[html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]
    assert [each[:4] for each in cells] == [
        ["share of ours", "met", "at least 97.0%", "98.7%"],
        ["seconds of ours", "missed", "at most 1.00", "1.50"],
        ["seconds of stock", "not measured", "at most 1.00", "-"],
    ]
    assert cells[1][4].endswith(": one <core>")


def test_a_page_without_aims_has_no_table_of_them(tmp_path: Path) -> None:
    text = write_page([Section(name="absent", record=None, said="")], tmp_path).read_text()
    assert 'id="aims"' not in text


@pytest.mark.distribution
def test_figures_of_a_table_are_those_of_the_rows_that_are_named() -> None:
    (table,) = record().tables
    assert table.figures("share") == [0.987]
    assert table.figures("seconds", rows=("stock",)) == []
    with pytest.raises(ValueError, match="hours"):
        table.figures("hours")


def test_each_link_leads_somewhere_and_nothing_is_loaded(page: Path) -> None:
    found = Page(page.read_text())
    assert found.loaded == []
    for link in found.links:
        assert link.removeprefix("#") in found.ids if link.startswith("#") else (page.parent / link).is_file(), link
    assert {"#made_up", "#absent", "#left-out", "made-up.csv"} <= set(found.links)


def test_figures_are_shown_for_people_and_kept_for_programs(page: Path) -> None:
    texts = Page(page.read_text()).texts
    assert {"98.7%", "1.50", "never", "-", "Is <this> shown?"} <= set(texts)
    assert any("there is no <trace>" in text for text in texts)
    with (page.parent / "made-up.csv").open() as file:
        assert list(csv.reader(file)) == [
            ["what", "share", "seconds"],
            ["ours", "0.987", "1.5"],
            ["stock", "", "never"],
        ]


def test_each_command_is_shown_with_its_options_and_what_is_left_out_at_its_own_size(page: Path) -> None:
    texts = Page(page.read_text()).texts
    assert {"python -m benchmarks.made_up --size 3", "python -m benchmarks.far_away"} <= set(texts)
    assert any("there is no <cluster>" in text for text in texts)


def test_every_benchmark_writes_a_record_and_is_part_of_the_report() -> None:
    modules = {path.stem: path.read_text() for path in Path("benchmarks").glob("[a-z]*.py")}
    assert sorted(program.name for program in PROGRAMS) == sorted(modules)
    for name, text in modules.items():
        assert f'name="{name}"' in text, f"{name} has no Record"
        assert "record.write()" in text, f"{name} does not keep what it has found"


def test_a_report_brings_up_no_cluster_unless_it_is_asked_to() -> None:
    assert {program.name for program in PROGRAMS if program.left_out == CLUSTER} == {
        path.stem for path in Path("benchmarks").glob("[a-z]*.py") if "testbed.cluster" in path.read_text()
    }
    others = {program.name for program in PROGRAMS if program.left_out not in ("", CLUSTER)}
    assert others == {"simulation_truth"}, "it has no figures without those of the cluster"


def test_growth_is_told_for_one_doubling() -> None:
    columns = (Column(title="workers"), Column(title="seconds"), Column(title="MiB"), Column(title="name"))
    rows: list[list[Value]] = [[64, 1.0, 10, "a"], [512, 8.0, None, "b"], [1024, 32.0, 20, "c"]]
    measured = Table(name="scale", title="Scale", columns=columns, rows=rows)
    grown = growth(measured, name="growth", of=("seconds", "MiB"))
    assert grown.rows == [["64 to 512", pytest.approx(2.0), None], ["512 to 1024", pytest.approx(4.0), None]]
    assert [column.title for column in grown.columns] == ["workers", "seconds", "MiB"]


def test_a_spread_without_values_has_no_figures() -> None:
    assert spread([3.0, 1.0, 9.0]) == (1.0, 3.0, 9.0)
    assert spread([]) == (None, None, None)


def test_the_picture_is_a_well_formed_part_of_the_page(page: Path) -> None:
    text = page.read_text()
    picture = text[text.index("<svg") : text.index("</svg>") + len("</svg>")]
    assert "a < b" in "".join(ElementTree.fromstring(picture).itertext())


@pytest.mark.parametrize("width", [390, 1280])
def test_a_real_browser_shows_it_without_a_fault_or_the_network(page: Path, tmp_path: Path, width: int) -> None:
    browser = needed("chromium")
    (page.parent / "whole.html").write_text(page.read_text().replace("</body>", f"<script>{FINDINGS}</script></body>"))
    shown = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},900",
            "--dump-dom",
            (page.parent / "whole.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = Page(shown.stdout)
    assert {"98.7%", "never", "missed"} <= set(found.texts)
    assert "CONSOLE" not in shown.stderr, "the page has an error of its own"
    findings = json.loads(found.texts[found.texts.index("findings:") + 1])
    assert findings["resources"] == [], "something was loaded"
    assert findings["pictures"], "each picture is drawn"
    assert all(width > 0 and height > 0 for width, height in findings["pictures"])
    assert findings["overflow"] <= 0, "nothing is wider than the window but what scrolls by itself"


FINDINGS = """
const shown = (picture) => { const box = picture.getBoundingClientRect(); return [box.width, box.height]; };
const found = {
  resources: performance.getEntriesByType("resource").map((entry) => entry.name),
  pictures: Array.from(document.querySelectorAll("svg"), shown),
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
};
for (const text of ["findings:", JSON.stringify(found)]) {
  const part = document.createElement("p");
  part.textContent = text;
  document.body.append(part);
}
"""
"""What the browser itself knows of the page, written into it."""
