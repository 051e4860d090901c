"""The page stands alone, says the numbers that the results hold, and every picture has words."""

import copy
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pipeline.files import read_json
from pipeline.report.build import About, write_report
from pipeline.report.look import Look
from pipeline.report.parts import Cell, Context, Table, number
from pipeline.report.table import as_markdown, as_text
from tests.made_up import evaluation

ABOUT = About(
    title="made up <b>", command="submit stage=evaluate head=elk experiment=x", digest="ab" * 32, config={"a": 1}
)
SHOWN = ["extremes", "histograms", "rejection", "r_auroc"]  # what has plots and images; each is drawn in its own tests
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
        if tag not in ("meta", "link", "img", "source", "wbr"):
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
def results(folder: Path) -> list[dict[str, Any]]:
    records, _ = evaluation(folder, NAMES, SHOWN)
    records.write_report(ABOUT, "x")
    return read_json(folder / "results.json")["results"]


@pytest.fixture(scope="module")
def page(folder: Path, results: list[dict[str, Any]]) -> Page:
    return Page((folder / "report.html").read_text())


def test_nothing_outside_is_needed(folder: Path, page: Page) -> None:
    assert page.open == []
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), f"{name}={value[:80]}"
    text = (folder / "report.html").read_text()
    for reference in ("http:", "https:", "url(", "@import", "import(", "fetch("):
        assert reference not in text
    anchors = {str(attributes["href"]) for attributes in page.all("a")}
    assert {"#unseen", "#seen-rejection", "#together-r_auroc"} <= anchors
    assert {anchor[1:] for anchor in anchors} <= {attributes.get("id") for _, attributes in page.tags}


def test_every_picture_has_words_and_both_themes(folder: Path, page: Page, results: list[dict[str, Any]]) -> None:
    plots = {path.name for path in (folder / "plots").iterdir()}
    light = {name for name in plots if not name.endswith("_dark.png")}
    assert plots == light | {name.replace(".png", "_dark.png") for name in light}
    assert {"r_auroc.png", "seen_histograms.png", "unseen_rejection.png"} <= light
    assert all((folder / "plots" / name).read_bytes().startswith(b"\x89PNG") for name in plots)
    assert len(page.all("source")) == len(light)
    assert all(source["media"] == "(prefers-color-scheme: dark)" for source in page.all("source"))
    pictures = page.all("img")
    assert len(pictures) == len(light) + len(results) * 2 * 12  # and two rows of twelve thumbnails a collection
    assert all(len(picture["alt"] or "") > 10 for picture in pictures)
    alt = " ".join(str(picture["alt"]) for picture in pictures)
    assert "Bars of R-AUROC" in alt
    assert "Histograms of uncertainty on unseen" in alt
    assert "R@1 on seen" in alt


def test_the_table_has_the_numbers(page: Page, results: list[dict[str, Any]]) -> None:
    for result in results:
        for item in result["contenders"]:
            shown = number(item["scores"]["score"]["r_auroc"])
            assert shown.text in page.texts
            assert f"{shown.value:.3f}" in shown.text
    assert len(page.all("tr")) == 1 + 2 * 5
    assert {"made up <b>", "class <3>"} & set(page.texts), "text from data is escaped, not lost"
    assert "submit stage=evaluate head=elk experiment=x" in page.texts
    assert "submit stage=train_head head=elk experiment=x" in page.texts
    others = [text for text in page.texts if text.startswith("submit stage=train_head experiment=x head=")]
    assert others == ["submit stage=train_head experiment=x head=loss_prediction_l2"]
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


def test_undefined_is_said_with_its_reason(tmp_path: Path, results: list[dict[str, Any]]) -> None:
    results = [{**result, "analyses": {}} for result in copy.deepcopy(results)]
    unlike = {"values": None, "absent": "the rows have no beards", "files": {}}
    results[1]["analyses"] = {"histograms": unlike}
    entropy = results[1]["contenders"][2]
    for key in ("primary", "recall_at_1", "non_interference", "scores", "advantage_over_entropy"):
        del entropy[key]
    entropy |= {"seeds": [], "absent": "there is no classifier"}
    lost = {"median": None, "distance": None, "values": [], "undefined": "only right neighbours"}
    results[0]["contenders"][0]["scores"]["score"]["r_auroc"] = lost
    said = " ".join(Page(write_report(tmp_path, results, {}, ABOUT).read_text()).texts)
    assert "unseen, classifier_entropy: no R@1, R-AUROC, − entropy, AURC: there is no classifier." in said
    assert "seen, loss_prediction: no R-AUROC: only right neighbours." in said
    assert "- seen, loss_prediction: no R-AUROC: only right neighbours." in as_markdown(results)
    assert "Not applicable: the rows have no beards." in said


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


def test_the_same_results_give_the_same_bytes(folder: Path, tmp_path: Path, page: Page) -> None:
    records, _ = evaluation(tmp_path, NAMES, SHOWN)
    records.write_report(ABOUT, "x")
    for file in ("report.html", "results.json", "table.md"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_a_table_says_why_something_is_undefined_once_a_reason() -> None:
    lost = [Cell(text="undefined", reason=reason) for reason in ("none is right", "none is right", "too few")]
    table = Table(
        caption="", columns=("Score", "A", "B"), rows=[[Cell(text="x"), *lost[:2]], [Cell(text="y"), *lost[1:]]]
    )
    assert table.reasons == ["Undefined, A, B: none is right.", "Undefined, B: too few."]


def test_the_command_of_an_analysis_asks_for_it_alone(tmp_path: Path, results: list[dict[str, Any]]) -> None:
    about = replace(ABOUT, command="submit stage=evaluate 'evaluate.analyses=[quick,tsne]' 'evaluate.datasets=[a,b]'")
    absent = {"known_classes": {"values": None, "absent": "nobody knows them", "files": {}}}
    page = write_report(tmp_path, [{**result, "analyses": absent} for result in results], {}, about)
    said = Page(page.read_text()).texts
    assert "submit stage=evaluate 'evaluate.datasets=[a,b]' evaluate.analyses=[known_classes]" in said


def test_captions_say_who_is_drawn_and_which_seed(page: Page, results: list[dict[str, Any]]) -> None:
    context = Context(results=results[:1], look=Look.of(results))
    assert "One seed of each" in context.one_seed(["loss_prediction", "inverse_norm"])
    assert context.one_seed(["inverse_norm", "classifier_entropy"]) == "", "which have but one"
    said = " ".join(page.texts)
    assert "nearest to the median. Drawn: loss_prediction and classifier_entropy, of 5 methods." in said
    assert (
        "R@1 of the images that are kept when the least certain are rejected first, on seen (298 judged images)."
        in said
    )
    wrong = round(298 * (1 - results[0]["recall_at_1"]["median"]))
    assert f"{wrong} with {298 - wrong} of seen;" in said
