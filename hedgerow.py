"""Hedgerow for those who use it: load a released model, open a representation store.

>>> model = hedgerow.load("runs/release-…/model")            # doctest: +SKIP
>>> embedding, uncertainty = model(["a.jpg", "b.png"])       # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pipeline.release.model import ReleasedModel
    from pipeline.representation_store import RepresentationStore

__all__ = ["load", "open_store"]


def load(
    path: str | Path,
    *,
    device: str | torch.device = "cpu",
    backbone_weights: str | Path | None = None,
    trusted: bool = False,
) -> ReleasedModel:
    """Load a released model. Hashes are checked; nothing in the bundle is run and no pickle in it is read.

    Args:
        path: the bundle, a folder with ``model.safetensors`` and ``config.json``.
        device: where to compute; ``model.to(device)`` moves it later.
        backbone_weights: file of the backbone's weights; needed only if the bundle's card says so.
        trusted: you made that file, or trust whoever did. Asked for only if it is one of ``torch.export``, which torch
            reads with pickle, and so runs the code in it.

    Returns:
        A callable: ``embedding, uncertainty = model(images)``, float32 tensors of shape (B, E) and (B,); higher
        uncertainty means less sure.

    Raises:
        pipeline.errors.UserError: no bundle there, a damaged one, or one whose backbone cannot be had.
    """
    from pipeline.release.model import load_model  # here, so that `import hedgerow` does not wait for torch

    weights = None if backbone_weights is None else Path(backbone_weights)
    return load_model(Path(path), device=device, backbone_weights=weights, trusted=trusted)


def open_store(path: str | Path) -> RepresentationStore:
    """Open a representation store, for reading its arrays.

    Args:
        path: the folder of the Zarr group, or the run folder of ``stage=cache`` that holds it as ``store``; a local
            path or a URL (``s3://…``, ``gs://…``).

    Raises:
        pipeline.errors.UserError: there is no store.
    """
    from pipeline.places import as_place
    from pipeline.representation_store import RepresentationStore
    from pipeline.representation_store.store import store_inside

    return RepresentationStore.open(store_inside(as_place(path)))
