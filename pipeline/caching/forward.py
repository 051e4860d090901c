"""Backbones over a stream of views, in batches that depend on the unit alone, and what their classifiers say.

Shapes: B views of a batch, R rows, V views of a row, H height, W width, C channels or classes, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from pipeline.backbones import Group
from pipeline.backbones.base import Representation
from pipeline.backbones.normalise import normalise
from pipeline.errors import UserError

Array = NDArray[Any]
BUFFERS = 2  # one is filled while the other one is on its way to the device


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one backbone said of a unit: embedding (R, V, D) float32, scores (R, V) if it has a classifier."""

    embedding_RVD: Array
    scores: dict[str, Array]


@dataclass(kw_only=True)
class _Kept:
    """What one backbone has said so far, on its device."""

    class_indices: Tensor | None  # label → class of its classifier
    width: int
    embedding: list[Tensor] = field(default_factory=list)
    scores: dict[str, list[Tensor]] = field(default_factory=dict)


class Forward:
    """Cuts the stream of views into batches of one size, whatever the number of views, and keeps the results.

    The batch that a view falls into depends on the unit alone, so that the low bits repeat. On a GPU nothing waits:
    pixels are gathered in pinned memory and copied while the batch before is computed; results stay on the device until
    the unit is done.
    """

    def __init__(self, group: Group, class_indices: Sequence[Tensor | None], batch_size: int) -> None:
        """Make the buffers.

        Args:
            group: backbones that share a network and want the same pixels.
            class_indices: for each of them, label → class of its classifier; None = its scores are not wanted.
            batch_size: views a batch.
        """
        self.group = group
        self.batch_size = batch_size
        self._class_indices = [None if index is None else index.to(group.network.device) for index in class_indices]
        size = group.network.preprocessing.size
        pinned = group.network.device.type == "cuda"
        shape = (batch_size, size, size, 3)
        self._pixels = [
            torch.empty(shape, dtype=torch.uint8, pin_memory=pinned) for _ in range(BUFFERS if pinned else 1)
        ]
        self._labels = [torch.empty(batch_size, dtype=torch.long, pin_memory=pinned) for _ in self._pixels]
        self._copied: list[torch.cuda.Event | None] = [None for _ in self._pixels]
        self._turn = 0
        self.begin()

    def begin(self) -> None:
        """Forget everything: a new unit begins."""
        self._filled = 0
        self.halved = 0  # how often a batch did not fit into the device's memory
        self._kept = [
            _Kept(class_indices=index, width=backbone.width)
            for index, backbone in zip(self._class_indices, self.group.members, strict=True)
        ]

    def add(self, pixels_VHWC: Array, label: int) -> None:
        """Take an image's views, uint8, with its label; runs the backbones whenever a batch is full."""
        taken = 0
        while taken < len(pixels_VHWC):
            if self._filled == 0:
                self._await_buffer()
            count = min(len(pixels_VHWC) - taken, self.batch_size - self._filled)
            part = slice(self._filled, self._filled + count)
            self._pixels[self._turn].numpy()[part] = pixels_VHWC[taken : taken + count]
            self._labels[self._turn].numpy()[part] = label
            self._filled += count
            taken += count
            if self._filled == self.batch_size:
                self._run()

    def _await_buffer(self) -> None:
        event = self._copied[self._turn]
        if event is not None:
            event.synchronize()

    @torch.no_grad()
    def _run(self) -> None:
        count, device, turn = self._filled, self.group.network.device, self._turn
        # a compiled network wants every batch to have one size; what stands behind the last view is not kept
        padded = self.batch_size if self.group.network.fixed_batch else count
        pixels_BHWC = self._pixels[turn][:padded].to(device, non_blocking=True)
        label_B = self._labels[turn][:count].to(device, non_blocking=True)
        if device.type == "cuda":
            self._copied[turn] = torch.cuda.Event()
            self._copied[turn].record(torch.cuda.current_stream(device))  # type: ignore[union-attr]
        self._turn = (turn + 1) % len(self._pixels)
        self._filled = 0
        said = self._represent(pixels_BHWC)
        for kept, representation in zip(self._kept, said, strict=True):
            kept.embedding.append(representation.embedding_BD[:count].float())
            if kept.class_indices is not None:
                assert representation.logits_BC is not None, "a backbone with class names gives logits"
                logits_BC = representation.logits_BC[:count]
                for name, value in classifier_scores(logits_BC, label_B, kept.class_indices).items():
                    kept.scores.setdefault(name, []).append(value)

    def _represent(self, pixels_BHWC: Tensor) -> list[Representation]:
        """The backbones' answers; a batch that does not fit into the device's memory is run in halves."""
        try:
            return self.group.represent(normalise(pixels_BHWC, self.group.network.preprocessing))
        except torch.OutOfMemoryError:
            if len(pixels_BHWC) == 1:
                raise UserError(
                    f"{self.group.network.name}: not even one view fits into the free memory of "
                    f"{self.group.network.device}. See what else runs there (nvidia-smi)."
                ) from None
        self.halved += 1
        torch.cuda.empty_cache()
        middle = len(pixels_BHWC) // 2
        first, second = self._represent(pixels_BHWC[:middle]), self._represent(pixels_BHWC[middle:])
        return [_joined(one, other) for one, other in zip(first, second, strict=True)]

    def results(self, views: int) -> list[Said]:
        """What each backbone said of everything added since :meth:`begin`."""
        if self._filled:
            self._run()
        return [_said(kept, views) for kept in self._kept]


def _joined(one: Representation, other: Representation) -> Representation:
    logits_BC = None
    if one.logits_BC is not None and other.logits_BC is not None:
        logits_BC = torch.cat([one.logits_BC, other.logits_BC])
    return Representation(embedding_BD=torch.cat([one.embedding_BD, other.embedding_BD]), logits_BC=logits_BC)


def _said(kept: _Kept, views: int) -> Said:
    if not kept.embedding:
        return Said(embedding_RVD=np.empty((0, views, kept.width), np.float32), scores={})
    flat = torch.cat(kept.embedding).cpu()
    kept.embedding.clear()
    scores = {name: torch.cat(value).cpu().reshape(-1, views).numpy() for name, value in kept.scores.items()}
    return Said(embedding_RVD=flat.reshape(-1, views, kept.width).numpy(), scores=scores)


def classifier_scores(logits_BC: Tensor, labels: Sequence[int] | Tensor, class_indices: Tensor) -> dict[str, Tensor]:
    """What the frozen classifier says of a batch, on the device of its logits.

    Args:
        logits_BC: its logits.
        labels: index into the collection's classes; −1 = unlabelled.
        class_indices: label → class of the classifier.

    Returns:
        ``task_loss`` (B,) float32 in nats (NaN where unlabelled), ``entropy`` (B,) float32 in nats,
        ``top1_correct`` (B,) bool.
    """
    logits_BC = logits_BC.float()
    label_B = torch.as_tensor(labels, device=logits_BC.device)
    target_B = torch.where(label_B >= 0, class_indices[label_B.clamp(min=0)], -100)
    log_probability_BC = logits_BC.log_softmax(dim=1)
    task_loss_B = cross_entropy(logits_BC, target_B, reduction="none", ignore_index=-100)
    return {
        "task_loss": torch.where(label_B >= 0, task_loss_B, torch.nan),
        "entropy": -(log_probability_BC.exp() * log_probability_BC).sum(dim=1),
        "top1_correct": logits_BC.argmax(dim=1) == target_B,
    }
