"""What a backbone is: frozen, it turns a normalised image into the representation its classifier would see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pipeline.heads.base import LinearClassifier
from pipeline.images.preprocessing import Preprocessing


@dataclass(frozen=True, kw_only=True)
class Representation:
    """What one batch gives: ``embedding_BD`` and ``logits_BC`` float32 (None: the backbone has no class head)."""

    embedding_BD: Tensor
    logits_BC: Tensor | None


class Backbone(ABC):
    """A frozen network, in eval mode, on one device."""

    name: str
    width: int
    preprocessing: Preprocessing
    weights_sha256: str  # of the weights file, or of the state dict where there is no file
    class_names: tuple[str, ...] | None  # what its class head predicts; None: it has none
    device: torch.device

    @abstractmethod
    def represent(self, images_BCHW: Tensor) -> Representation:
        """Embedding and logits of normalised float32 images, given on any device, on the backbone's device."""

    @abstractmethod
    def classifier(self) -> LinearClassifier | None:
        """The last linear layer, so that ``logits = embedding @ weight.T + bias``; None where there is none."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Name, loader, weights sha256, preprocessing, compute dtype: plain values for the run record."""

    @abstractmethod
    def state_dict(self) -> Mapping[str, Tensor]:
        """Its weights, for a release that carries them."""
