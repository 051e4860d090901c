"""A list to look through: the images of a collection, the most uncertain first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pipeline.analyses.base import CollectionAnalysis, Values
from pipeline.report.parts import Cell, Context, Download, Part, Table

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection

FILE = "most_uncertain.csv"
LISTED = 2000
SHARE = 0.1
CLASSES = 15


class Curation(CollectionAnalysis):
    """By the primary uncertainty of the first contender, at the seed that pictures show."""

    title = "Images to look at first"
    about = (
        f"The {LISTED:,} most uncertain images as a file of keys, and the classes with the largest share of their "
        "images in the least certain tenth of all: mislabelled, cropped, ambiguous or simply hard ones are among them."
    )
    place = 33
    version = 3  # no name is a formula; 2: judged by the relation where there is one

    def measure(self, collection: Collection) -> Values:
        """How many are listed; the classes, the largest share first: ``{name, images, uncertain}``."""
        import numpy as np

        from pipeline.metrics.safe_retrieval import least_certain

        item, rows = collection.present[0], collection.rows
        least_N = least_certain(item.shown.uncertainty[item.shown.primary], SHARE)
        classes = []
        for label in np.unique(rows.label_N[rows.label_N >= 0]).tolist():
            of_N = rows.label_N == label
            classes.append((int((of_N & least_N).sum()), int(of_N.sum()), rows.class_names[label]))
        classes.sort(key=lambda one: (-one[0] / one[1], -one[1], one[2]))
        return {
            "contender": item.name,
            "seed": item.shown_seed,
            "listed": min(LISTED, len(rows.keys)),
            "rows": len(rows.keys),
            "classes": [
                {"name": name, "images": images, "uncertain": least} for least, images, name in classes[:CLASSES]
            ],
        }

    def files(self, collection: Collection, values: Values) -> Mapping[str, bytes]:
        """The list: place, key, class, uncertainty, share of images that are less certain, neighbour and its class."""
        import csv
        import io

        import numpy as np

        from pipeline.report.escape import spreadsheet

        scores, rows = collection.present[0].shown, collection.rows
        uncertainty_N = scores.uncertainty[scores.primary]
        ascending_N = np.sort(uncertainty_N)
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(
            ("place", "key", "class", "uncertainty", "less_certain", "neighbour", "neighbour_class", "neighbour_right")
        )
        for place, row in enumerate(np.argsort(-uncertainty_N, kind="stable")[:LISTED].tolist(), start=1):
            value, near = float(uncertainty_N[row]), int(scores.retrieval.neighbour_N[row])
            less = 1 - np.searchsorted(ascending_N, value, side="right") / len(ascending_N)
            right = str(bool(scores.retrieval.correct_N[row])).lower() if scores.retrieval.counted_N[row] else ""
            neighbour = (rows.keys[near], rows.class_name(near) or "") if near >= 0 else ("", "")
            name = rows.class_name(row) or ""
            texts = [spreadsheet(text) for text in (rows.keys[row], name, *neighbour)]
            writer.writerow((place, *texts[:2], repr(value), f"{less:.6f}", *texts[2:], right))
        return {FILE: buffer.getvalue().encode()}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """The file, and the classes."""
        of = "all" if values["listed"] == values["rows"] else f"the first {values['listed']:,} of {values['rows']:,}"
        yield Download(file=FILE, words=f"{of} images by {values['contender']}, seed {values['seed']}.")
        if values["classes"]:
            rows = [
                [
                    Cell(text=one["name"], value=one["name"]),
                    Cell(text=f"{one['images']:,}", value=one["images"]),
                    Cell(text=f"{one['uncertain'] / one['images']:.0%}", value=one["uncertain"] / one["images"]),
                ]
                for one in values["classes"]
            ]
            columns = ("Class", "Images", "In the least certain tenth")
            yield Table(caption=f"Classes of {context.title} with uncertain images", columns=columns, rows=rows)
