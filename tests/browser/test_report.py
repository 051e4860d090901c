"""The report in a real browser: nothing is missing or complained of, and it works on a phone and by keyboard."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.analyses import chosen
from pipeline.analyses._records import Records
from pipeline.analyses.conformal_sets import _line
from pipeline.evaluation import Contender
from pipeline.progress import Silent
from pipeline.report.build import About, environment
from pipeline.report.parts import Table
from tests.browser import chromium
from tests.browser.chromium import Page
from tests.made_up import Column, collection, contenders, made_up_rows

pytestmark = pytest.mark.xdist_group("browser")

SHOWN = ("extremes", "ood", "selective")  # tables, wide and long; plots; images
MANY = 14  # methods beside the usual ones


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of many methods with long names."""
    folder = tmp_path_factory.mktemp("report")
    roles = {"upstream": "upstream", "unseen_classes_of_a_long_name": "downstream"}
    records = Records(folder, list(roles), chosen(SHOWN))
    more = [
        Contender(
            name=f"loss_prediction objective=l2 hidden={2**n}",
            role="compare",
            config={"kind": "loss_prediction"},
            heads={0: Column(0, 0.2 * n, n)},
        )
        for n in range(MANY)
    ]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.report.style.DOTS", 30)
        for place, (unit, role) in enumerate(roles.items()):
            methods = [contenders()[0], *more, *contenders()[1:]]
            found.append(collection(records, unit, role, made_up_rows(80, 8, place), methods))
            records.measure(found[-1], Silent())
        records.compare(found, Silent())
        command = "submit stage=evaluate experiment=one_with_a_long_name"
        records.write_report(About(title="made up", command=command, digest="ab" * 32, config={"a": "b" * 200}), "x")
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if reason := chromium.why_not():
        pytest.skip(reason)
    with chromium.pages(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(browser: Page, report: Path) -> Iterator[Page]:
    """The report on a desk, in daylight; nothing was complained of in the end."""
    browser.open(report)
    yield browser
    assert browser.complaints == []


def test_no_image_is_missing_and_none_is_without_words(page: Page) -> None:
    broken = page.evaluate(
        "(async () => { for (const i of document.images) i.loading = 'eager';"
        " await Promise.all([...document.images].map(i => i.decode().catch(() => 0)));"
        " return [...document.images].filter(i => !i.naturalWidth || !i.alt).map(i => i.outerHTML.slice(0, 80)) })()"
    )
    assert broken == []
    assert page.evaluate("document.images.length") > 2 * 24


def test_a_script_that_fails_would_be_seen(browser: Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<script>nothing.there()</script><img src='missing.png'><script src='http://127.0.0.1:9/x'></script>"
    )
    browser.open(bad)
    seen, browser.complaints[:] = " ".join(browser.complaints), []
    assert "nothing is not defined" in seen
    assert "127.0.0.1:9" in seen
    assert "ERR_FILE_NOT_FOUND" in seen


@pytest.mark.parametrize("width", [320, 390, 800])
def test_nothing_is_wider_than_the_screen(page: Page, width: int) -> None:
    """All unfolded; what is wide, such as a table, scrolls by itself."""
    page.resize(width)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    tables = page.evaluate("[...document.querySelectorAll('.scroll')].map(s => [s.clientWidth, s.scrollWidth])")
    assert all(client <= width for client, _ in tables)
    assert width > 400 or any(inner > client for client, inner in tables), "the test has a table that is too wide"


def column(page: Page, place: int) -> list[Any]:
    values = page.evaluate(
        f"[...document.querySelectorAll('#results tbody tr')].map(r => r.cells[{place}].dataset.value)"
    )
    return [float(value) if value else None for value in values]


def test_a_table_is_sorted_by_keyboard(page: Page) -> None:
    for _ in range(60):
        page.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "R-AUROC":
            break
    heading = "document.activeElement.closest('th').ariaSort"
    before = column(page, 3)
    page.press("Enter")
    assert page.evaluate(heading) == "descending"
    known = [value for value in column(page, 3) if value is not None]
    assert known == sorted(known, reverse=True) != before
    page.press(" ")
    assert page.evaluate(heading) == "ascending"
    ascending = column(page, 3)
    assert ascending[: len(known)] == sorted(known)
    assert all(value is None for value in ascending[len(known) :]), "what is undefined stays last"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "where the focus is can be seen"


def test_what_has_no_end_sorts_behind_every_number(browser: Page, tmp_path: Path) -> None:
    """The set of a bin for which all images are not enough is "all" of them."""
    bins = [(12, 10, 9), (None, 10, 10), (3, 10, 8), (None, 0, 0), (200, 10, 10)]
    rows = [
        _line(place, {"size": size, "tried": tried, "covered": covered})
        for place, (size, tried, covered) in enumerate(bins, start=1)
    ]
    table = Table(caption="bins", columns=("Uncertainty", "Size", "Tried", "Coverage", "Interval"), rows=rows)
    page = "<link rel='icon' href='data:,'>{% from 'macros.html' import table %}{{ table(made) }}"
    template = environment().from_string(page + "<script>{{ script }}</script>")
    (tmp_path / "table.html").write_text(template.render(made=table))
    browser.open(tmp_path / "table.html")
    shown = "[...document.querySelectorAll('tbody tr')].map(r => r.cells[1].textContent)"
    press = "document.querySelectorAll('th button')[1].click()"
    browser.evaluate(press)
    assert browser.evaluate(shown) == ["all", "all", "200", "12", "3"]
    browser.evaluate(press)
    assert browser.evaluate(shown) == ["3", "12", "200", "all", "all"]
    assert browser.complaints == []


def test_contents_lead_to_what_they_name_and_unfold_it(page: Page) -> None:
    links = page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))")
    assert page.evaluate(f"{links}.filter(id => !document.getElementById(id))") == []
    folded = "document.getElementById('upstream-selective')"
    assert page.evaluate(f"{folded}.open") is False
    page.evaluate("document.querySelector('a[href=\"#upstream-selective\"]').click()")
    assert page.evaluate(f"new Promise(r => setTimeout(() => r({folded}.open), 50))") is True
    page.evaluate(f"{folded}.querySelector('summary').focus()")
    page.press("Enter")
    assert page.evaluate(f"{folded}.open") is False


def test_a_dark_page_has_dark_plots(browser: Page, report: Path) -> None:
    sources, grounds = [], []
    for dark in (False, True):
        browser.open(report, dark=dark)
        sources.append(browser.evaluate("[...document.querySelectorAll('picture img')].map(i => i.currentSrc)"))
        grounds.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(23, 28, 25)"]
    assert len(sources[0]) == len(sources[1]) == 3
    assert not set(sources[0]) & set(sources[1])
    assert browser.complaints == []


def test_no_process_of_a_browser_outlives_its_use(browser: Page, tmp_path: Path) -> None:
    with chromium.pages(tmp_path):
        assert speaking_of(tmp_path)
    assert speaking_of(tmp_path) == []


def speaking_of(folder: Path) -> list[str]:
    """Command lines in which a folder stands, of processes that run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes()
            if os.fsencode(folder) in line:
                found.append(line.decode(errors="replace"))
    return found
