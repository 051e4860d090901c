"""Refusing and cleaning equals a loop over all distances."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.metrics.ranked import rank
from pipeline.metrics.safe_retrieval import answers, least_certain
from pipeline.metrics.undefined import Undefined


def test_the_least_certain_of_each_group_by_a_loop() -> None:
    rng = np.random.default_rng(0)
    for share in (0.0, 0.1, 0.33, 1.0):
        uncertainty, group = rng.integers(0, 6, 70).astype(float), rng.integers(-1, 4, 70)
        expected = set()
        for one in set(group.tolist()):
            rows = sorted(np.flatnonzero(group == one).tolist(), key=lambda row: (-uncertainty[row], row))
            expected |= set(rows[: int(share * len(rows) + 1e-9)])
        assert set(np.flatnonzero(least_certain(uncertainty, share, group)).tolist()) == expected
    assert least_certain(np.arange(30.0), 0.1).nonzero()[0].tolist() == [27, 28, 29]  # 0.1 · 30 is 3, not 2.99…
    with pytest.raises(UserError, match="NaN"):
        least_certain(np.array([np.nan]), 0.5)


def test_answers_by_a_loop_over_all_distances() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 3)).astype(np.float32)
    label = rng.integers(0, 8, 60)
    label[0], label[1] = 9, -1  # alone in its class; without one
    refused, cleaned = rng.random(60) < 0.2, rng.random(60) < 0.4
    wrong, judged, answered = 0, 0, 0
    for query in range(60):
        if label[query] < 0 or sum(label == label[query]) < 2:
            continue
        judged += 1
        if refused[query]:
            continue
        distance = np.square(rows - rows[query]).sum(axis=1)
        there = [row for row in range(60) if row != query and not cleaned[row] and label[row] >= 0]
        answered += 1
        wrong += int(label[min(there, key=lambda row: distance[row])] != label[query])
    found = answers(rank(rows, label, count=59, metric="l2"), refused, cleaned)
    assert found.error == pytest.approx(wrong / answered, abs=1e-12)
    assert found.refused == pytest.approx(1 - answered / judged, abs=1e-12)


def test_a_query_whose_known_neighbours_are_all_cleaned_away_gets_no_answer() -> None:
    rows = np.array([[0.0], [1.0], [1.5], [9.0], [9.1]], dtype=np.float32)
    ranked = rank(rows, np.array([0, 0, 1, 1, 1]), count=1, metric="l2")
    none = np.zeros(5, dtype=bool)
    cleaned = np.array([False, True, False, False, False])
    assert answers(ranked, none, none).error == pytest.approx(2 / 5)  # the second and third have each other
    assert answers(ranked, none, cleaned).refused == pytest.approx(2 / 5)
    assert answers(ranked, none, cleaned).error == pytest.approx(1 / 3)
    assert isinstance(answers(ranked, ~none, none).error, Undefined)
    alone = rank(rows, np.arange(5), count=1, metric="l2")
    assert isinstance(answers(alone, none, none).error, Undefined)
