"""One self-contained HTML file: no network, images as data URIs, light and dark, sortable, plots in words too."""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from pipeline.analyses import Analysis, make_analysis
from pipeline.files import write_bytes
from pipeline.places import Place
from pipeline.report.look import Look
from pipeline.report.parts import Context, Download, Figure, Gallery, Part, Result, number
from pipeline.report.style import DARK, LIGHT, THEMES, drawing, png
from pipeline.report.table import main_table, undefined

HERE = Path(__file__).parent


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

    caption: str
    words: str
    light: bytes
    dark: bytes


@dataclass(frozen=True, kw_only=True)
class Block:
    """One analysis: ``(kind, part)`` for the template, or why it does not apply."""

    analysis: Analysis
    place: str  # of its record, below the folder of the run
    command: str  # that measures it
    parts: Sequence[tuple[str, Any]]
    absent: str | None


def write_report(folder: Place, results: Sequence[Result], compared: Mapping[str, Any], about: About) -> Place:
    """Write ``report.html`` and ``plots/*.png`` into ``folder``; the page's path.

    Args:
        folder: where; files that analyses wrote lie below it.
        results: one a collection: as :func:`pipeline.evaluation.collection_results` gives, with ``id`` (fit for a file
            name), ``dataset`` (shown), ``role`` (``upstream`` or ``downstream``), ``about`` (title, source, licence,
            citation), and ``analyses``: name → ``{values, absent}``.
        compared: name → ``{values, absent}`` of the comparisons.
        about: what made them.
    """
    look = Look.of(results)
    overview = _blocks(folder, "comparisons", compared, Context(results=results, look=look), about)
    sections = [
        {
            "result": result,
            "blocks": _blocks(
                folder, f"analyses/{result['id']}", result["analyses"], Context(results=[result], look=look), about
            ),
            "interference": _interference(result),
            "wrong": round(result["counts"]["counted"] * (1 - (result["recall_at_1"]["median"] or 0))),
        }
        for result in results
    ]
    page = render(
        "report.html",
        about=about,
        config=json.dumps(about.config, indent=2, ensure_ascii=False),
        main=main_table(results),
        undefined=undefined(results),
        overview=overview,
        sections=sections,
        trained=_trained(results, about),
        headlines=[_headline(result) for result in results if result["role"] == "downstream"],
    )
    path = folder / "report.html"
    write_bytes(path, page.encode())
    return path


def _blocks(folder: Place, place: str, records: Mapping[str, Any], context: Context, about: About) -> list[Block]:
    """The analyses of one folder of records, in the order of the report."""
    analyses = sorted((make_analysis(name) for name in records), key=lambda item: (item.place, item.name))
    blocks = []
    for item in analyses:
        record = records[item.name]
        parts = [] if record["values"] is None else list(item.show(record["values"], context))
        drawn = [_ready(folder, f"{place}/{item.name}", part) for part in parts]
        if parts or record["absent"]:
            blocks.append(
                Block(
                    analysis=item,
                    place=f"{place}/{item.name}.json",
                    command=_measuring(item.name, about),
                    parts=drawn,
                    absent=record["absent"],
                )
            )
    return blocks


def _measuring(name: str, about: About) -> str:
    """The command of the evaluation, for one analysis."""
    words = [word for word in shlex.split(about.command) if not word.lstrip("+").startswith("evaluate.analyses=")]
    return f"{shlex.join(words)} evaluate.analyses=[{name}]"


def _ready(folder: Place, place: str, part: Part) -> tuple[str, Any]:
    """A part with its bytes; plots are written as files as well."""
    kind = type(part).__name__.lower()
    if isinstance(part, Figure):
        return kind, ready_figure(folder, "_".join(place.split("/")[1:]), part)
    if isinstance(part, Gallery):
        data = [(folder / place / item.file).read_bytes() if item.file else None for item in part.pictures]
        return kind, {"title": part.title, "small": part.small, "pictures": zip(part.pictures, data, strict=True)}
    if isinstance(part, Download):
        return kind, {"file": part.file, "words": part.words, "data": (folder / place / part.file).read_bytes()}
    return kind, part


def ready_figure(folder: Place, name: str, part: Figure) -> Plot:
    """A drawn plot, also written to ``plots/`` in both themes, under ``name`` and the figure's own."""
    plot = _plot(part)
    name = "_".join(filter(None, [name, part.name]))
    write_bytes(folder / "plots" / f"{name}.png", plot.light)
    write_bytes(folder / "plots" / f"{name}_dark.png", plot.dark)
    return plot


def render(page: str, **values: Any) -> str:
    """One of our pages, with the style and the script in it."""
    return str(environment().get_template(page).render(**values))


def environment() -> Environment:
    """What our templates are read with."""
    made = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["data_uri"] = data_uri
    made.filters["breakable"] = breakable
    for name in ("style", "script"):  # our own files, so they are not escaped
        suffix = {"style": "css", "script": "js"}[name]
        made.globals[name] = Markup((HERE / f"report.{suffix}").read_text(encoding="utf-8"))
    return made


def breakable(text: str) -> Markup:
    """Text whose lines may also break behind an underscore or a slash, as names have them."""
    return Markup("").join(escape(part) + Markup("<wbr>") * (part in ("_", "/")) for part in re.split("([_/])", text))


def data_uri(data: bytes, kind: str) -> str:
    """The bytes as a ``data:`` address."""
    return f"data:{kind};base64,{b64encode(data).decode()}"


def _plot(part: Figure) -> Plot:
    drawn = {}
    for theme in THEMES:
        with drawing(theme):
            drawn[theme.name] = png(part.draw(theme))
    return Plot(caption=part.caption, words=part.words, light=drawn[LIGHT.name], dark=drawn[DARK.name])


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


def _trained(results: Sequence[Result], about: About) -> list[dict[str, Any]]:
    """The command that trained each head that is no baseline."""
    found = {item["name"]: item for result in results for item in result["contenders"] if item["role"] != "baseline"}
    own = about.command.replace("stage=evaluate", "stage=train_head")
    other = shlex.join(word for word in shlex.split(own) if not word.startswith("head="))
    commands = {
        name: own if item["role"] == "head" else f"{other} head={name.split()[0]}" for name, item in found.items()
    }
    return [{"name": name, "seeds": found[name]["seeds"], "command": said} for name, said in commands.items()]


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
