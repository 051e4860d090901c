"""AUROC, AUPRC and FPR95 against scikit-learn, ties and infinities included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from pipeline.errors import UserError
from pipeline.metrics.ood import detection
from pipeline.metrics.undefined import Undefined

values = st.one_of(st.integers(0, 3).map(float), st.floats(-1e6, 1e6))
some = st.integers(1, 30).flatmap(lambda size: hnp.arrays(np.float64, size, elements=values))


@given(some, some)
def test_equals_scikit_learn(known: np.ndarray, stranger: np.ndarray) -> None:
    found = detection(known, stranger)
    score, positive = np.concatenate([known, stranger]), np.repeat([False, True], [len(known), len(stranger)])
    assert found.auroc == pytest.approx(roc_auc_score(positive, score), abs=1e-12)
    assert found.auprc == pytest.approx(average_precision_score(positive, score), abs=1e-12)
    false, true, _ = roc_curve(positive, score, drop_intermediate=False)
    assert found.fpr95 == pytest.approx(
        false[np.argmax(true * len(stranger) >= 0.95 * len(stranger) - 1e-9)], abs=1e-12
    )


def test_the_extremes() -> None:
    best = detection(np.array([1.0, 2]), np.array([3.0, np.inf]))
    assert (best.auroc, best.auprc, best.fpr95) == (1, 1, 0)
    blind = detection(np.zeros(3), np.zeros(1))
    assert (blind.auroc, blind.auprc, blind.fpr95) == (0.5, 0.25, 1)


def test_what_is_undefined_or_refused() -> None:
    found = detection(np.zeros(3), np.zeros(0))
    assert found.auroc == found.fpr95 == Undefined("needs both kinds of rows: 0 strangers, 3 known")
    with pytest.raises(UserError, match="uncertainty of strangers: 1 of 2 rows are NaN"):
        detection(np.zeros(3), np.array([1, np.nan]))
