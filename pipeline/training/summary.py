"""What a head is told of a store before it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pipeline.backbones import make_backbone
from pipeline.heads import make_head
from pipeline.heads.base import LinearClassifier, Needs, Summary
from pipeline.places import Place
from pipeline.probing.saved import load_probe
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader, Reading

MOMENT_ROWS = 1 << 16  # mean and scale are estimated from at most so many rows, so that a large store starts as fast


def summarise(store: RepresentationStore, classifier: LinearClassifier | None = None) -> Summary:
    """Width, rows, classes, mean and scale of the committed rows of ``store``.

    Of a limited store, mean and scale are of the rows that take part; rows and classes are those of the whole, which
    row numbers and labels index.

    Args:
        store: what is summarised.
        classifier: the frozen classifier over its representations, if there is one.

    Returns:
        ``mean_D`` float32; ``scale`` is the root mean square of the centred values. Both are of one view of the first
        65,536 rows of a fixed shuffle (all rows of a smaller store).
    """
    reader = BatchReader(store, Needs(), Reading(batch_size=4096, window=1 << 14))
    count, sum_D, square = 0, torch.zeros(store.layout.width, dtype=torch.float64), 0.0
    for batch in reader.once(MOMENT_ROWS):
        representation_BD = batch.representation_BVD[:, 0].double()
        count += len(representation_BD)
        sum_D += representation_BD.sum(dim=0)
        square += float(representation_BD.square().sum())
    mean_D = sum_D / count
    variance = square / (count * store.layout.width) - float(mean_D.square().mean())
    return Summary(
        width=store.layout.width,
        rows=sum(store.counts().values()),
        num_classes=len(store.class_names),
        class_names=store.class_names,
        mean_D=mean_D.float(),
        scale=max(variance, 0.0) ** 0.5,
        classifier=classifier,
    )


def frozen_classifier(probe: Place | None, backbone: Mapping[str, Any]) -> LinearClassifier | None:
    """The classifier over a backbone's representations: a probe on all rows, or the backbone's own, which it may lack.

    Args:
        probe: folder of the probe; None = the backbone's own classifier.
        backbone: as for :func:`pipeline.backbones.make_backbone`.

    Raises:
        UserError: there is no probe, or it is damaged.
    """
    return make_backbone(backbone).classifier() if probe is None else load_probe(probe)


def classifier_for(
    head: Mapping[str, Any], probe: Place | None, backbone: Mapping[str, Any]
) -> LinearClassifier | None:
    """:func:`frozen_classifier` for a head that needs it; None for another."""
    return frozen_classifier(probe, backbone) if make_head(head).needs.classifier else None
