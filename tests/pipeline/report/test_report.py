"""The page stands alone, says the numbers that the results hold, and every picture has words."""

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pipeline.report import About, as_markdown, as_text, write_report
from pipeline.report.table import number

ABOUT = About(title="made up <b>", command="submit stage=evaluate experiment=x", digest="ab" * 32, config={"a": 1})
NAMES = {"seen": "upstream", "unseen": "downstream"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"unbalanced </{tag}>"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(" ".join(data.split()))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def results(folder: Path, make_results: Callable[..., Any]) -> list[dict[str, Any]]:
    return make_results(folder, NAMES)


@pytest.fixture(scope="module")
def page(folder: Path, results: list[dict[str, Any]]) -> Page:
    return Page(write_report(folder, results, ABOUT).read_text())


def test_nothing_outside_is_needed(folder: Path, page: Page) -> None:
    assert page.open == []
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), f"{name}={value[:80]}"
    text = (folder / "report.html").read_text()
    for reference in ("http:", "https:", "url(", "@import", "import(", "fetch("):
        assert reference not in text
    anchors = {attributes["href"] for attributes in page.all("a")}
    assert anchors == {"#unseen"}
    assert "unseen" in {attributes.get("id") for attributes in page.all("section")}


def test_every_picture_has_words_and_both_themes(folder: Path, page: Page) -> None:
    pictures = page.all("img")
    assert len(pictures) == 5 + 2 * 2 * 4  # bars, two plots a collection, two rows of four thumbnails a collection
    assert len(page.all("source")) == 5
    assert all(source["media"] == "(prefers-color-scheme: dark)" for source in page.all("source"))
    assert all(len(picture["alt"] or "") > 10 for picture in pictures)
    alt = " ".join(str(picture["alt"]) for picture in pictures)
    assert "Bars of R-AUROC" in alt
    assert "Histograms of uncertainty on unseen" in alt
    assert "R@1 on seen" in alt
    assert sorted(path.name for path in (folder / "plots").iterdir()) == sorted(
        f"{name}{theme}.png"
        for name in ("r_auroc", *(f"{kind}_{n}" for kind in ("histograms", "rejection") for n in NAMES))
        for theme in ("", "_dark")
    )
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (folder / "plots").iterdir())


def test_the_table_has_the_numbers(page: Page, results: list[dict[str, Any]]) -> None:
    for result in results:
        for item in result["contenders"]:
            shown = number(item["scores"]["score"]["r_auroc"])
            assert shown.text in page.texts
            assert f"{shown.value:.3f}" in shown.text
    assert len(page.all("tr")) == 1 + 2 * 5
    assert {"made up <b>", "class <3>"} & set(page.texts), "text from data is escaped, not lost"
    assert "submit stage=evaluate experiment=x" in page.texts
    assert "ab" * 32 in page.texts
    assert json.dumps({"a": 1}, indent=2).split() == next(t for t in page.texts if t.startswith("{")).split()


def test_headings_can_be_reached_and_read(page: Page) -> None:
    assert len(page.all("button")) == 7
    assert {"lang": "en"} in page.all("html")
    assert any(attributes.get("tabindex") == "0" for attributes in page.all("div"))
    assert [attributes.get("scope") for attributes in page.all("th")] == ["col"] * 7


def test_counts_are_said(page: Page) -> None:
    said = " ".join(page.texts)
    assert "300 images (chosen from 900 by the hash of their keys) of 21 classes; 298 are judged" in said
    assert "1 are the only one of their class, 1 have no label; 4 could not be used" in said
    assert "bit for bit those of the backbone alone" in said


def test_undefined_is_said_with_its_reason(tmp_path: Path, make_results: Callable[..., Any]) -> None:
    results = make_results(tmp_path, NAMES, extremes=1)
    entropy = results[1]["contenders"][2]
    for key in ("primary", "recall_at_1", "non_interference", "scores", "advantage_over_entropy", "shown"):
        del entropy[key]
    entropy |= {"seeds": [], "absent": "there is no classifier"}
    lost = {"median": None, "distance": None, "values": [], "undefined": "only right neighbours"}
    results[0]["contenders"][0]["scores"]["score"]["r_auroc"] = lost
    said = " ".join(Page(write_report(tmp_path, results, ABOUT).read_text()).texts)
    assert "unseen, classifier_entropy: no R@1, R-AUROC, − entropy, AURC: there is no classifier." in said
    assert "seen, loss_prediction: no R-AUROC: only right neighbours." in said
    assert "- seen, loss_prediction: no R-AUROC: only right neighbours." in as_markdown(results)


def test_text_and_markdown_tables(results: list[dict[str, Any]]) -> None:
    text, markdown = as_text(results), as_markdown(results).splitlines()
    assert len({len(line) for line in text[1:2]}) == 1
    assert len(text) == len(markdown) == 2 + 10
    assert text[2].split()[:3] == ["seen", "loss_prediction", number(results[0]["recall_at_1"]).text]
    assert sum("**" in line for line in markdown) == 2, "the best of each collection"
    assert markdown[2].count("|") == 8


def test_numbers_as_they_are_printed() -> None:
    def numbers(median: float | None, distance: float | None) -> dict[str, Any]:
        return {"median": median, "distance": distance, "values": [], "undefined": "why"}

    assert number(numbers(0.70949, 0.0051)).text == "0.709 ± 0.005"
    assert number(numbers(0.70949, 0.0)).text == "0.709"
    assert number(numbers(-0.0512, 0.0), signed=True).text == "−0.051"
    assert number(numbers(0.0512, 0.0), signed=True).text == "+0.051"
    assert number(numbers(-0.0002, 0.0), signed=True).text == "0.000"
    assert number(numbers(None, None)).reason == "why"


def test_the_same_results_give_the_same_bytes(
    folder: Path, tmp_path: Path, page: Page, make_results: Callable[..., Any]
) -> None:
    again = write_report(tmp_path, make_results(tmp_path, NAMES), ABOUT)
    assert again.read_bytes() == (folder / "report.html").read_bytes()
