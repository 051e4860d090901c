"""Images as they are, every method end to end, what rows share, scores by loops, and a run that goes on."""

import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from benchmarks.reproductions import runs
from benchmarks.reproductions.lam_fashion import scoring
from benchmarks.reproductions.lam_fashion.images import held_out, load_fashion, load_strangers
from benchmarks.reproductions.lam_fashion.model import Dropout, Laplacian, Points, Spread, on_sphere
from benchmarks.reproductions.lam_fashion.scoring import embed, evaluate, histogram, sampling_error
from benchmarks.reproductions.lam_fashion.settings import OWN, Settings, deciding
from benchmarks.reproductions.lam_fashion.training import Trainer, run, train
from pipeline.errors import UserError
from pipeline.progress import Silent
from tests.benchmarks.reproductions.stopping import Stopped, StopsAt

METHODS = ("deterministic", "deep_ensemble", "pfe", "hib", "mc_dropout", "lam_post_hoc", "lam_online")
SMALL = {
    "held_out": 20, "evaluated": 25, "channels": (2, 3), "steps": 4, "batch": 12, "negatives": 2, "samples": 3,
    "members": 2, "hidden": 4, "spread_steps": 2, "curvature_images": 24,
}  # fmt: skip


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def fashion(tmp_path_factory):
    """Stripes of the class's own width, with noise."""
    folder, draws = tmp_path_factory.mktemp("fashion"), np.random.default_rng(0)
    for part, count in (("train", 100), ("t10k", 40)):
        label_I = np.arange(count) % 10
        stripe_IW = (np.arange(28) // (1 + label_I[:, None])) % 2
        pixel_IHW = 150 * stripe_IW[:, None, :] + draws.integers(0, 100, (count, 28, 28))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(pixel_IHW.astype(np.uint8)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(label_I.astype(np.uint8)))
    return folder


@pytest.fixture(scope="module")
def images(fashion):
    return load_fashion(fashion)["train"]


def test_images_are_read_as_they_are(fashion, package, tmp_path):
    parts = load_fashion(fashion)
    assert [len(parts[name]) for name in ("train", "test")] == [100, 40]
    assert parts["test"].label_I.tolist() == [place % 10 for place in range(40)]
    pixels = parts["test"].of(torch.tensor([3])).pixels()
    assert pixels.shape == (1, 1, 28, 28)
    assert torch.equal((pixels * 255).round()[0, 0], parts["test"].pixel_IHW[3].float())
    assert load_strangers(package).label_I.bincount().tolist() == [10] * 10
    with pytest.raises(UserError, match="apt-get download"):
        load_fashion(tmp_path)


def test_no_image_is_learnt_from_and_held_out(images):
    numbered = replace(images, label_I=torch.arange(100))
    learnt, kept = held_out(numbered, 30, seed=1)
    assert len(kept) == 30
    assert sorted([*learnt.label_I.tolist(), *kept.label_I.tolist()]) == list(range(100))
    assert len(set(numbered.some(7, 0).label_I.tolist())) == 7
    assert len(numbered.some(1000, 0)) == 100


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_is_stopped_goes_on_as_if_it_were_not(method, fashion, package, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SECONDS_A_SAVE", 0.0)
    settings = Settings(**SMALL, seed=0, method=method)
    whole = run(settings, tmp_path / "whole" / "state", Silent(), fashion=fashion, digits=package)
    with pytest.raises(Stopped):
        run(settings, tmp_path / "stopped" / "state", StopsAt(2), fashion=fashion, digits=package)
    again = run(settings, tmp_path / "stopped" / "state", Silent(), fashion=fashion, digits=package)
    assert [again["scores"], again["shown"]] == [whole["scores"], whole["shown"]]
    uncertain = {"auroc", "auprc", "ausc", "ece"}
    assert {name for name, value in whole["scores"].items() if value is None} == (
        uncertain if method == "deterministic" else set()
    )
    assert not list(tmp_path.rglob("*.state"))


def test_rows_share_what_they_have_in_common(fashion, package, tmp_path):
    def scores(method, **more):
        made = Settings(**{**SMALL, "seed": 1, "method": method, **more})
        return run(made, tmp_path / "state", Silent(), fashion=fashion, digits=package)["scores"]

    networks = tmp_path / "networks"
    points = scores("deterministic")
    [path] = networks.iterdir()
    laplacian = scores("lam_post_hoc")
    assert list(networks.iterdir()) == [path]  # nothing was trained again
    assert laplacian["map_5"] == points["map_5"] == scores("pfe")["map_5"]
    scores("deep_ensemble")
    assert sorted(path.name.split("-")[1] for path in networks.glob("points-*")) == [
        "1",
        "2",
        "3",
    ]  # 2 members of seed 1
    assert scores("lam_post_hoc", scored_on="held_out")["auroc"] is None  # no stranger is looked at
    assert scores("lam_post_hoc", prior_precision=0.1)["auroc"] != laplacian["auroc"]
    assert len(list(networks.glob("points-*"))) == 3


def test_settings_that_decide_a_network_are_in_its_name():
    """All but what is only looked at afterwards, and what another kind of network has."""
    afterwards = {"seed", "method", "scored_on", "evaluated", "calibrated", "samples", "members", "curvature_images"}
    named = {name for kind in OWN for name in deciding(Settings(seed=0), kind)} - {"kind"}
    assert named | afterwards == set(Settings.__dataclass_fields__)
    assert not named & afterwards


def test_the_posterior_of_online_follows_the_batches(images, tmp_path):
    settings = Settings(**{**SMALL, "steps": 1}, seed=0, prior_precision=1e24, memory=0.2)
    network = Laplacian(settings, "online", rows=50)
    start = Laplacian(settings, "online", rows=50)
    train(network, images, settings, 1, "", tmp_path / "state", Silent())
    torch.manual_seed(0)
    some = images.of(torch.randint(100, (12,)))
    start.loss(some.pixels(), some.label_I).backward()
    [(curvature_EF, share)] = start.running
    assert share == 0.8
    assert curvature_EF.grad.abs().sum() > 0
    torch.testing.assert_close(network.running[0][0], curvature_EF.grad)  # from 0


def test_the_same_weights_are_drawn_for_all_images(images, monkeypatch):
    network = Laplacian(Settings(**SMALL, seed=0, prior_precision=2.0), "post_hoc", rows=50).eval()
    whole = embed(network, images, 4, 5, Silent().bar("", 0, ""))
    monkeypatch.setattr(scoring, "BLOCK", 7)
    parts = embed(network, images, 4, 5, Silent().bar("", 0, ""))
    torch.testing.assert_close(parts.sample_SBE, whole.sample_SBE)
    torch.testing.assert_close(parts.uncertainty_B, whole.uncertainty_B)


def test_inputs_drop_out_in_use(images):
    settings, some = Settings(**SMALL, seed=0), images.of(torch.arange(5)).pixels()
    network = Dropout(settings, "post_hoc", rows=50, dropout=0.5).eval()
    with torch.no_grad():
        found, again = (network.embed(some, 6, seed=3) for _ in range(2))
    assert torch.equal(found.sample_SBE, again.sample_SBE)
    assert found.sample_SBE.std(0).min() > 0
    assert not network.training
    torch.testing.assert_close(found.embedding_BE, normalize(found.sample_SBE.mean(0), dim=-1))


def test_the_variances_learn_from_pairs_of_a_class_and_the_points_stay(images, tmp_path):
    settings = Settings(**SMALL, seed=0)
    network = Spread(Points(settings, "post_hoc", rows=50), settings)
    some = images.of(torch.arange(0, 100, 7))
    loc_BE, variance_BE = network._moments(some.pixels())
    terms = []
    for i in range(len(some)):
        for j in range(i):
            if some.label_I[i] == some.label_I[j]:
                normal = torch.distributions.Normal(loc_BE[j], (variance_BE[i] + variance_BE[j]).sqrt())
                terms.append(-normal.log_prob(loc_BE[i]).sum())
    torch.testing.assert_close(network.loss(some.pixels(), some.label_I), torch.stack(terms).mean())
    before = {name: value.clone() for name, value in network.points.state_dict().items()}
    train(network, images, settings, 3, "", tmp_path / "state", Silent())
    assert all(torch.equal(value, before[name]) for name, value in network.points.state_dict().items())


def test_members_of_an_ensemble_disagree(images, tmp_path):
    settings = Settings(**SMALL, seed=0, method="deep_ensemble")
    network = Trainer(images, tmp_path, Silent()).network(settings).eval()
    with torch.no_grad():
        found = network.embed(images.of(torch.arange(5)).pixels(), 99, seed=0)
    assert found.sample_SBE.shape == (2, 5, 3)
    assert (found.sample_SBE[0] - found.sample_SBE[1]).abs().max() > 1e-3


def test_sampling_ece_by_loops(images):
    draws = torch.Generator().manual_seed(0)
    label_N = torch.arange(12) % 3
    sample_SNE = normalize(torch.randn(4, 12, 3, generator=draws) + 2 * torch.eye(3)[label_N], dim=-1)
    confidence, right = [], []
    for n in range(12):
        votes = []
        for sample_NE in sample_SNE:
            cosine_N = sample_NE @ sample_NE[n]
            cosine_N[n] = -2
            votes.append(int(label_N[cosine_N.argmax()]))
        winner = max(range(3), key=lambda c, votes=votes: (votes.count(c), -c))
        confidence.append(votes.count(winner) / 4)
        right.append(winner == label_N[n])
    wanted = sum(
        abs(sum(float(r) - c for c, r in zip(confidence, right, strict=True) if c == level)) / 12
        for level in (0.25, 0.5, 0.75, 1.0)
    )
    points = Points(Settings(**SMALL, seed=0), "post_hoc", rows=50)
    assert sampling_error(sample_SNE.numpy(), label_N.numpy(), points) == pytest.approx(wanted)


def test_wide_samples_are_unsure_and_every_image_is_in_the_histogram(images):
    narrow, wide = (on_sphere(torch.ones(9, 3), 1 + by * torch.randn(30, 9, 3)) for by in (0.1, 1.0))
    assert narrow.uncertainty_B.max() < wide.uncertainty_B.min()
    found = histogram(narrow.uncertainty_B.double().numpy(), wide.uncertainty_B.double().numpy())
    assert sum(found["known"]) == sum(found["strangers"]) == 9
    assert found["known"][0] > 0 == found["strangers"][0]
    settings = Settings(**SMALL, seed=0)
    network = Points(settings, "post_hoc", rows=50).eval()
    assert evaluate(network, images, None, settings, Silent())["shown"] == {}
