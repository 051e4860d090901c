"""The rows of one unit on their way into a store.

Axes: R rows, V views, D width, P view parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.representation_store.encoding import in_range, largest
from pipeline.representation_store.layout import StoreLayout

Array = NDArray[Any]
BEGIN_ANEW = (
    "A tar that could not be read when a store was begun may be too full for it: begin another (output=<folder>)."
)


@dataclass(frozen=True, kw_only=True)
class UnitRows:
    """The rows of one unit, in tar order.

    Attributes:
        embedding_RVD: float32, finite and in the range of the store's dtype.
        view_params_RVP: float32, NaN = does not apply.
        label_R: int32, −1 = unlabelled.
        keys: the sample keys.
        scores: ``task_loss`` (R, V) float32 in nats, ``entropy`` (R, V) float32 in nats, ``top1_correct`` (R, V) bool;
            empty when the backbone has no classifier for these labels.
    """

    embedding_RVD: Array
    view_params_RVP: Array
    label_R: Array
    keys: Sequence[str]
    scores: Mapping[str, Array]


def check_rows(rows: UnitRows, layout: StoreLayout) -> None:
    """Refuse rows that a store of this layout cannot hold.

    Raises:
        ValueError: shapes do not fit the layout, a value is not finite or out of range.
        UserError: more rows, or a longer key, than the store was made for.
    """
    count = len(rows.keys)
    if count > layout.rows:
        raise UserError(f"{count} rows, but the store has room for {layout.rows} a unit. {BEGIN_ANEW}")
    shapes = {
        "embedding": (rows.embedding_RVD.shape, (count, len(layout.views), layout.width)),
        "view_params": (rows.view_params_RVP.shape, (count, len(layout.views), len(layout.view_params))),
        "label": (rows.label_R.shape, (count,)),
        **{name: (value.shape, (count, len(layout.views))) for name, value in rows.scores.items()},
    }
    for name, (got, expected) in shapes.items():
        if got != expected:
            raise ValueError(f"{name}: shape {got}, expected {expected}")
    if not in_range(rows.embedding_RVD, layout.dtype).all():
        limit = largest(layout.dtype)
        raise ValueError(f"an embedding is not finite or beyond the range of {layout.dtype} (±{limit:g})")
    for key in rows.keys:
        if len(key.encode()) > layout.key_bytes:
            raise UserError(f"key '{key}' is longer than the {layout.key_bytes} bytes of this store. {BEGIN_ANEW}")
