"""One sample of a tar → its label and its views, for one or more backbones: the work of a decoding worker.

An image is decoded once, whatever the number of views and backbones. Nothing here needs torch.

Shapes: V views, H height, W width, C = 3 channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from PIL import Image

from pipeline.faults import BadSample, Quarantined
from pipeline.images.augmentation import AugmentationConfig
from pipeline.images.decode import use_decoded
from pipeline.images.preprocessing import Preprocessing
from pipeline.images.tars import TarSample, label_of
from pipeline.images.views import ViewsOfImage, make_views


@dataclass(frozen=True, kw_only=True)
class ViewPlan:
    """What is made of every image; plain, so that it can be sent to another process.

    Attributes:
        class_names: the index of a name is its label.
        unlabelled: what a sample without a label is.
        views: names of the views, the same for every backbone.
        seed: of the random views.
        augmentation: of the random views.
        preprocessings: one a group of backbones that want the same pixels.
    """

    class_names: tuple[str, ...]
    unlabelled: Literal["refused", "unlabelled"]
    views: tuple[str, ...]
    seed: int
    augmentation: AugmentationConfig
    preprocessings: tuple[Preprocessing, ...]

    @cached_property
    def labels(self) -> Mapping[str, int]:
        """Class name → label."""
        return {name: label for label, name in enumerate(self.class_names)}

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """(V, H, W, C) of the pixels for each preprocessing."""
        return tuple((len(self.views), p.size, p.size, 3) for p in self.preprocessings)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One sample on its way: its views for each preprocessing of the plan, or why it is left out."""

    key: str
    label: int = -1
    views: Sequence[ViewsOfImage] = field(default=())
    reason: str = ""


def prepare(sample: TarSample | Quarantined, plan: ViewPlan) -> Prepared:
    """Decode a sample and make its views; what is wrong with it becomes its ``reason`` and is not raised."""
    if not isinstance(sample, TarSample):
        return Prepared(key=sample.key, reason=sample.reason)
    try:
        label = label_of(sample, plan.labels, absent=plan.unlabelled)
        views = use_decoded(sample.data, lambda image: _views(image, sample.key, plan))
    except BadSample as error:
        return Prepared(key=sample.key, reason=str(error))
    return Prepared(key=sample.key, label=label, views=views)


def _views(image: Image.Image, key: str, plan: ViewPlan) -> list[ViewsOfImage]:
    return [
        make_views(
            image,
            key,
            views=plan.views,
            seed=plan.seed,
            preprocessing=preprocessing,
            augmentation=plan.augmentation,
        )
        for preprocessing in plan.preprocessings
    ]
