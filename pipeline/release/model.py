"""A released model in use: ``embedding, uncertainty = model(images)``.

Shapes: B images, E width of the embedding, size = side of the backbone's input.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline.backbones import SOURCES, make_backbone, network_class
from pipeline.backbones.base import Backbone
from pipeline.backbones.normalise import normalise
from pipeline.discovery import module_of
from pipeline.errors import UserError
from pipeline.heads.base import Head, HeadOutput
from pipeline.release.bundle import Bundle, how_to_load, read_bundle
from pipeline.release.inputs import Images, OneImage, as_items
from pipeline.release.preprocess import Preprocess
from pipeline.training.checkpoints import restore_head

_ONE_AT_A_TIME = RLock()


class Prediction(NamedTuple):
    """``embedding`` float32 (B, E), and ``uncertainty`` float32 (B,): higher means less sure."""

    embedding: Tensor
    uncertainty: Tensor


class ReleasedModel:
    """A frozen backbone and its head, ready for images. Made by :func:`load_model`.

    Attributes:
        config: what the bundle says of itself: head, backbone, results, self-check.
        batch_size: images a batch, at least 1; memory and speed, and of the results the low bits alone.
    """

    def __init__(self, *, backbone: Backbone, head: Head, config: Mapping[str, Any], batch_size: int = 32) -> None:
        self.backbone = backbone
        self.head = head.to(backbone.device).eval()
        self.config = config
        self.batch_size = batch_size

    def __call__(self, images: Images) -> Prediction:
        """Embedding and uncertainty of images, on the model's device, without gradients.

        Args:
            images: one path or PIL image, or a list of them; uint8 pixels (B, H, W, 3) or (B, 3, H, W); or floats
                (B, 3, size, size) made with :attr:`preprocess`. See :mod:`pipeline.release.inputs`.

        Raises:
            UserError: images that could be meant in two ways, a file that cannot be read or decoded, or an embedding
                that is not finite.
        """
        outputs = self._outputs(images)
        return Prediction(
            embedding=torch.cat([output.embedding_BE.float() for output in outputs]),
            uncertainty=torch.cat([output.uncertainty_B.float() for output in outputs]),
        )

    def scores(self, images: Images) -> dict[str, Tensor]:
        """Every uncertainty that the head gives, by name: float32 (B,), higher means less sure.

        Raises:
            UserError: as for a call.
        """
        outputs = self._outputs(images)
        return {
            name: torch.cat([output.uncertainty[name].float() for output in outputs]) for name in outputs[0].uncertainty
        }

    @property
    def preprocess(self) -> Preprocess:
        """A callable: one path or PIL image → what the backbone wants, float32 (3, size, size) on the CPU.

        It does what the evaluation did, and holds nothing of the network: give it to a ``Dataset``.
        """
        return Preprocess(self.backbone.preprocessing)

    @property
    def batch_size(self) -> int:
        """Images a batch.

        Raises:
            UserError: when set to what is no whole number of at least 1.
        """
        return self._batch_size

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        try:
            size = 0 if isinstance(value, bool) else operator.index(value)  # integers of NumPy too
        except TypeError:
            size = 0
        if size < 1:
            raise UserError(f"batch_size: {value!r} must be a whole number of at least 1: images a batch.")
        self._batch_size = size

    @property
    def device(self) -> torch.device:
        """Where it computes, and where its results are."""
        return self.backbone.device

    def to(self, device: str | torch.device) -> ReleasedModel:
        """Move to another device; the model itself is returned.

        Raises:
            UserError: there is no such device here, or the file that the backbone is read from anew is not there.
        """
        with _our_device(), _float32():
            self.backbone = self.backbone.moved(str(device))
        self.head = self.head.to(self.backbone.device)
        return self

    def __repr__(self) -> str:
        head = self.config["head"]
        return (
            f"ReleasedModel(head={head['head']['kind']} (seed {head['seed']}), backbone={self.backbone.name}, "
            f"width={self.backbone.width}, size={self.backbone.preprocessing.size}, device={self.device})"
        )

    @torch.no_grad()
    def _outputs(self, images: Images) -> list[HeadOutput]:
        # the caller's autocast would round what was evaluated in float32
        with _our_device(), torch.autocast(self.device.type, enabled=False):
            items = as_items(images, self.backbone.preprocessing)
            return [self.head(self._represented(batch)) for batch in self._batches(items)]

    def _represented(self, batch_BCHW: Tensor) -> Tensor:
        embedding_BD = self.backbone.represent(batch_BCHW).embedding_BD
        if not embedding_BD.isfinite().all():
            raise UserError(
                f"images: the embedding that {self.backbone.name} gives of an image is not finite. "
                "Were the images normalised as model.preprocess(…) does it?"
            )
        return embedding_BD

    def _batches(self, items: Sequence[OneImage] | Tensor) -> Iterator[Tensor]:
        for start in range(0, len(items), self.batch_size):
            end = min(start + self.batch_size, len(items))
            if isinstance(items, Tensor):
                yield items[start:end]
            else:  # one by one: not every sequence has slices
                pixels_BHWC = torch.stack([self.preprocess.pixels(items[at], at) for at in range(start, end)])
                yield normalise(pixels_BHWC.to(self.device), self.backbone.preprocessing)


def load_model(
    folder: Path,
    *,
    device: str | torch.device = "cpu",
    backbone_weights: Path | None = None,
    trusted: bool = False,
) -> ReleasedModel:
    """Load a released model; every hash is checked and no pickle is read, unless ``trusted`` permits one.

    Args:
        folder: the bundle.
        device: where to compute.
        backbone_weights: file of the backbone's weights, where the bundle does not carry them and they come from a
            file; its SHA-256 must be the one that the bundle names.
        trusted: that file may be one that torch reads with pickle, which runs the code in it.

    Raises:
        UserError: no bundle there, another version, damaged files; a backbone that cannot be had or has other weights.
    """
    bundle = read_bundle(folder)
    try:
        with _our_device(), _float32():
            with _of_another(folder, "head", "pipeline/heads"):
                head = restore_head(bundle.config["head"], bundle.tensors)
            backbone = _backbone(folder, bundle, device, backbone_weights, trusted)
    except (KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{folder}: the bundle is whole, but does not fit this Hedgerow ({error}).") from error
    return ReleasedModel(backbone=backbone, head=head, config=bundle.config)


@contextmanager
def _float32() -> Iterator[None]:
    """Networks are made in float32, whatever whoever loads one has set for networks of their own."""
    with _ONE_AT_A_TIME:  # what is set is set for all threads
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def _our_device() -> AbstractContextManager[Any]:
    """Tensors are made on the CPU, as everywhere here, also where the caller has set another default device."""
    here = torch.device("cpu")
    return nullcontext() if torch.get_default_device() == here else here


@contextmanager
def _of_another(folder: Path, part: str, place: str) -> Iterator[None]:
    """Say of what this Hedgerow does not know that it is another's, or a file of whoever released the bundle."""
    try:
        yield
    except UserError as error:
        raise UserError(
            f"{folder}: this Hedgerow cannot make its {part}: {error} Load it with the Hedgerow that released it; a "
            f"{part} that is not part of Hedgerow is a file of whoever released it, which belongs into {place}."
        ) from error


def _backbone(
    folder: Path, bundle: Bundle, device: str | torch.device, weights: Path | None, trusted: bool
) -> Backbone:
    facts = bundle.config["backbone"]
    values = {**facts["values"], "device": str(device)}
    with _of_another(folder, "backbone", SOURCES.replace(".", "/")):
        module_of(SOURCES, values["source"], "backbone source")
    if facts["carried"]:
        return make_backbone(values, carried=bundle.part("backbone"))
    if values.get("path") is not None:
        return make_backbone({**values, **_file(folder, facts, weights, trusted)})
    if weights is not None:
        raise UserError(
            f"{folder}: backbone_weights: the weights of {facts['name']} come from no file, so {weights} would not be "
            "read. The model card says where they come from; leave backbone_weights out."
        )
    backbone = make_backbone(values)
    if backbone.weights_sha256 != facts["weights_sha256"]:
        raise UserError(
            f"{folder}: the backbone {facts['name']} that was found has other weights than the head was trained on "
            f"(SHA-256 {backbone.weights_sha256[:12]}…, not {facts['weights_sha256'][:12]}…). "
            "Install the version that the model card names."
        )
    return backbone


def _file(folder: Path, facts: Mapping[str, Any], weights: Path | None, trusted: bool) -> dict[str, Any]:
    """The values that name the backbone's file, which is compared before anything opens it."""
    values = facts["values"]
    if weights is None:
        raise UserError(
            f"{folder}: the bundle does not carry the weights of its backbone {facts['name']}. Get the file "
            f"{values['path']} and load with {how_to_load(folder, facts)}; its SHA-256 must be "
            f"{facts['weights_sha256']}."
        )
    if not weights.is_file():
        raise UserError(f"backbone_weights: no file at {weights}.")
    if "trusted" in values and not trusted:  # whoever loads it says so, not whoever released it
        raise UserError(
            f"{folder}: torch reads {weights} with pickle, which runs the code in it. If you made the file or trust "
            f"whoever did, load with {how_to_load(folder, facts, weights)}."
        )
    found = network_class(values).file_sha256(weights)
    if found != facts["weights_sha256"]:
        raise UserError(
            f"{folder}: {weights} has other weights than those the head was trained on (SHA-256 {found[:12]}…, not "
            f"{facts['weights_sha256'][:12]}…). Get the file {values['path']} that it was trained with."
        )
    return {"path": str(weights.absolute()), **({"trusted": True} if "trusted" in values else {})}
