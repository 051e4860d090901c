"""From a trained head, its backbone and its results to a bundle that stands on its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.backbones import parse_backbone, pinned, uncompiled
from pipeline.backbones.base import Backbone
from pipeline.config import to_plain
from pipeline.errors import UserError
from pipeline.release.bundle import Bundle
from pipeline.release.licence import Include, Licence
from pipeline.training.checkpoints import Checkpoint, restore_head


def carries(backbone: Backbone, licence: Licence, include: Include, max_mb: float) -> bool:
    """Whether the bundle carries the backbone's weights.

    Args:
        backbone: whose weights.
        licence: they come under.
        include: ``yes`` or ``no`` decide; ``auto``: if the licence permits and they are not larger than ``max_mb``.
        max_mb: in units of 10⁶ bytes.
    """
    if include != "auto":
        return include == "yes"
    return licence.permits_copies and sum(t.nbytes for t in backbone.state_dict().values()) <= max_mb * 1e6


def portable(values: Mapping[str, Any], backbone: Backbone) -> dict[str, Any]:
    """The backbone's values with everything pinned that was evaluated, and nothing that only this machine has.

    It is not compiled where it is loaded, which would be done anew for each number of images.

    ``auto`` and the model's own preprocessing are replaced by what they were; the class names are left out, since a
    released model has no use for them; of a weights file the name alone is kept.
    """
    plain = {
        **to_plain(parse_backbone(pinned(uncompiled(values), backbone.describe()))),
        **to_plain(backbone.preprocessing),
        "class_list": None,
    }
    del plain["device"]
    if plain.get("path") is not None:
        plain["path"] = Path(plain["path"]).name
    return plain


def assemble(
    checkpoint: Checkpoint,
    backbone: Backbone,
    values: Mapping[str, Any],
    *,
    licence: Licence,
    carried: bool,
    about: Mapping[str, Any],
) -> Bundle:
    """Put a bundle together.

    Args:
        checkpoint: of the trained head.
        backbone: that the head was trained on.
        values: of that backbone, for :func:`pipeline.backbones.make_backbone`.
        licence: of its weights.
        carried: whether the bundle carries them.
        about: further plain values for ``config.json``: name, title, digest, data, results …

    Raises:
        UserError: the head was trained on representations of another width.
    """
    record = checkpoint.record
    if record["summary"]["width"] != backbone.width:
        raise UserError(
            f"release: the head was trained on representations of width {record['summary']['width']}, "
            f"the backbone {backbone.name} gives {backbone.width}. Train the head on a store of this backbone."
        )
    head = restore_head(record, checkpoint.tensors)
    config = {
        **about,
        "keeps_representation": head.keeps_representation,
        "embedding_width": head(torch.zeros(1, backbone.width)).embedding_BE.shape[1],
        "head": {key: record[key] for key in ("head", "seed", "summary", "training")},
        "backbone": {
            "name": backbone.name,
            "values": portable(values, backbone),
            "weights_sha256": backbone.weights_sha256,
            "preprocessing": to_plain(backbone.preprocessing),
            "licence": licence.name,
            "licence_said_by": licence.said_by,
            "carried": carried,
        },
    }
    own: dict[str, Tensor] = (
        {f"backbone.{name}": value for name, value in backbone.state_dict().items()} if carried else {}
    )
    return Bundle(config=config, tensors={**checkpoint.tensors, **own})
