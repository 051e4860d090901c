"""What a release must show before it counts: the backbone's own embedding, and the uncertainties that were evaluated.

Shapes: B images, D width of the representation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pipeline.backbones.base import Backbone
from pipeline.errors import UserError
from pipeline.images.decode import BadImage, decode
from pipeline.images.tars import TarSample, read_tar
from pipeline.places import Place
from pipeline.release.model import ReleasedModel
from pipeline.representation_store.encoding import as_stored

TOLERANCE = 1e-4  # relative; computed in the same batch the difference is 0, other batches differ in low bits

NOT_CHECKED: Mapping[str, Any] = {"images": 0}


def first_batch(tars: Iterable[Place], scored: Mapping[str, float], count: int) -> dict[str, Image.Image]:
    """The first ``count`` images that were scored, in the order of the tars: the cache computed them in one batch.

    Args:
        tars: of the collection, in order; only the first one is read.
        scored: key → stored uncertainty.
        count: the cache's batch size.
    """
    found: dict[str, Image.Image] = {}
    for sample in read_tar(next(iter(tars))):
        if len(found) == count:
            break
        if isinstance(sample, TarSample) and sample.key in scored:
            try:
                found[sample.key] = decode(sample.data)
            except BadImage as error:  # it was decoded when it was scored
                raise UserError(f"release: image {sample.key} cannot be decoded any more ({error}).") from error
    return found


def self_check(
    model: ReleasedModel,
    alone: Backbone,
    images: Mapping[str, Image.Image],
    scored: Mapping[str, float],
    *,
    stored_as: str,
    dataset: str,
) -> dict[str, Any]:
    """Try a release on images whose uncertainty is known.

    Args:
        model: the release, loaded anew.
        alone: the backbone without a head, made as for the cache.
        images: key → upright RGB image.
        scored: key → uncertainty that the evaluation stored.
        stored_as: dtype of the store: the evaluation read embeddings that were rounded to it.
        dataset: name of the collection.

    Returns:
        What was found, as plain values: ``images``, ``embedding_identical`` (None: the head has an embedding of its
        own), ``difference`` and ``tolerance`` of the uncertainty, relative, and ``rounding``: how much a representation
        that was not rounded changes it.

    Raises:
        UserError: the release does not give what was evaluated.
    """
    model.batch_size = len(images)
    embedding_BE, uncertainty_B = model(list(images.values()))
    batch = torch.stack([model.preprocess(image) for image in images.values()])
    representation_BD = alone.represent(batch).embedding_BD
    identical = torch.equal(embedding_BE, representation_BD) if model.head.keeps_representation else None
    if identical is False:
        raise UserError(
            "release: the released embedding is not that of the backbone alone. The bundle was not committed; "
            "look at how the backbone is loaded (config key backbone)."
        )
    known_B = torch.tensor([scored[key] for key in images], dtype=torch.float64)
    rounded_BD = torch.from_numpy(as_stored(representation_BD.cpu().numpy(), stored_as))
    with torch.no_grad():
        again_B = model.head(rounded_BD.to(model.device)).uncertainty_B
    difference = _relative(again_B, known_B)
    if not difference <= TOLERANCE:
        raise UserError(
            f"release: uncertainties of {dataset} differ from the evaluated ones by up to {difference:.1e} relative, "
            f"more than {TOLERANCE:g}. The bundle was not committed. Was the backbone changed after the evaluation? "
            "`submit verify` checks what is stored."
        )
    return {
        "dataset": dataset,
        "images": len(images),
        "embedding_identical": identical,
        "difference": _short(difference),
        "tolerance": TOLERANCE,
        "rounding": _short(_relative(uncertainty_B, known_B)),
    }


def _relative(found_B: Tensor, known_B: Tensor) -> float:
    scale_B = known_B.abs().clamp_min(torch.finfo(torch.float32).tiny)
    return float(((found_B.double().cpu() - known_B).abs() / scale_B).max())


def _short(value: float) -> float:
    """One significant digit: enough to judge by."""
    return float(f"{value:.0e}")
