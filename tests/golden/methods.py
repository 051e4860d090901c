"""The pages of docs/methods/: what each head's file, config class and settings say, as Markdown.

``python tests/golden/regenerate.py`` writes them; nothing in them is written by hand.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import torch

from cluster.compose import CONFIGS, options
from cluster.describe import describe
from pipeline.heads import head_class, head_names, make_head
from pipeline.heads.base import Head, LinearClassifier, Summary

WIDTH, CLASSES = 1280, 1000
PARAGRAPHS = ("Deviations:", "Cost:")


def settings_of(name: str) -> dict[str, str]:
    """File in configs/head/ → the comment at its top, of those that are of this method; the one of its name first."""
    found = {}
    for option in sorted(options("head"), key=lambda option: (option != name, option)):
        text = (CONFIGS / "head" / f"{option}.yaml").read_text(encoding="utf-8")
        if re.search(rf"^kind: {name}$", text, re.MULTILINE):
            found[option] = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return found


def page(name: str) -> str:
    """The page of a head."""
    text = plain(inspect.getdoc(sys.modules[head_class(name).__module__]) or "")
    title, *paragraphs = text.split("\n\n")
    paragraphs = [part for part in paragraphs if not part.startswith("Shape suffixes:")]
    body = [part for part in paragraphs if not part.startswith(PARAGRAPHS)]
    lines = [f"# {name}", "", title, "", *facts(name), "", "\n\n".join(body)]
    for start, heading in zip(PARAGRAPHS, ("Deviations from the source", "Cost, and when to take it"), strict=True):
        for part in paragraphs:
            if part.startswith(start):
                said = part.removeprefix(start).strip()
                lines += ["", f"## {heading}", "", said[:1].upper() + said[1:]]
    return "\n".join([*lines, "", *settings(name), ""])


def facts(name: str) -> list[str]:
    """What a table can say."""
    head = ready(name)
    output = head.eval()(torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(0)))
    others = [f"`{score}`" for score in output.uncertainty if score != output.primary]
    learnt = sum(value.numel() for key, value in head.named_parameters() if key not in head.running)
    held = sum(value.numel() * value.element_size() for value in head.state_dict().values())
    if head.needs.classifier:
        held += 4 * CLASSES * (WIDTH + 1)
    uncertainty = plain((inspect.getdoc(type(head)) or "").split("\n")[0])
    return [
        "| | |",
        "|---|---|",
        f"| try it | `submit stage=[train_head,evaluate] head={next(iter(settings_of(name)))}` |",
        f"| score | `{output.primary}`{'; beside it ' + ', '.join(others) if others else ''} |",
        f"| what it is | {escaped(uncertainty)} |",
        f"| embedding | {'the representation itself' if head.keeps_representation else 'its own'} |",
        f"| reads | {reads(head)} |",
        f"| learnt numbers | {learnt:,} (default settings, D = {WIDTH:,}, {CLASSES:,} classes) |",
        f"| saved | {held / 1e6:,.1f} MB (the same) |",
    ]


def ready(name: str) -> Head:
    """With default settings, for a store of that width and so many classes."""
    head = make_head({"kind": name})
    classifier = LinearClassifier(weight_CD=torch.zeros(CLASSES, WIDTH), bias_C=torch.zeros(CLASSES))
    head.prepare(
        Summary(width=WIDTH, rows=10_000, num_classes=CLASSES, mean_D=torch.zeros(WIDTH), classifier=classifier)
    )
    return head


def reads(head: Head) -> str:
    """What a batch must hold, in words."""
    needs = head.needs
    groups = {
        "uniform": "",
        "class_balanced": f"groups of {needs.rows_per_class} rows of a class",
        "triplets": f"an anchor, a positive and {needs.negatives} negatives ({needs.mining})",
    }
    parts = [
        "labels" if needs.labels else "",
        "task losses" if needs.task_loss else "",
        "the frozen classifier" if needs.classifier else "",
        f"{needs.views} views of a row" if needs.views > 1 else "",
        groups[needs.sampling],
    ]
    said = ", ".join(part for part in parts if part) or "representations alone"
    at_end = "; one pass over all rows at the end" if head.finalises else ""
    return said + ("" if needs.training else "; nothing is trained") + at_end


def settings(name: str) -> list[str]:
    """The config class, and the files with settings of this method."""
    found: Any = head_class(name).Config
    rows = [f"| `{key.name}` | {escaped(key.type)} | `{key.default}` | {escaped(key.doc)} |" for key in describe(found)]
    table = ["| key | type | default | |", "|---|---|---|---|", *rows] if rows else ["None."]
    files = [f"- `head={option}`: {said}" for option, said in settings_of(name).items()]
    return ["## Settings", "", *table, "", "Sets of settings in `configs/head/`:", "", *files]


def escaped(text: str) -> str:
    """Markdown in a cell."""
    return text.replace("|", "\\|")


def plain(text: str) -> str:
    """reStructuredText → Markdown, as far as it is used."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def index() -> str:
    """The list of all methods."""
    rows = []
    for name in head_names():
        title = plain(inspect.getdoc(sys.modules[head_class(name).__module__]) or "").split("\n")[0]
        trained = "" if make_head({"kind": name}).needs.training else "nothing is trained"
        rows.append(f"| [{name}]({name}.md) | {title} | {trained} |")
    return "\n".join(
        [
            "# Methods",
            "",
            "A page a head, written by `make golden` from the head's own file: what its score means, what it costs, "
            "when to take it, where it comes from and what differs.",
            "",
            "| `head=` | | |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def pages() -> dict[str, str]:
    """File in docs/methods/ → its text."""
    return {"README.md": index(), **{f"{name}.md": page(name) for name in head_names()}}
