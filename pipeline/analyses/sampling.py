"""Is the class that samples of a posterior agree on right as often as they agree? (Warburg et al., LAM, Eq. 121.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, NotApplicable, Values
from pipeline.report.look import HEADS
from pipeline.report.parts import Context, Figure, Part, Words

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.heads.base import Head
    from pipeline.report.style import Theme

SAMPLES = 16
ROWS = 2000  # at most, so that it stays quick: evenly spread over the labelled ones


class Sampling(CollectionAnalysis):
    """Of heads with a posterior: the error at each seed, the curve at that which pictures show."""

    title = "Calibration of posterior samples"
    about = (
        f"{SAMPLES} embeddings of each image are drawn; each draw says the class of the nearest other image. The share "
        "of draws that agree is the confidence. Sampling ECE: mean difference between it and how often the class is "
        "right (Warburg et al., Bayesian metric learning, Eq. 121); lower is better."
    )
    place = 24
    version = 2  # the error at all seeds; 1 had one
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """Rows; contender → ECE and reliability curve."""
        from pipeline.heads.base import Head
        from pipeline.metrics.calibration import reliability

        label_N = collection.rows.label_N
        row_R = np.flatnonzero(collection.present[0].shown.retrieval.counted_N & (label_N >= 0))
        if not len(row_R):
            raise NotApplicable("its images have no class that samples could agree on")
        row_R = row_R[np.unique(np.linspace(0, len(row_R) - 1, min(ROWS, len(row_R))).astype(int))]
        numbers, curves = {}, {}
        for item in collection.present:
            heads = {seed: collection.head(item.name, seed) for seed in item.seeds}
            if any(type(head).sample is Head.sample for head in heads.values()):
                continue
            found = {seed: _consensus(head, collection, row_R) for seed, head in heads.items()}
            known = {seed: reliability(one[1], one[0] == label_N[row_R]) for seed, one in found.items() if one}
            if len(known) == len(heads):
                shown = known[item.shown_seed]
                numbers[item.name] = collection.numbers({"ece": curve.error} for curve in known.values())
                curves[item.name] = {"confidence": shown.confidence_B.tolist(), "outcome": shown.outcome_B.tolist()}
        if not numbers:
            raise NotApplicable("no method here has a posterior to draw from")
        return {"rows": len(row_R), "numbers": numbers, "curves": curves}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A table and the curves."""
        columns: Any = {"Sampling ECE": ("ece", "low")}
        yield contender_table(f"Sampling ECE on {context.title}", values["numbers"], columns, context)
        said = [f"{name} {found['ece']['median']:.3f}" for name, found in values["numbers"].items()]
        yield Figure(
            caption="How often the class that the samples agree on is right, against the share that agrees; on the "
            "dotted line it is calibrated."
            + context.one_seed(values["curves"])
            + context.look.left_out(list(values["curves"])),
            words=f"Reliability of samples on {context.title}; sampling ECE: {', '.join(said)}.",
            draw=lambda theme: _draw(values["curves"], context, theme),
        )
        yield Words(text=f"{values['rows']:,} images.")


def _consensus(head: Head, collection: Collection, row_R: Any) -> tuple[Any, Any] | None:
    """The class that the samples agree on, and the share that does; None: this head has no posterior after all."""
    import torch

    from pipeline.metrics.calibration import consensus
    from pipeline.metrics.nearest import nearest_neighbour

    representation_RD = torch.from_numpy(collection.rows.representation_ND[row_R]).to(collection.sources.device)
    generator = torch.Generator(device=collection.sources.device).manual_seed(0)
    label_R = collection.rows.label_N[row_R]
    prediction = []
    with torch.inference_mode():
        try:
            for _ in range(SAMPLES):  # one by one: all of them at once may be gigabytes
                sample_RE = head.sample(representation_RD, 1, generator)[0].float().cpu().numpy()
                nearest_R = nearest_neighbour(sample_RE, metric=collection.result["metric"])
                prediction.append(np.where(nearest_R >= 0, label_R[nearest_R], -1))
        except NotImplementedError:
            return None
    return consensus(np.array(prediction))


def _draw(curves: Any, context: Context, theme: Theme) -> Drawing:
    from pipeline.report.style import figure, legend

    made = figure(3.3)
    axes = made.subplots()
    axes.plot([0, 1], [0, 1], color=theme.ink, linestyle=(0, (1, 2)), linewidth=1.1, label="calibrated")
    names = context.look.drawn(list(curves)) or list(curves)[:HEADS]
    for name in names:
        line = context.look.line(name, theme)
        axes.plot(curves[name]["confidence"], curves[name]["outcome"], marker="o", markersize=4, **line)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("share of the samples that agree")
    axes.set_ylabel("share that is right")
    legend(made, len(names) + 1)
    return made
