"""One self-contained HTML file: no network, images as data URIs, light and dark, sortable, plots in words too."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipeline.evaluation.contenders import ENTROPY
from pipeline.files import write_bytes
from pipeline.places import Place
from pipeline.report import plots
from pipeline.report.style import DARK, LIGHT, THEMES, Theme, drawing, png
from pipeline.report.table import COLUMNS, NUMBERS, lines, number, undefined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
Result = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class About:
    """What made the numbers.

    Attributes:
        title: of the page.
        command: that makes them again.
        digest: of everything that decides them.
        config: the resolved config, plain values.
    """

    title: str
    command: str
    digest: str
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot as PNG in both themes, and in words."""

    name: str
    caption: str
    alt: str
    light: bytes
    dark: bytes


def write_report(folder: Place, results: Sequence[Result], about: About) -> Place:
    """Write ``report.html`` and ``plots/*.png`` into ``folder``; the page's path.

    Args:
        folder: where; thumbnails that the results name lie below it.
        results: one a collection: as :func:`pipeline.evaluation.collection_results` gives, with ``id`` (fit for a file
            name), ``dataset`` (shown), ``role`` (``upstream`` or ``downstream``), ``about`` (title, source, licence,
            citation), and in each of the extremes ``thumbnail`` (a file below ``folder``, or None).
        about: what made them.
    """
    caption = "R-AUROC of each score. Bars begin at chance; whiskers span the seeds."
    overview = _plot("r_auroc", caption, plots.bars_in_words(results), lambda theme: plots.r_auroc_bars(results, theme))
    sections = [_section(folder, result) for result in results]
    for plot in (overview, *(plot for section in sections for plot in section["plots"])):
        write_bytes(folder / "plots" / f"{plot.name}.png", plot.light)
        write_bytes(folder / "plots" / f"{plot.name}_dark.png", plot.dark)
    page = _template().render(
        about=about,
        config=json.dumps(about.config, indent=2, ensure_ascii=False),
        columns=COLUMNS,
        numbers=NUMBERS,
        lines=lines(results),
        undefined=undefined(results),
        overview=overview,
        sections=sections,
        headlines=[_headline(result) for result in results if result["role"] == "downstream"],
    )
    path = folder / "report.html"
    write_bytes(path, page.encode())
    return path


def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["data_uri"] = data_uri
    for name in ("style", "script"):  # our own files, so they are not escaped
        suffix = {"style": "css", "script": "js"}[name]
        environment.globals[name] = Markup((HERE / f"report.{suffix}").read_text(encoding="utf-8"))
    return environment.get_template("report.html")


def data_uri(data: bytes, kind: str) -> str:
    """The bytes as a ``data:`` address."""
    return f"data:{kind};base64,{b64encode(data).decode()}"


def _plot(name: str, caption: str, alt: str, draw: Callable[[Theme], Figure]) -> Plot:
    drawn = {}
    for theme in THEMES:
        with drawing(theme):
            drawn[theme.name] = png(draw(theme))
    return Plot(name=name, caption=caption, alt=alt, light=drawn[LIGHT.name], dark=drawn[DARK.name])


def _headline(result: Result) -> dict[str, Any]:
    """What a card says of a downstream collection: its head beside the entropy."""
    head = result["contenders"][0]
    r_auroc = head["scores"][head["primary"]]["r_auroc"]
    return {
        "id": result["id"],
        "dataset": result["dataset"],
        "head": head["name"],
        "r_auroc": number(r_auroc),
        "advantage": number(head["advantage_over_entropy"], signed=True),
        "recall": number(result["recall_at_1"]),
    }


def _section(folder: Place, result: Result) -> dict[str, Any]:
    shown = [item["name"] for item in result["contenders"] if item["role"] == "head" or item["name"] == ENTROPY]
    return {
        "result": result,
        "plots": [
            _plot(
                f"histograms_{result['id']}",
                "Uncertainty of images whose nearest neighbour is of their class (right) and of those where it is not.",
                plots.histograms_in_words(result, shown),
                lambda theme: plots.histograms(result, shown, theme),
            ),
            _plot(
                f"rejection_{result['id']}",
                "R@1 of the images that are kept when the least certain are rejected first.",
                plots.rejection_in_words(result),
                lambda theme: plots.rejection_curves(result, theme),
            ),
        ],
        "extremes": _extremes(folder, result["extremes"]),
        "interference": _interference(result),
    }


def _extremes(folder: Place, extremes: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The two rows of images, each with its data."""
    if extremes is None:
        return []
    groups = (("Least certain", "least_certain"), ("Most certain", "most_certain"))
    return [
        {"title": title, "images": [{**item, "data": _read(folder, item["thumbnail"])} for item in extremes[key]]}
        for title, key in groups
        if any(item["thumbnail"] for item in extremes[key])
    ]


def _read(folder: Place, thumbnail: str | None) -> bytes | None:
    return (folder / thumbnail).read_bytes() if thumbnail else None


def _interference(result: Result) -> list[str]:
    """A sentence on each head: does R@1 stay what the backbone alone gives?"""
    said = []
    for item in result["contenders"]:
        if "non_interference" in item and item["role"] != "baseline":
            same = all(item["non_interference"].values())
            said.append(
                f"{item['name']}: embedding, neighbours and R@1 are bit for bit those of the backbone alone."
                if same
                else f"{item['name']}: has an embedding of its own, so its R@1 is not the backbone's."
            )
    return said
