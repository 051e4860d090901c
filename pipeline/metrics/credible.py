"""Uncertain retrieval: all rows of a database that a query may mean, not only the nearest.

A query's posterior puts a share p of its mass into its highest-density region; the rows of the database whose
embedding lies there are its credible set (MCInfoNCE, thesis App. B, C.5: CII_p, which prints ≤ for ≥). The less sure a
query is, the more rows it brings.

- vMF(μ, κ): {x : μᵀx ≥ c}, c the cosine of :func:`pipeline.distributions.credible_cosine`;
- diagonal Gaussian N(m, σ²): {x : Σ ((x − m)/σ)² ≤ q}, q the p-quantile of χ² with E degrees of freedom.

Make the regions of some queries, then ask for their sets or only for how large they are::

    regions = vmf_regions(mean_QE, concentration_Q, level=0.9)
    for rows in credible_sets(regions, database_NE): ...      # of one query after the other, nearest first
    size_Q = credible_sizes(regions, database_NE)
    size_by_ambiguity(size_Q, ambiguity_Q)

A posterior covers where one latent may lie. Whether it holds a share of a *database* depends on how the rows lie: in
1,280 dimensions a region with a small κ is nearly the half sphere, and holds all rows that have a direction in common.

Shape suffixes: Q queries, N rows of the database, E width of the embedding, R rows of a set, G groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.metrics.agreement import rank_correlation
from pipeline.metrics.checks import refuse_nan, refuse_non_finite, same_length
from pipeline.metrics.undefined import Score

PAIRS = 1 << 22  # of a query and a row, whose distances are held together: 32 MiB
BLOCK_ROWS = 1 << 14  # rows of the database that are in float64 at a time

Floats = NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Regions:
    """Highest-density regions {x : distance(x) ≤ bound}.

    Attributes:
        mean_QE: float64; of vMF, unit vectors.
        precision_QE: 1/σ² of a Gaussian, whose distance is Σ (x − m)²/σ²; None: vMF, whose distance is 1 − μᵀx/‖x‖.
        bound_Q: float64.
    """

    mean_QE: NDArray[np.float64]
    precision_QE: NDArray[np.float64] | None
    bound_Q: NDArray[np.float64]

    def part(self, start: int, stop: int) -> Regions:
        """Of some of the queries."""
        precision = None if self.precision_QE is None else self.precision_QE[start:stop]
        return Regions(mean_QE=self.mean_QE[start:stop], precision_QE=precision, bound_Q=self.bound_Q[start:stop])

    def distance(self, row_NE: Floats) -> NDArray[np.float64]:
        """(Q, N), float64."""
        x_NE = np.asarray(row_NE, dtype=np.float64)
        if self.precision_QE is None:
            length_N = np.linalg.norm(x_NE, axis=1)
            return 1 - self.mean_QE @ (x_NE / np.where(length_N > 0, length_N, 1)[:, None]).T
        # products instead of differences: (x − m)² is not made for all Q · N · E
        weighted_QE = self.mean_QE * self.precision_QE
        own_Q1 = (weighted_QE * self.mean_QE).sum(axis=1)[:, None]
        return np.maximum(self.precision_QE @ np.square(x_NE).T - 2 * weighted_QE @ x_NE.T + own_Q1, 0)


def vmf_regions(mean_QE: Floats, concentration_Q: Floats, *, level: float) -> Regions:
    """Of posteriors vMF(μ, κ).

    Args:
        mean_QE: (Q, E), scaled to length one here.
        concentration_Q: (Q,) κ ≥ 0, e.g. 1/uncertainty of a head on the sphere.
        level: p in [0, 1].

    Raises:
        UserError: a level outside [0, 1], numbers that are not finite, lengths that differ, a negative κ or a mean of
            length 0.
    """
    import torch

    from pipeline.distributions import credible_cosine

    mean = _checked(mean_QE, concentration_Q, "concentration", level)
    length_Q = np.linalg.norm(mean, axis=1)
    if (length_Q == 0).any():
        raise UserError(f"mean: that of query {int((length_Q == 0).argmax())} has length 0 and so no direction.")
    kappa_Q = torch.from_numpy(np.array(concentration_Q, dtype=np.float64))
    cosine_Q = credible_cosine(kappa_Q, level, mean.shape[1]).numpy()
    return Regions(mean_QE=mean / length_Q[:, None], precision_QE=None, bound_Q=1 - cosine_Q)


def gaussian_regions(mean_QE: Floats, scale_QE: Floats, *, level: float) -> Regions:
    """Of posteriors N(m, σ²) with independent coordinates.

    Args:
        mean_QE: (Q, E).
        scale_QE: (Q, E) standard deviations σ > 0.
        level: p in [0, 1].

    Raises:
        UserError: a level outside [0, 1], numbers that are not finite, shapes that differ, or a σ that is not positive.
    """
    from scipy.special import gammaincinv

    mean = _checked(mean_QE, scale_QE, "scale", level)
    scale = np.asarray(scale_QE, dtype=np.float64)
    if scale.shape != mean.shape or not (scale > 0).all():
        raise UserError(f"scale: wants positive numbers of the shape {mean.shape}; has the shape {scale.shape}.")
    bound = 2 * float(gammaincinv(mean.shape[1] / 2, level))
    return Regions(mean_QE=mean, precision_QE=scale**-2, bound_Q=np.full(len(mean), bound))


def _checked(mean_QE: Floats, spread: Floats, what: str, level: float) -> NDArray[np.float64]:
    if not 0 <= level <= 1:
        raise UserError(f"level: {level} is not between 0 and 1.")
    same_length(**{"mean": mean_QE, what: spread})
    refuse_non_finite(mean_QE, "mean")
    refuse_non_finite(spread, what)
    if (np.asarray(spread) < 0).any():
        raise UserError(f"{what}: {int((np.asarray(spread) < 0).sum())} are negative.")
    return np.asarray(mean_QE, dtype=np.float64)


def credible_sets(
    regions: Regions, database_NE: Floats, *, own_Q: NDArray[np.integer] | None = None
) -> Iterator[NDArray[np.int64]]:
    """The rows inside each query's region, (R,), one query after the other, the nearest row first.

    Memory is bounded by blocks of queries and rows, and by the sets of one block of queries.

    Args:
        regions: of Q queries.
        database_NE: (N, E), finite; may be a memory map.
        own_Q: the query's own row of the database, which is left out; −1 = it is not there. None: none is.

    Raises:
        UserError: widths differ or a row is not finite.
    """
    for first, block in _query_blocks(regions, database_NE):
        found: list[list[tuple[NDArray[np.float64], NDArray[np.int64]]]] = [[] for _ in block.bound_Q]
        for start, distance_QR in _row_blocks(block, database_NE, first, own_Q):
            for query, distance_R in enumerate(distance_QR):
                inside_R = np.flatnonzero(distance_R <= block.bound_Q[query])
                found[query].append((distance_R[inside_R], start + inside_R))
        for parts in found:
            distance_R, row_R = (np.concatenate(values) for values in zip(*parts, strict=True))
            yield row_R[np.argsort(distance_R, kind="stable")]


def credible_sizes(
    regions: Regions, database_NE: Floats, *, own_Q: NDArray[np.integer] | None = None
) -> NDArray[np.int64]:
    """How many rows each query's set has, (Q,); arguments and errors are those of :func:`credible_sets`."""
    size_Q = np.zeros(len(regions.bound_Q), dtype=np.int64)
    for first, block in _query_blocks(regions, database_NE):
        for _, distance_QR in _row_blocks(block, database_NE, first, own_Q):
            size_Q[first : first + len(distance_QR)] += (distance_QR <= block.bound_Q[:, None]).sum(axis=1)
    return size_Q


def _query_blocks(regions: Regions, database_NE: Floats) -> Iterator[tuple[int, Regions]]:
    width, wanted = database_NE.shape[1], regions.mean_QE.shape[1]
    if width != wanted:
        raise UserError(f"database: rows of {width} values, but the queries have {wanted}.")
    if not len(database_NE):
        raise UserError("database: it has no rows.")
    step = max(1, PAIRS // min(BLOCK_ROWS, len(database_NE)))
    for first in range(0, len(regions.bound_Q), step):
        yield first, regions.part(first, first + step)


def _row_blocks(
    block: Regions, database_NE: Floats, first: int, own_Q: NDArray[np.integer] | None
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Distances of the block's queries to some rows at a time; infinite to a query's own."""
    for start in range(0, len(database_NE), BLOCK_ROWS):
        row_RE = np.asarray(database_NE[start : start + BLOCK_ROWS])
        refuse_non_finite(row_RE, f"database from row {start}")
        distance_QR = block.distance(row_RE)
        if own_Q is not None:
            place_Q = np.asarray(own_Q[first : first + len(distance_QR)]) - start
            here_Q = np.flatnonzero((place_Q >= 0) & (place_Q < len(row_RE)))
            distance_QR[here_Q, place_Q[here_Q]] = np.inf
        yield start, distance_QR


@dataclass(frozen=True, kw_only=True)
class SizeByAmbiguity:
    """Whether ambiguous queries have larger sets.

    Attributes:
        rank_correlation: Spearman's ρ of size and ambiguity; undefined where one of the two does not vary.
        ambiguity_G: mean ambiguity of each group of queries, of rising ambiguity.
        size_G: median size of their sets.
    """

    rank_correlation: Score
    ambiguity_G: NDArray[np.float64]
    size_G: NDArray[np.float64]


def size_by_ambiguity(size_Q: NDArray[np.integer], ambiguity_Q: Floats, *, groups: int = 10) -> SizeByAmbiguity:
    """Sizes of sets against how ambiguous queries are known to be (annotators' entropy, the strength of a crop, …).

    Args:
        size_Q: of :func:`credible_sizes`.
        ambiguity_Q: higher = more ambiguous.
        groups: of equally many queries; as many as there are queries if these are fewer.

    Raises:
        UserError: NaN, lengths that differ, or no query.
    """
    if not same_length(size=size_Q, ambiguity=ambiguity_Q):
        raise UserError("size: there is no query.")
    refuse_nan(np.asarray(ambiguity_Q), "ambiguity")
    size, ambiguity = np.asarray(size_Q, dtype=np.float64), np.asarray(ambiguity_Q, dtype=np.float64)
    parts = np.array_split(np.argsort(ambiguity, kind="stable"), min(groups, len(size)))
    return SizeByAmbiguity(
        rank_correlation=rank_correlation(size, ambiguity),
        ambiguity_G=np.array([ambiguity[part].mean() for part in parts]),
        size_G=np.array([np.median(size[part]) for part in parts]),
    )
