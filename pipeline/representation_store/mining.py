"""Hard negatives: in place of drawn ones, those of a pool that lie nearest to the anchor.

Warburg et al. (Bayesian triplet loss, ICCV 2021, Sec. 4, after Arandjelović et al.) look for "the closest negative
images in a cache" of 5,000, which is renewed every 1,000 iterations. Here the cache is the **pool** of a window, random
rows of it, so its rows are renewed with every window. Near is what has a large cosine, in the frozen representation or
in the embedding of the head that is trained.

Deviations. Where the head embeds, the whole pool is embedded anew for every batch, since a head is small beside a
backbone: nothing is stale, and the negatives are a function of the weights, the seed and the step, so a run goes on
after an interruption without further state. Triplets that hold already are not left out: a head knows its margin, and
can.

Anchors are embedded, and compared with the pool, in tiles of :data:`TILE`, cut at the same places of a window whatever
part of a batch is wanted: low bits of a matrix product depend on its shape, and with them which of two rows is nearer.

Shape suffixes: T anchors of a tile, P rows of a pool, A negatives of an anchor, B rows, V views, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from pipeline.representation_store.sampler import Sampler, Span
from pipeline.representation_store.sources import Held, Source, decode
from pipeline.representation_store.triplets import Triplets

TILE = 32

#: Representations (B, D) float32 → embeddings in which rows are compared, each row by itself.
Embed = Callable[[Tensor], Tensor]


class _Rows:
    """Some rows of a window and their labels, on the device once they are used: a thread that gathers never waits."""

    def __init__(self, found: Held, label_B: Tensor, device: torch.device) -> None:
        self._found, self._label_B, self.device = found, label_B, device

    @cached_property
    def label_B(self) -> Tensor:  # noqa: N802 (a shape suffix)
        """int32."""
        return self._label_B.to(self.device, non_blocking=True)

    @cached_property
    def held(self) -> Held:
        """As the source gave them."""
        return {name: value.to(self.device, non_blocking=True) for name, value in self._found.items()}

    def representation_BD(self, stride: int = 1) -> Tensor:  # noqa: N802 (a shape suffix)
        """float32 of the first view, of every ``stride``-th row."""
        scale = self.held.get("scale")
        return decode(self.held["embedding"][::stride, 0], None if scale is None else scale[::stride, 0])


@dataclass(frozen=True, kw_only=True)
class _Candidates:
    rows: _Rows  # of whole tiles
    own: slice  # those of them that are wanted
    pool: _Rows


class HardNegatives:
    """Takes the rows of triplets from a source, with mined negatives."""

    def __init__(
        self, source: Source, sampler: Sampler, triplets: Triplets, device: torch.device, embed: Embed | None
    ) -> None:
        """Mine.

        Args:
            source: of rows, in the order of ``sampler``, which is followed forward only.
            sampler: of triplets with a pool.
            triplets: its grouping.
            device: where rows are compared.
            embed: what they are compared in, asked for every batch; None = in the representation.
        """
        self.source, self.sampler, self.triplets, self.device = source, sampler, triplets, device
        self.embed = embed
        self._pools: dict[int, _Rows] = {}  # of the window in use
        self._direction_PD: tuple[_Rows, Tensor] | None = None  # of the pool in use, where it does not change

    def gather(self, spans: Sequence[Span]) -> Callable[[], Held]:
        """Take what is needed for the rows of ``spans``; comparing is left to the one who calls what is returned.

        That gives what the source gives for the spans, one after the other, the negatives being hard ones, on the
        device. An anchor for which the pool has too few rows of other classes keeps negatives that were drawn.
        """
        return partial(self._chosen, [self._candidates(span) for span in spans])

    def _candidates(self, span: Span) -> _Candidates:
        size, seen = TILE * self.triplets.group, self.sampler.window(span.window).seen
        start, stop = span.start // size * size, min(-(-span.stop // size) * size, seen)
        rows = self._take(Span(window=span.window, start=start, stop=stop))
        return _Candidates(rows=rows, own=slice(span.start - start, span.stop - start), pool=self._pool(span.window))

    def _pool(self, index: int) -> _Rows:
        if index not in self._pools:
            window = self.sampler.window(index)
            self._pools = {index: self._take(Span(window=index, start=window.seen, stop=len(window.order_N)))}
        return self._pools[index]

    def _take(self, span: Span) -> _Rows:
        kept_B = self.sampler.window(span.window).kept_N[span.start : span.stop]
        return _Rows(self.source.take(span), torch.from_numpy(self.triplets.label[kept_B]), self.device)

    @torch.no_grad()
    def _chosen(self, candidates: Sequence[_Candidates]) -> Held:
        found = [{name: value[one.own] for name, value in self._mined(one).items()} for one in candidates]
        return found[0] if len(found) == 1 else {name: torch.cat([part[name] for part in found]) for name in found[0]}

    def _mined(self, candidates: _Candidates) -> Held:
        near_TA, fits_TA = self._nearest(candidates.rows, candidates.pool)
        mined = {}
        for name, value in candidates.rows.held.items():
            groups = value.unflatten(0, (-1, self.triplets.group))
            fits = fits_TA.reshape(*fits_TA.shape, *[1] * (value.ndim - 1))
            hard = torch.where(fits, candidates.pool.held[name][near_TA], groups[:, 2:])
            mined[name] = torch.cat([groups[:, :2], hard], dim=1).flatten(0, 1)
        return mined

    def _nearest(self, rows: _Rows, pool: _Rows) -> tuple[Tensor, Tensor]:
        """(T, A) places in the pool, nearest to each anchor first, and whether each is of another class."""
        near, fits = [], []
        anchor_TD, label_T = rows.representation_BD(self.triplets.group), rows.label_B[:: self.triplets.group]
        direction_PD = self._pool_directions(pool)
        count = min(self.triplets.negatives, len(pool.label_B))
        for anchors_TD, labels_T in zip(anchor_TD.split(TILE), label_T.split(TILE), strict=True):
            cosine_TP = self._directions(anchors_TD) @ direction_PD.T
            cosine_TP.masked_fill_(labels_T[:, None] == pool.label_B, -torch.inf)
            found = cosine_TP.topk(count, dim=1)
            near.append(found.indices)
            fits.append(found.values > -torch.inf)
        missing = (0, self.triplets.negatives - count)
        return pad(torch.cat(near), missing), pad(torch.cat(fits), missing)

    def _pool_directions(self, pool: _Rows) -> Tensor:
        if self.embed is not None:
            return self._directions(pool.representation_BD())
        if self._direction_PD is None or self._direction_PD[0] is not pool:
            self._direction_PD = pool, self._directions(pool.representation_BD())
        return self._direction_PD[1]

    def _directions(self, representation_BD: Tensor) -> Tensor:
        return normalize(self.embed(representation_BD).float() if self.embed else representation_BD, dim=1)
