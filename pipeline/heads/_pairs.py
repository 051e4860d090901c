"""Which rows a contrastive loss takes for alike and which for different: what ``mc_info_nce`` and ``elk`` share.

Two *views* of a row are alike and all other rows different (URL, App. C, B.3), or two rows of a *class* are alike and
rows of other classes different (MCInfoNCE, App. B, C.1). Rows that are different are those of the whole batch, or M
that are drawn afresh for each pair (MCInfoNCE, Eq. 4 and Table 7).

Shape suffixes: B rows, V views, D width, P pairs, N = 2P, M negatives of a pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from pipeline.config import config
from pipeline.heads._spherical import PosteriorConfig
from pipeline.heads.base import Needs, RepresentationBatch


@config
class PairsConfig(PosteriorConfig):
    """The posterior, and what is contrasted."""

    positives: Literal["views", "class"] = "views"  # alike are two views of a row; or two rows of a class
    negatives: Literal["in_batch", "sampled"] = "in_batch"  # all others of the batch; or some of its own for each pair
    num_negatives: Annotated[int, Field(ge=1)] = 32  # M, of sampled


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """What is compared in a batch.

    Attributes:
        x_ND: representations; rows (0, 1), (2, 3), … are alike.
        label_N: rows of one label are not compared, unless they are a pair; None: all are.
        negative_PMD: of each pair; None: all rows of other pairs.
    """

    x_ND: Tensor
    label_N: Tensor | None = None
    negative_PMD: Tensor | None = None


def pair_needs(settings: PairsConfig, *, draws: bool) -> Needs:
    """Batches for such pairs; drawn negatives stand behind their pair.

    Args:
        settings: what is alike and what is different.
        draws: whether the loss draws samples. It is then one of its part, and says nothing of how a batch may be cut;
            else a batch is cut between pairs and their negatives where these are drawn.
    """
    by_class = settings.positives == "class"
    if settings.negatives == "in_batch":
        return Needs(labels=True, sampling="class_balanced", rows_per_class=2) if by_class else Needs(views=2)
    drawn = settings.num_negatives
    together = None if draws else drawn + (2 if by_class else 1)
    if by_class:
        return Needs(sampling="triplets", negatives=drawn, together=together)
    return Needs(views=2, together=together)


def pairs_of(batch: RepresentationBatch, settings: PairsConfig) -> Pairs:
    """The pairs of a batch; rows at its end that fill no group take no part."""
    x_BVD, by_class = batch.representation_BVD, settings.positives == "class"
    if settings.negatives == "in_batch":
        label_B = batch.label_B if by_class else None
        return Pairs(x_ND=x_BVD[:, 0] if by_class else x_BVD.flatten(0, 1), label_N=label_B)
    alike = 2 if by_class else 1  # rows of a group
    drawn = min(settings.num_negatives, len(x_BVD) - alike)  # fewer where a batch is smaller than a group
    groups = len(x_BVD) // (alike + drawn)
    x_PGVD = x_BVD[: groups * (alike + drawn)].unflatten(0, (groups, -1))
    pair_P2D = x_PGVD[:, :2, 0] if by_class else x_PGVD[:, 0]
    return Pairs(x_ND=pair_P2D.flatten(0, 1), negative_PMD=x_PGVD[:, alike:, 0])
