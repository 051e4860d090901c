"""Folds by key, nothing seen of the fold that is left out, and a classifier that holds for raw representations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy, linear

from pipeline.errors import UserError
from pipeline.probing.exact import fit_probe
from pipeline.probing.saved import Probe, load_probe, save_probe
from pipeline.probing.settings import ProbeSettings, fold_of
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore, StoreLayout, UnitInfo, UnitRows, fit_rows

WIDTH, CLASSES, VIEWS = 12, 4, ("center", "random0")
CPU = torch.device("cpu")
MakeStore = Callable[..., RepresentationStore]


def representations(label_R: NDArray[np.int32], rng: np.random.Generator, noise: float = 2.0) -> NDArray[np.float32]:
    """Clusters far from the origin and of a scale far from one, as embeddings are."""
    centre_CD = np.random.default_rng(99).normal(size=(CLASSES, WIDTH))
    clean_RD = centre_CD[np.maximum(label_R, 0)]
    return (7 + 0.1 * (clean_RD[:, None] + noise * rng.normal(size=(len(label_R), 2, WIDTH)))).astype(np.float32)


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    def make(
        name: str = "store",
        *,
        counts: tuple[int, ...] = (70, 0, 90),
        noise: float = 2.0,
        relabel: Callable[[str, int], int] = lambda _, label: label,
    ) -> RepresentationStore:
        rows, chunk_rows = fit_rows(max(counts), WIDTH, "float32")
        layout = StoreLayout(
            units=tuple(UnitInfo(name=f"{unit:05d}.tar") for unit in range(len(counts))),
            rows=rows,
            views=VIEWS,
            width=WIDTH,
            view_params=("flip",),
            key_bytes=12,
            dtype="float32",
            chunk_rows=chunk_rows,
        )
        run = {"class_names": [f"c{index}" for index in range(CLASSES)], "classifier": False}
        store = RepresentationStore.create(tmp_path / name, layout, run)
        for unit, count in enumerate(counts):
            rng = np.random.default_rng(unit)
            label_R = rng.integers(-1, CLASSES, count).astype(np.int32)
            embedding_RVD = representations(label_R, rng, noise)
            keys = [f"u{unit}/{row}" for row in range(count)]
            store.write_unit(
                unit,
                UnitRows(
                    embedding_RVD=embedding_RVD,
                    view_params_RVP=np.zeros((count, 2, 1), np.float32),
                    label_R=np.array([relabel(k, v) for k, v in zip(keys, label_R, strict=True)], np.int32),
                    keys=keys,
                    scores={},
                ),
            )
        return store

    return make


def fitted(store: RepresentationStore, leave_out: int | None, **settings: object) -> Probe:
    values = ProbeSettings(**settings)  # type: ignore[arg-type]
    return fit_probe(store, values, leave_out=leave_out, device=CPU, progress=Silent())


def same(left: Probe, right: Probe) -> bool:
    return torch.equal(left.classifier.weight_CD, right.classifier.weight_CD) and torch.equal(
        left.classifier.bias_C, right.classifier.bias_C
    )


def test_folds_are_even_fixed_and_of_the_key_alone() -> None:
    settings = ProbeSettings(folds=5)
    count = np.bincount([fold_of(f"key/{index}", settings) for index in range(5000)], minlength=5)
    assert count.sum() == 5000
    assert (abs(count - 1000) < 4 * np.sqrt(1000)).all()
    assert [fold_of(f"key/{index}", settings) for index in range(8)] == [3, 2, 0, 3, 4, 1, 2, 4]  # must never change
    other = ProbeSettings(folds=5, seed=1)
    assert any(fold_of(f"key/{index}", settings) != fold_of(f"key/{index}", other) for index in range(50))


def test_the_probe_is_scikit_learns_on_centred_and_scaled_features(make_store: MakeStore) -> None:
    store = make_store()
    probe = fitted(store, None, l2=(0.01,), max_iterations=1000)
    label_N = store.load("label")
    raw_ND = store.load("embedding")[label_N >= 0].reshape(-1, WIDTH).astype(np.float64)
    label_N = np.repeat(label_N[label_N >= 0], 2)
    scaled_ND = raw_ND - raw_ND.mean(axis=0)
    scaled_ND /= np.sqrt((scaled_ND**2).mean())
    theirs = LogisticRegression(C=1 / (0.01 * len(label_N)), max_iter=5000, tol=1e-10).fit(scaled_ND, label_N)
    logits_NC = linear(torch.from_numpy(raw_ND).float(), probe.classifier.weight_CD, probe.classifier.bias_C)
    np.testing.assert_allclose(logits_NC.softmax(dim=1), theirs.predict_proba(scaled_ND), atol=1e-3)
    loss_N = -np.log(theirs.predict_proba(scaled_ND)[np.arange(len(label_N)), label_N])
    ours_N = cross_entropy(logits_NC, torch.from_numpy(label_N).long(), reduction="none")
    assert float(ours_N.mean()) == pytest.approx(loss_N.mean(), abs=1e-4)
    assert probe.facts["rows"] == len(label_N) // 2
    assert probe.facts["loss"] == pytest.approx(loss_N.mean(), abs=1e-4)


def test_a_probe_knows_nothing_of_the_fold_that_is_left_out(make_store: MakeStore) -> None:
    settings = ProbeSettings()
    store = make_store()
    shuffled = make_store("other", relabel=lambda k, v: (v + 1) % CLASSES if fold_of(k, settings) == 2 else v)
    assert not np.array_equal(store.load("label"), shuffled.load("label"))
    assert same(fitted(store, 2), fitted(shuffled, 2))
    assert not same(fitted(store, 1), fitted(shuffled, 1))
    assert not same(fitted(store, None), fitted(shuffled, None))


def test_views_choose_what_is_fitted(make_store: MakeStore) -> None:
    store = make_store()
    center, both = fitted(store, None, views=("center",)), fitted(store, None)
    assert center.facts["rows"] == both.facts["rows"]
    assert not same(center, both)
    with pytest.raises(UserError, match=r"no view 'blur'\. It has: center, random0"):
        fitted(store, None, views=("blur",))


def test_unlabelled_rows_take_no_part(make_store: MakeStore) -> None:
    store = make_store()
    assert fitted(store, None).facts["rows"] == int((store.load("label") >= 0).sum()) < len(store.keys())


def test_at_most_max_rows_are_fitted(make_store: MakeStore) -> None:
    store = make_store()
    assert fitted(store, None, max_rows=50).facts["rows"] == 50
    assert same(fitted(store, None, max_rows=10_000), fitted(store, None))


def test_too_few_rows(make_store: MakeStore) -> None:
    with pytest.raises(UserError, match=r"labelled rows in .* are too few"):
        fitted(make_store(counts=(1,)), None)


def test_one_class_is_refused_since_all_its_losses_would_be_zero(make_store: MakeStore) -> None:
    with pytest.raises(UserError, match=r"are of one class, 'c2'\. A probe of one class is never wrong"):
        fitted(make_store(relabel=lambda key, label: 2), None)


def test_saved_and_loaded(make_store: MakeStore, tmp_path: Path) -> None:
    probe = fitted(make_store(), 0)
    save_probe(tmp_path, "fold-0", probe, class_names=["a"])
    loaded = load_probe(tmp_path, "fold-0")
    assert torch.equal(loaded.weight_CD, probe.classifier.weight_CD)
    assert torch.equal(loaded.bias_C, probe.classifier.bias_C)
    with pytest.raises(UserError, match="no probe in"):
        load_probe(tmp_path)
    path = tmp_path / "fold-0.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"fold-0\.safetensors is damaged"):
        load_probe(tmp_path, "fold-0")
