"""The backbone over a stream of views, in batches that depend on the unit alone, and its classifier's scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from pipeline.backbones.base import Backbone
from pipeline.backbones.normalise import normalise

Array = NDArray[Any]


class Forward:
    """Cuts the stream of views into batches of one size, whatever the number of views, and keeps the results.

    The batch that a view falls into depends on the unit alone, so that the low bits repeat.
    """

    def __init__(self, backbone: Backbone, batch_size: int, class_indices: Tensor | None) -> None:
        self.backbone = backbone
        self.batch_size = batch_size
        self.class_indices = class_indices
        self.pixels: list[Array] = []
        self.labels: list[int] = []
        self.embedding: list[Tensor] = []
        self.scores: dict[str, list[Tensor]] = {"task_loss": [], "entropy": [], "top1_correct": []}

    def add(self, pixels_VHWC: Array, label: int) -> None:
        """Take an image's views, uint8, with its label; runs the backbone whenever a batch is full."""
        self.pixels.extend(pixels_VHWC)
        self.labels.extend([label] * len(pixels_VHWC))
        while len(self.pixels) >= self.batch_size:
            self._run(self.batch_size)

    def _run(self, count: int) -> None:
        batch, self.pixels = self.pixels[:count], self.pixels[count:]
        labels, self.labels = self.labels[:count], self.labels[count:]
        pixels_BHWC = torch.from_numpy(np.stack(batch)).to(self.backbone.device, non_blocking=True)
        images_BCHW = normalise(pixels_BHWC, self.backbone.preprocessing)
        result = self.backbone.represent(images_BCHW)
        self.embedding.append(result.embedding_BD.float().cpu())
        if self.class_indices is not None:
            assert result.logits_BC is not None, "a backbone with class names gives logits"
            for name, value in classifier_scores(result.logits_BC, labels, self.class_indices).items():
                self.scores[name].append(value)

    def results(self, views: int) -> tuple[Array, dict[str, Array]]:
        """Embedding (R, V, D) float32 and scores (R, V) of everything added; no scores without a classifier."""
        if self.pixels:
            self._run(len(self.pixels))
        if not self.embedding:
            return np.empty((0, views, self.backbone.width), np.float32), {}
        flat = torch.cat(self.embedding)
        scores = {name: torch.cat(value).reshape(-1, views).numpy() for name, value in self.scores.items() if value}
        return flat.reshape(-1, views, flat.shape[1]).numpy(), scores


def classifier_scores(logits_BC: Tensor, labels: list[int], class_indices: Tensor) -> dict[str, Tensor]:
    """What the frozen classifier says of a batch.

    Args:
        logits_BC: its logits.
        labels: index into the collection's classes; −1 = unlabelled.
        class_indices: label → class of the classifier.

    Returns:
        ``task_loss`` (B,) float32 in nats (NaN where unlabelled), ``entropy`` (B,) float32 in nats,
        ``top1_correct`` (B,) bool.
    """
    logits_BC = logits_BC.float().cpu()
    label_B = torch.tensor(labels)
    target_B = torch.where(label_B >= 0, class_indices[label_B.clamp(min=0)], -100)
    log_probability_BC = logits_BC.log_softmax(dim=1)
    task_loss_B = cross_entropy(logits_BC, target_B, reduction="none", ignore_index=-100)
    return {
        "task_loss": torch.where(label_B >= 0, task_loss_B, torch.nan),
        "entropy": -(log_probability_BC.exp() * log_probability_BC).sum(dim=1),
        "top1_correct": logits_BC.argmax(dim=1) == target_B,
    }
