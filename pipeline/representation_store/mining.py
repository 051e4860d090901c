"""Hard negatives: in place of drawn ones, those of a pool that lie nearest to the anchor in the frozen representation.

Warburg et al. (Bayesian triplet loss, ICCV 2021, Sec. 4, after Arandjelović et al.) look for "the closest negative
images in a cache" of 5,000, which is renewed every 1,000 iterations. Here the cache is the **pool** of a window, random
rows of it, so it is renewed with every window. Deviations: nearness is the cosine of the frozen representation and not
that of the trained embedding. So which rows are in a batch depends on no weights, is the same for all heads that are
trained side by side, and needs no state to go on after an interruption. And triplets that hold already are not left
out: a head knows its margin, and can.

Anchors are compared with the pool in tiles of :data:`TILE`, cut at the same places of a window whatever part of a batch
is wanted: low bits of a matrix product depend on its shape, and with them which of two rows is the nearer.

Shape suffixes: T anchors of a tile, P rows of a pool, A negatives of an anchor, B rows, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.representation_store.sampler import Sampler, Span
from pipeline.representation_store.sources import Held, Source
from pipeline.representation_store.triplets import Triplets

TILE = 32


@dataclass(frozen=True, kw_only=True)
class _Pool:
    held: Held  # as the source gave it
    label_P: Tensor
    direction_PD: Tensor  # float32 of length 1, as the label on the device that compares


class HardNegatives:
    """Takes the rows of triplets from a source, with mined negatives."""

    def __init__(self, source: Source, sampler: Sampler, triplets: Triplets, device: torch.device) -> None:
        """Mine.

        Args:
            source: of rows, in the order of ``sampler``, which is followed forward only.
            sampler: of triplets with a pool.
            triplets: its grouping.
            device: where rows are compared.
        """
        self.source, self.sampler, self.triplets, self.device = source, sampler, triplets, device
        self._pools: dict[int, _Pool] = {}  # of the window in use

    def take(self, span: Span) -> Held:
        """What ``source.take`` gives, the negatives being hard ones.

        An anchor for which the pool has too few rows of other classes keeps the negatives that were drawn.
        """
        window, size = self.sampler.window(span.window), TILE * self.triplets.group
        wide = Span(
            window=span.window,
            start=span.start // size * size,
            stop=min(-(-span.stop // size) * size, window.seen),
        )
        own = slice(span.start - wide.start, span.stop - wide.start)
        held, pool = self.source.take(wide), self._pool(span.window)
        label_T = self._labels(wide)[:: self.triplets.group]
        anchor_TD = _directions(held["embedding"][:: self.triplets.group], self.device)
        near_TA, fits_TA = self._nearest(anchor_TD, label_T, pool)
        place_TA = torch.arange(wide.stop - wide.start).reshape(-1, self.triplets.group)[:, 2:]
        place, near = place_TA[fits_TA], near_TA[fits_TA]
        mined = {
            name: value.index_copy(0, place.to(value.device), pool.held[name][near.to(value.device)])
            for name, value in held.items()
        }
        return {name: value[own] for name, value in mined.items()}

    def _nearest(self, anchor_TD: Tensor, label_T: Tensor, pool: _Pool) -> tuple[Tensor, Tensor]:
        """(T, A) places in the pool, nearest first, and whether each is of another class; on the CPU."""
        near, fits = [], []
        count = min(self.triplets.negatives, len(pool.label_P))
        for anchors_TD, labels_T in zip(anchor_TD.split(TILE), label_T.split(TILE), strict=True):
            cosine_TP = anchors_TD.clone() @ pool.direction_PD.T
            cosine_TP.masked_fill_(labels_T[:, None] == pool.label_P, -torch.inf)
            found = cosine_TP.topk(count, dim=1)
            near.append(found.indices)
            fits.append(found.values > -torch.inf)
        missing = (0, self.triplets.negatives - count)
        near_TA = torch.nn.functional.pad(torch.cat(near), missing)
        return near_TA.cpu(), torch.nn.functional.pad(torch.cat(fits), missing).cpu()

    def _pool(self, index: int) -> _Pool:
        if index not in self._pools:
            window = self.sampler.window(index)
            span = Span(window=index, start=window.seen, stop=len(window.order_N))
            held = self.source.take(span)
            self._pools = {
                index: _Pool(
                    held=held,
                    label_P=self._labels(span),
                    direction_PD=_directions(held["embedding"], self.device),
                )
            }
        return self._pools[index]

    def _labels(self, span: Span) -> Tensor:
        kept_B = self.sampler.window(span.window).kept_N[span.start : span.stop]
        return torch.from_numpy(self.triplets.label[kept_B]).to(self.device)


def _directions(embedding_BVD: Tensor, device: torch.device) -> Tensor:
    """(B, D) of the first view; the scale of a row that is stored as int8 has no part in its direction."""
    return normalize(embedding_BVD[:, 0].to(device).float(), dim=1)
