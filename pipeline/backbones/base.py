"""What a backbone is: a frozen network and a tap on it, which turn a normalised image into one vector.

Shapes: B images, D width of the tap, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import linear

from pipeline.backbones.tap import Tap
from pipeline.files import sha256_file
from pipeline.heads.base import LinearClassifier
from pipeline.images.preprocessing import Preprocessing


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What one image told of a tap.

    Attributes:
        tap: the same tap by its plainest name: the last layer is ``LAST``.
        width: D.
        feeds_classifier: whether it is, bit for bit, what the network's own classifier reads.
    """

    tap: Tap
    width: int
    feeds_classifier: bool


@dataclass(frozen=True, kw_only=True)
class Representation:
    """What one batch gives: ``embedding_BD`` and ``logits_BC`` float32 (None: nothing classifies this embedding)."""

    embedding_BD: Tensor
    logits_BC: Tensor | None


class Network(ABC):
    """A frozen network, in eval mode, on one device; the taps on it share it.

    The file's name is the source's name: ``backbone.source=<name>`` finds ``pipeline/backbones/sources/<name>.py``. A
    subclass defines a nested ``Config`` (a :class:`~pipeline.backbones.settings.BackboneConfig` with what this source
    needs beside) and takes ``(config, carried)``; ``carried`` is its state dict where a release carries the weights.

    Attributes:
        config: what it was made of.
        class_names: what its classifier predicts; None: it has none, or its classes are not known.
        weights_sha256: of the weights file, or of the state dict where there is no file.
        fixed_batch: whether it wants all batches of one size, because another size costs a new compilation.
    """

    Config: ClassVar[type[Any]]

    config: Any
    name: str
    preprocessing: Preprocessing
    weights_sha256: str
    class_names: tuple[str, ...] | None
    device: torch.device
    fixed_batch: bool = False

    @abstractmethod
    def embed(self, images_BCHW: Tensor, taps: Sequence[Tap]) -> list[Tensor]:
        """The float32 embedding (B, D) of each tap, on the device, from one pass; it never waits for the device.

        What one tap gives does not depend on which others are asked for with it, to the bit.
        """

    @abstractmethod
    def try_tap(self, tap: Tap) -> Tried:
        """Look at a tap on one image.

        Raises:
            UserError: there is no such layer, or it cannot be pooled so.
        """

    @abstractmethod
    def classifier(self) -> LinearClassifier | None:
        """The last linear layer, float32 on the device; None where there is none."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Name, source, weights sha256, preprocessing, how it computes: plain values for the run record."""

    @abstractmethod
    def state_dict(self) -> Mapping[str, Tensor]:
        """Its weights on the CPU, for a release that carries them.

        Raises:
            UserError: they say nothing without the file they came in.
        """

    def moved(self, device: str) -> Network:
        """The same network on another device.

        Raises:
            UserError: there is no such device, or its file is needed again and is not there.
        """
        return type(self)(replace(self.config, device=device), self.state_dict())  # type: ignore[call-arg]

    @classmethod
    def file_sha256(cls, path: Path) -> str:
        """What ``weights_sha256`` is of a network made of this file, which is read as bytes and not opened."""
        return sha256_file(path)

    @classmethod
    def licence(cls, config: Any) -> tuple[str, str]:
        """Of the weights: an SPDX identifier in lower case or ``unknown``, and who says so."""
        return "unknown", "nobody"


class Backbone:
    """A network and a tap on it.

    Attributes:
        width: D of its embedding.
        class_names: of the classifier over the embedding; None: there is none, or its classes are not known.
    """

    def __init__(self, network: Network, tap: Tap) -> None:
        tried = network.try_tap(tap)
        self.network = network
        self.tap = tried.tap
        self.width = tried.width
        self.name = network.name
        self.preprocessing = network.preprocessing
        self.weights_sha256 = network.weights_sha256
        self.device = network.device
        self.fixed_batch = network.fixed_batch
        self.class_names = network.class_names if tried.feeds_classifier else None
        self._classifier = network.classifier() if tried.feeds_classifier else None

    def represent(self, images_BCHW: Tensor) -> Representation:
        """Embedding and logits of normalised images.

        Args:
            images_BCHW: float32, (B, 3, size, size), on any device.

        Returns:
            ``embedding_BD`` and ``logits_BC``, float32 on the backbone's device, perhaps still being computed, and not
            looked at: they may hold NaN. The logits are computed from this very embedding, in float32.
        """
        return Group((self,)).represent(images_BCHW)[0]

    def classifier(self) -> LinearClassifier | None:
        """The last linear layer, so that ``logits = embedding @ weight.T + bias``; None where there is none."""
        return self._classifier

    def describe(self) -> Mapping[str, Any]:
        """What decides the embedding, as plain values."""
        return {
            **self.network.describe(),
            "layer": self.tap.layer,
            "pooling": self.tap.pooling,
            "width": self.width,
            "num_classes": 0 if self._classifier is None else len(self._classifier.bias_C),
        }

    def state_dict(self) -> Mapping[str, Tensor]:
        """The weights of its network, on the CPU."""
        return self.network.state_dict()

    def moved(self, device: str) -> Backbone:
        """The same tap on the same network, on another device.

        Raises:
            UserError: as for :meth:`Network.moved`.
        """
        return Backbone(self.network.moved(device), self.tap)


@dataclass(frozen=True)
class Group:
    """Backbones that are taps on one network, and so share its preprocessing and device and one pass an image."""

    members: tuple[Backbone, ...]

    @property
    def network(self) -> Network:
        """The one they share."""
        return self.members[0].network

    @torch.no_grad()
    def represent(self, images_BCHW: Tensor) -> list[Representation]:
        """The representation by each member, in their order, from one pass; as :meth:`Backbone.represent` gives it."""
        embeddings = self.network.embed(images_BCHW, [member.tap for member in self.members])
        return [
            Representation(embedding_BD=embedding_BD, logits_BC=_logits(member.classifier(), embedding_BD))
            for member, embedding_BD in zip(self.members, embeddings, strict=True)
        ]


def _logits(classifier: LinearClassifier | None, embedding_BD: Tensor) -> Tensor | None:
    return None if classifier is None else linear(embedding_BD, classifier.weight_CD, classifier.bias_C)


def groups(backbones: Iterable[Backbone]) -> list[Group]:
    """Backbones by the network they share, in order of their first member."""
    found: dict[int, list[Backbone]] = {}
    for backbone in backbones:
        found.setdefault(id(backbone.network), []).append(backbone)
    return [Group(tuple(members)) for members in found.values()]
