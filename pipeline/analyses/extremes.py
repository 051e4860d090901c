"""The images that a collection's first head is least and most certain of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses.base import CollectionAnalysis, Values
from pipeline.report.parts import Context, Gallery, Part, Picture

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection

COUNT = 12
GROUPS = {"least_certain": "Least certain", "most_certain": "Most certain"}


class Extremes(CollectionAnalysis):
    """By the experiment's head, at the seed that pictures show; upstream images stay where they are."""

    title = "Least and most certain images"
    about = (
        "By the head that is evaluated. ✓: the nearest neighbour is of the image's class; ✗: it is of the class "
        "that is named. The number is the uncertainty, higher = less sure."
    )
    place = 12
    version = 2  # judged by the relation where there is one; 1 judged by the labels
    open = True

    def measure(self, collection: Collection) -> Values:
        """Contender, seed, ``least_certain`` and ``most_certain``: a list of rows, the most extreme first."""
        item = collection.present[0]
        scores = item.shown
        certain_first = np.argsort(scores.uncertainty[scores.primary], kind="stable")
        rows = {"least_certain": certain_first[::-1][:COUNT], "most_certain": certain_first[:COUNT]}
        listed = {key: [_row(collection, int(index)) for index in indices] for key, indices in rows.items()}
        shown = collection.sources.tars is not None
        for key, items in listed.items():
            for place, row in enumerate(items):
                row["file"] = f"{key}_{place:02d}.jpg" if shown else None
        return {"contender": item.name, "seed": item.shown_seed, **listed}

    def files(self, collection: Collection, values: Values) -> Mapping[str, bytes]:
        """The thumbnails."""
        rows = [row for key in GROUPS for row in values[key] if row["file"]]
        images = collection.thumbnails([row["index"] for row in rows])
        return {row["file"]: images[row["index"]] for row in rows}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """Two galleries."""
        small = f"by {values['contender']}, seed {values['seed']}"
        for key, title in GROUPS.items():
            pictures = [_picture(row) for row in values[key] if row["file"]]
            if pictures:
                yield Gallery(title=title, small=small, pictures=pictures)


def _row(collection: Collection, index: int) -> dict[str, Any]:
    rows, scores = collection.rows, collection.present[0].shown
    retrieval, neighbour = scores.retrieval, int(scores.retrieval.neighbour_N[index])
    return {
        "index": index,
        "key": rows.keys[index],
        "class_name": rows.class_name(index),
        "uncertainty": float(scores.uncertainty[scores.primary][index]),
        "correct": bool(retrieval.correct_N[index]) if retrieval.counted_N[index] else None,
        "neighbour_key": rows.keys[neighbour] if neighbour >= 0 else None,
        "neighbour_class": rows.class_name(neighbour) if neighbour >= 0 else None,
    }


def _picture(row: Mapping[str, Any]) -> Picture:
    kind = {None: "unjudged", True: "right", False: "wrong"}[row["correct"]]
    said = {"unjudged": "not judged", "right": "✓ right", "wrong": f"✗ {row['neighbour_class']}"}[kind]
    name = row["class_name"] or "unlabelled"
    return Picture(
        file=row["file"],
        title=name,
        note=f"{said} · {row['uncertainty']:#.3g}",
        words=f"{name}, {row['key']}",
        kind=kind,
    )
