"""Credible sets against brute force, and against the posterior's own samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from pipeline.distributions import VonMisesFisher, credible_cosine_share
from pipeline.errors import UserError
from pipeline.metrics import credible
from pipeline.metrics.credible import (
    credible_sets,
    credible_sizes,
    gaussian_regions,
    size_by_ambiguity,
    vmf_regions,
)

RANDOM = np.random.default_rng(0)
QUERIES, ROWS, WIDTH = 7, 53, 5
MEAN = RANDOM.normal(size=(QUERIES, WIDTH))
DATABASE = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)
KAPPA, SCALE = RANDOM.uniform(0.1, 30, QUERIES), RANDOM.uniform(0.3, 1.5, (QUERIES, WIDTH))


def brute_vmf(level):
    """In the region: the cap that ends at the row holds no more than the level."""
    cosine = (MEAN @ DATABASE.T) / np.linalg.norm(MEAN, axis=1)[:, None] / np.linalg.norm(DATABASE, axis=1)
    share = credible_cosine_share(torch.from_numpy(KAPPA)[:, None], torch.from_numpy(cosine), WIDTH).numpy()
    return share <= level, -cosine


def brute_gaussian(level):
    distance = (((DATABASE[None] - MEAN[:, None]) / SCALE[:, None]) ** 2).sum(-1)
    return chi2.cdf(distance, WIDTH) <= level, distance


KINDS = pytest.mark.parametrize(
    ("brute", "regions"),
    [
        (brute_vmf, lambda level: vmf_regions(MEAN, KAPPA, level=level)),
        (brute_gaussian, lambda level: gaussian_regions(MEAN, SCALE, level=level)),
    ],
    ids=["vmf", "gaussian"],
)


@KINDS
@pytest.mark.parametrize("level", [0.0, 0.2, 0.9, 1.0])
def test_sets_are_those_of_brute_force_however_they_are_cut(brute, regions, level, monkeypatch):
    inside_QN, distance_QN = brute(level)
    made = regions(level)
    for pairs, rows in ((1 << 22, 1 << 14), (20, 10), (1, 1)):
        monkeypatch.setattr(credible, "PAIRS", pairs)
        monkeypatch.setattr(credible, "BLOCK_ROWS", rows)
        found = list(credible_sets(made, DATABASE))
        assert len(found) == QUERIES
        for query, row_R in enumerate(found):
            wanted = np.flatnonzero(inside_QN[query])
            assert row_R.tolist() == wanted[np.argsort(distance_QN[query][wanted])].tolist()
        assert credible_sizes(made, DATABASE).tolist() == inside_QN.sum(1).tolist()
    assert level not in (0, 1) or all(len(row_R) == level * ROWS for row_R in found)


@KINDS
def test_a_higher_level_holds_the_lower_ones_set(brute, regions):
    smaller, larger = (list(credible_sets(regions(level), DATABASE)) for level in (0.3, 0.8))
    for few, many in zip(smaller, larger, strict=True):
        assert few.tolist() == many[: len(few)].tolist()


def test_the_region_holds_the_level_of_the_posteriors_samples():
    """The database is the posterior itself, so a share p of it is in the set: within five standard errors."""
    kappa = torch.tensor([3.0, 40.0], dtype=torch.float64)
    loc = torch.nn.functional.normalize(torch.from_numpy(MEAN[:2]), dim=-1)
    z_SQE = VonMisesFisher(loc, kappa).sample((4000,), torch.Generator().manual_seed(0)).numpy()
    noise_SQE = RANDOM.normal(size=(4000, 2, WIDTH))
    for level in (0.1, 0.5, 0.9):
        for query in range(2):
            vmf = vmf_regions(MEAN[query : query + 1], kappa[query : query + 1].numpy(), level=level)
            normal = gaussian_regions(MEAN[query : query + 1], SCALE[query : query + 1], level=level)
            for regions, database in (
                (vmf, z_SQE[:, query]),
                (normal, MEAN[query] + SCALE[query] * noise_SQE[:, query]),
            ):
                share = credible_sizes(regions, database)[0] / 4000
                assert share == pytest.approx(level, abs=5 * (level * (1 - level) / 4000) ** 0.5)


def test_the_querys_own_row_is_left_out_by_index():
    database = np.concatenate([DATABASE, DATABASE[:3]])  # its duplicates stay
    own = np.array([0, 1, -1])
    regions = vmf_regions(database[[0, 1, 2]], np.full(3, 50.0), level=0.5)
    found = list(credible_sets(regions, database, own_Q=own))
    assert [row_R[0] for row_R in found] == [ROWS, ROWS + 1, 2]
    everything = credible_sizes(vmf_regions(database[[0, 1, 2]], np.full(3, 50.0), level=1), database, own_Q=own)
    assert everything.tolist() == [ROWS + 2, ROWS + 2, ROWS + 3]


def test_the_less_sure_bring_more():
    """The exact case: κ falls, all else equal, so the sets grow with the ambiguity."""
    kappa = np.geomspace(200, 0.5, 20)
    size = credible_sizes(vmf_regions(np.repeat(MEAN[:1], 20, axis=0), kappa, level=0.9), DATABASE)
    assert (np.diff(size) >= 0).all()
    found = size_by_ambiguity(size, 1 / kappa, groups=4)
    assert found.rank_correlation > 0.9
    assert found.size_G.tolist() == np.median(size.reshape(4, 5), axis=1).tolist()
    assert (np.diff(found.ambiguity_G) > 0).all()
    assert len(size_by_ambiguity(size[:2], 1 / kappa[:2]).size_G) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vmf_regions(MEAN, KAPPA, level=1.2), "level: 1.2"),
        (lambda: vmf_regions(MEAN, -KAPPA, level=0.5), "7 are negative"),
        (lambda: vmf_regions(0 * MEAN, KAPPA, level=0.5), "query 0 has length 0"),
        (lambda: vmf_regions(MEAN, KAPPA[:3], level=0.5), "different lengths"),
        (lambda: vmf_regions(MEAN, KAPPA * np.nan, level=0.5), "NaN"),
        (lambda: gaussian_regions(MEAN, SCALE[:, :2], level=0.5), "shape"),
        (lambda: gaussian_regions(MEAN, 0 * SCALE, level=0.5), "positive"),
        (lambda: credible_sizes(vmf_regions(MEAN, KAPPA, level=0.5), DATABASE[:, :3]), "rows of 3 values"),
        (lambda: credible_sizes(vmf_regions(MEAN, KAPPA, level=0.5), DATABASE[:0]), "no rows"),
        (lambda: credible_sizes(vmf_regions(MEAN, KAPPA, level=0.5), DATABASE * np.inf), "infinite"),
        (lambda: size_by_ambiguity(np.zeros(0, dtype=int), np.zeros(0)), "no query"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
