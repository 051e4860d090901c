"""Which rows are held out: by key alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.held_out import held_out
from pipeline.training.checkpoints import load_head
from pipeline.training.holdout import training_rows
from pipeline.training.log import TrainingLog
from tests.pipeline.training.test_resume import Stop, StopAt, result
from tests.pipeline.training.test_teams import run


def keys(count, width=12):
    return np.array([f"n{i:06d}".encode() for i in range(count)], dtype=f"S{width}")


def test_the_share_is_met_and_larger_shares_hold_the_smaller_ones():
    small, large = held_out(keys(20_000), 0.05), held_out(keys(20_000), 0.2)
    assert small.mean() == pytest.approx(0.05, abs=5 * (0.05 * 0.95 / 20_000) ** 0.5)
    assert large.mean() == pytest.approx(0.2, abs=5 * (0.2 * 0.8 / 20_000) ** 0.5)
    assert not (small & ~large).any()


def test_a_key_is_judged_by_itself():
    whole = held_out(keys(500), 0.3)
    order = np.random.default_rng(0).permutation(500)
    np.testing.assert_array_equal(held_out(keys(500)[order], 0.3), whole[order])
    np.testing.assert_array_equal(held_out(keys(500, width=40), 0.3), whole)


def test_neighbouring_keys_are_not_held_out_together():
    chosen = held_out(keys(20_000), 0.5).astype(float)
    assert abs(np.corrcoef(chosen[1:], chosen[:-1])[0, 1]) < 0.04


def test_all_rows_train_without_a_share_and_an_empty_side_is_refused(store):
    assert training_rows(store, 0.0) is None
    assert training_rows(store, 0.3).sum() == (~held_out(store.load("key"), 0.3)).sum()
    with pytest.raises(UserError, match="holds out 0 of 297 rows"):
        training_rows(store, 1e-12)


def test_a_look_is_what_the_saved_head_says_of_the_held_out_rows(make, tmp_path):
    """Recomputed from the store's arrays (of one view, so that the rows are known), with averaged weights."""
    store = make([120, 77, 100], views=1)
    options = {"steps": 8, "validation_share": 0.4, "validate_every": 4, "ema": 0.9, "seeds": (0, 1)}
    run(store, tmp_path / "run", **options)
    kept = training_rows(store, 0.4)
    x_ND = torch.from_numpy(store.load("embedding")[~kept][:, 0].astype(np.float32))
    label_N, loss_N = store.load("label")[~kept], store.load("task_loss")[~kept][:, 0]
    unit_ND = torch.nn.functional.normalize(x_ND.double(), dim=1)
    nearest_N = (unit_ND @ unit_ND.T).fill_diagonal_(-2).argmax(dim=1).numpy()
    wrong_N = label_N[nearest_N] != label_N
    for seed in (0, 1):
        folder = tmp_path / "run" / f"seed-{seed}"
        with torch.no_grad():
            u_N = load_head(folder)(x_ND).uncertainty_B.numpy()
        metrics, looks = read_json(folder / "head.json")["metrics"], TrainingLog(folder / "validation.csv").rows()
        assert [row["step"] for row in looks] == [4, 8]
        for found in (metrics, looks[-1]):
            assert found["validation_r_auroc"] == pytest.approx(roc_auc_score(wrong_N, u_N))
            assert found["validation_rank_correlation"] == pytest.approx(spearmanr(u_N, loss_N).statistic, abs=1e-6)


def test_looks_change_no_weight_and_a_run_that_is_cut_off_has_the_same(store, tmp_path):
    options = {"steps": 9, "log_every": 2, "validation_share": 0.4, "validation_rows": 50, "ema": 0.9}
    run(store, tmp_path / "none", **options)
    run(store, tmp_path / "looks", validate_every=3, **options)
    assert result(tmp_path / "looks") == result(tmp_path / "none")
    for step in (4, 7):
        with pytest.raises(Stop):
            run(store, tmp_path / "cut", validate_every=3, progress=StopAt(step * 30), **options)
    run(store, tmp_path / "cut", validate_every=3, **options)
    assert result(tmp_path / "cut") == result(tmp_path / "none")
    for seed in (0, 1, 2):
        cut, whole = ((tmp_path / n / f"seed-{seed}" / "validation.csv").read_text() for n in ("cut", "looks"))
        assert cut == whole
