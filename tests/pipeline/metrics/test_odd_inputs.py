"""Every metric on random, tied, constant, duplicated, single-class, lone-class, NaN and empty input.

Each is either equal to an independent implementation (pairs and loops written out, scikit-learn, SciPy,
pytorch-metric-learning) or a clear refusal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from pipeline.analyses.advantage import _metric
from pipeline.errors import UserError
from pipeline.evaluation import SeedScores
from pipeline.metrics.agreement import rank_correlation, share_higher
from pipeline.metrics.calibration import reliability, retrieval_reliability
from pipeline.metrics.ood import detection
from pipeline.metrics.r_auroc import auroc, r_auroc
from pipeline.metrics.ranked import Ranked, rank
from pipeline.metrics.retrieval import judge, retrieve
from pipeline.metrics.selective import abstention_for, accuracy_at, augrc, aurc, ausc, e_aurc
from pipeline.metrics.undefined import Undefined

RNG = np.random.default_rng(5)
#: name → uncertainty and wrongness of rows
ROWS: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "random": (RNG.normal(size=50), RNG.uniform(size=50) < 0.3),
    "tied": (RNG.integers(0, 4, 50).astype(float), RNG.uniform(size=50) < 0.3),
    "constant": (np.full(20, 1.5), np.arange(20) % 3 == 0),
    "duplicated": (np.repeat(RNG.normal(size=10), 3), np.repeat(RNG.uniform(size=10) < 0.5, 3)),
    "all right": (RNG.normal(size=12), np.zeros(12, dtype=bool)),
    "all wrong": (RNG.normal(size=12), np.ones(12, dtype=bool)),
    "one row": (np.array([2.0]), np.array([True])),
    "infinite": (np.array([-np.inf, 0, 1, np.inf, np.inf]), np.array([False, True, False, True, False])),
    "empty": (np.zeros(0), np.zeros(0, dtype=bool)),
}


def mean_errors_kept(uncertainty: np.ndarray, wrong: np.ndarray, kept: int) -> float:
    """Expected errors among the ``kept`` most certain rows, a row at a time: equals share what room is left."""
    errors, room = 0.0, kept
    for value in sorted(set(uncertainty.tolist())):
        group = wrong[uncertainty == value]
        taken = min(room, len(group))
        errors += taken * group.mean()
        room -= taken
    return errors


def by_pairs(uncertainty: np.ndarray, wrong: np.ndarray) -> float | None:
    """AUROC: of every wrong and every right row, which is less certain?"""
    pairs = [(a > b) + (a == b) / 2 for a in uncertainty[wrong] for b in uncertainty[~wrong]]
    return float(np.mean(pairs)) if pairs else None


def of_kept(uncertainty: np.ndarray, wrong: np.ndarray) -> list[float]:
    return [mean_errors_kept(uncertainty, wrong, kept) for kept in range(1, len(wrong) + 1)]


def plain_aurc(uncertainty: np.ndarray, wrong: np.ndarray) -> float | None:
    errors = of_kept(uncertainty, wrong)
    return float(np.mean([e / (i + 1) for i, e in enumerate(errors)])) if errors else None


def plain_augrc(uncertainty: np.ndarray, wrong: np.ndarray) -> float | None:
    """Trapezoids of (errors kept)/n over coverage, from 0."""
    n, errors = len(wrong), [0.0, *of_kept(uncertainty, wrong)]
    return sum((a + b) / 2 / n / n for a, b in itertools.pairwise(errors)) if n else None


def plain_e_aurc(uncertainty: np.ndarray, wrong: np.ndarray) -> float | None:
    mine, best = plain_aurc(uncertainty, wrong), plain_aurc(wrong.astype(float), wrong)
    return None if mine is None or best is None else mine - best


def plain_ausc(uncertainty: np.ndarray, wrong: np.ndarray) -> float | None:
    return None if (found := plain_aurc(uncertainty, wrong)) is None else 1 - found


def plain_accuracy(uncertainty: np.ndarray, wrong: np.ndarray) -> float | None:
    kept = -(-7 * len(wrong) // 10)  # ⌈0.7 n⌉
    return 1 - mean_errors_kept(uncertainty, wrong, kept) / kept if kept else None


def plain_abstention(uncertainty: np.ndarray, wrong: np.ndarray) -> float | None:
    enough = [i + 1 for i, e in enumerate(of_kept(uncertainty, wrong)) if 1 - e / (i + 1) >= 0.8 - 1e-12]
    return 1 - enough[-1] / len(wrong) if enough else None


def plain_detection(part: str) -> Callable[[np.ndarray, np.ndarray], float | None]:
    def value(uncertainty: np.ndarray, wrong: np.ndarray) -> float | None:
        known, strangers = uncertainty[~wrong], uncertainty[wrong]
        if not len(known) or not len(strangers):
            return None
        if part == "auprc":
            return float(average_precision_score(wrong, np.nan_to_num(uncertainty)))
        thresholds = sorted(set(uncertainty.tolist()), reverse=True)
        first = next(t for t in thresholds if (strangers >= t).mean() >= 0.95)
        return float((known >= first).mean())

    return value


METRICS: dict[str, tuple[Callable[..., Any], Callable[..., float | None]]] = {
    "auroc": (auroc, by_pairs),
    "auroc of draws": (lambda u, w: of_draws(u, w), by_pairs),
    "aurc": (aurc, plain_aurc),
    "e_aurc": (e_aurc, plain_e_aurc),
    "augrc": (augrc, plain_augrc),
    "ausc": (lambda u, w: ausc(u, (~w).astype(float)), plain_ausc),
    "accuracy_at": (lambda u, w: accuracy_at(u, w, coverage=0.7), plain_accuracy),
    "abstention_for": (lambda u, w: abstention_for(u, w, accuracy=0.8), plain_abstention),
    "auprc": (lambda u, w: detection(u[~w], u[w]).auprc, plain_detection("auprc")),
    "fpr95": (lambda u, w: detection(u[~w], u[w]).fpr95, plain_detection("fpr95")),
}


def of_draws(uncertainty: np.ndarray, wrong: np.ndarray) -> Any:
    """The AUROC that the bootstrap counts, on each row once."""
    rows = len(wrong)
    retrieval = judge(np.zeros(rows, dtype=int), np.roll(np.arange(rows), 1))
    object.__setattr__(retrieval, "correct_N", ~wrong)
    object.__setattr__(retrieval, "counted_N", np.ones(rows, dtype=bool))
    scores = SeedScores(uncertainty={"u": uncertainty}, primary="u", embedding_sha256="", retrieval=retrieval)
    return _metric(scores, np.bincount)(np.arange(rows))


def same(found: Any, expected: float | None) -> None:
    if expected is None:
        assert isinstance(found, Undefined)
        assert len(found.reason) > 5
    else:
        assert found == pytest.approx(expected, abs=1e-9)
        assert math.isfinite(found)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("case", ROWS)
def test_it_equals_the_plain_way_or_is_undefined(name: str, case: str) -> None:
    metric, plain = METRICS[name]
    same(metric(*ROWS[case]), plain(*ROWS[case]))


@given(
    hnp.arrays(np.float64, 12, elements=st.integers(-2, 2).map(float)),
    hnp.arrays(bool, 12),
    st.sampled_from([*METRICS]),
)
def test_it_does_on_whatever_is_drawn(uncertainty: np.ndarray, wrong: np.ndarray, name: str) -> None:
    metric, plain = METRICS[name]
    same(metric(uncertainty, wrong), plain(uncertainty, wrong))


@pytest.mark.parametrize("name", [name for name in METRICS if name != "auroc of draws"])
def test_nan_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="NaN, the first at index"):
        METRICS[name][0](np.array([0.0, np.nan, 1, 2]), np.array([True, True, False, False]))


@pytest.mark.parametrize("case", ROWS)
def test_comparisons_of_two_scores_on_the_same_rows(case: str) -> None:
    uncertainty, wrong = ROWS[case]
    finite = np.nan_to_num(uncertainty, posinf=9, neginf=-9)
    value = (~wrong).astype(float)
    shares = [(a > b) + (a == b) / 2 for a, b in zip(finite, value, strict=True)]
    same(share_higher(finite, value), float(np.mean(shares)) if shares else None)
    varies = len(finite) > 1 and len(set(finite)) > 1 and len(set(value)) > 1
    same(rank_correlation(finite, value), float(spearmanr(finite, value).statistic) if varies else None)
    curve = retrieval_reliability(finite, value, bins=4)
    assert curve.count_B.sum() == len(finite)
    confidence = np.array([((finite > one).sum() + (finite == one).sum() / 2) / len(finite) for one in finite])
    parts = [(confidence > b / 4) & (confidence <= (b + 1) / 4) for b in range(4)]
    ece = sum(abs(value[part].sum() - confidence[part].sum()) for part in parts if part.any()) / max(len(finite), 1)
    same(curve.error, float(ece) if len(finite) else None)
    same(reliability(confidence, value, bins=4).error, float(ece) if len(finite) else None)


# -- retrieval

POINTS: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "random": (RNG.normal(size=(40, 5)), RNG.integers(0, 5, 40)),
    "lone classes": (RNG.normal(size=(30, 5)), np.concatenate([RNG.integers(0, 3, 26), [7, 8, 9, 10]])),
    "single class": (RNG.normal(size=(20, 5)), np.zeros(20, dtype=int)),
    "many classes of two": (RNG.normal(size=(20, 5)), np.repeat(np.arange(10), 2)),
}


@pytest.mark.parametrize("case", POINTS)
def test_retrieval_equals_pytorch_metric_learning(case: str) -> None:
    import torch

    rows, label = POINTS[case]
    rows = rows.astype(np.float32)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision"),
        k=len(rows) - 1,
        device=torch.device("cpu"),
        knn_func=CustomKNN(LpDistance(normalize_embeddings=False)),
    )
    expected = calculator.get_accuracy(torch.from_numpy(rows), torch.from_numpy(label))
    ranked = rank(rows, label, count=len(rows) - 1, metric="l2")
    assert ranked.recall_at(1) == pytest.approx(expected["precision_at_1"], abs=1e-9)
    assert ranked.mean_average_precision_at(len(rows) - 1) == pytest.approx(
        expected["mean_average_precision"], abs=1e-6
    )
    assert retrieve(rows, label, metric="l2").recall_at_1 == ranked.recall_at(1)


def test_what_retrieval_cannot_judge_is_undefined_and_what_it_cannot_read_is_refused() -> None:
    alone = rank(np.eye(4), np.arange(4), count=3)
    for found in (alone.recall_at(2), alone.mean_average_precision_at(2), alone.knn_accuracy(2)):
        assert found == Undefined("to none of 4 rows is another row relevant")
    assert isinstance(rank(np.zeros((0, 3)), np.zeros(0, dtype=int), count=2).recall_at(1), Undefined)
    same_rows = rank(np.ones((6, 3)), np.array([0, 0, 0, 1, 1, 1]), count=5)
    assert same_rows.recall_at(1) == 3 / 6, "row 0 is the nearest of all others, row 1 of row 0"
    with pytest.raises(UserError, match="embedding: 1 of 2 rows are NaN"):
        rank(np.array([[np.nan, 0], [1, 0]]), np.zeros(2, dtype=int), count=1)
    with pytest.raises(UserError, match="uncertainty: 1 of 3 rows are NaN"):
        r_auroc(np.array([np.nan, 0, 1]), retrieve(np.eye(3), np.zeros(3, dtype=int)))


def test_rows_without_a_class_have_no_vote() -> None:
    near = np.array([[1], [0]])
    places = Ranked(
        neighbour_NC=near, relevant_NC=np.ones((2, 1), bool), relevant_N=np.ones(2, int), label_N=np.full(2, -1)
    )
    assert places.recall_at(1) == 1
    assert places.knn_accuracy(1) == Undefined("2 of the judged rows have no class to vote for")
