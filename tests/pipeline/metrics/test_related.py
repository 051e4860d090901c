"""Retrieval judged by a relation: against brute force, and against labels where the relation is their equality."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.metrics.ranked import rank
from pipeline.metrics.related import related_neighbours
from pipeline.metrics.retrieval import retrieve
from pipeline.relevance import Nearby, SharedLabels, relevance_of


def places(rows, seed, *, apart=False, radius=0.7):
    """Rows on a map of two cities; ``apart``: a row is a query or of the database, else both."""
    rng = np.random.default_rng(seed)
    query_N = rng.random(rows) < 0.5 if apart else np.ones(rows, bool)
    return Nearby(
        position_N2=np.where(rng.random((rows, 1)) < 0.1, np.nan, rng.uniform(0, 2, (rows, 2))),
        group_N=rng.integers(0, 2, rows).astype(np.int32),
        query_N=query_N,
        database_N=~query_N if apart else np.ones(rows, bool),
        radius=radius,
    )


def brute(embedding_ND, relation, count):
    """Neighbours, relevant neighbours and numbers of relevant rows, row by row."""
    rows = len(embedding_ND)
    near, right, total = (np.full((rows, count), -1), np.zeros((rows, count), bool), np.zeros(rows, int))
    for i in range(rows):
        others = [j for j in range(rows) if j != i and relation.found_N[j]]
        if not relation.asked_N[i]:
            continue
        total[i] = sum(bool(relation.relevant(np.array([i]), np.array([j]))[0]) for j in others)
        others.sort(key=lambda j: (((embedding_ND[i].astype(float) - embedding_ND[j]) ** 2).sum(), j))
        for place, j in enumerate(others[:count]):
            near[i, place], right[i, place] = j, relation.relevant(np.array([i]), np.array([j]))[0]
    return near, right, total


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 40), st.integers(0, 99), st.booleans(), st.integers(1, 4))
def test_neighbours_and_counts_are_those_of_brute_force(rows, seed, apart, count):
    relation = places(rows, seed, apart=apart)
    embedding_ND = np.random.default_rng(seed + 1).integers(0, 4, (rows, 2)).astype(np.float32)  # many equals
    near, right, total = brute(embedding_ND, relation, count)
    ranked = rank(embedding_ND, np.zeros(rows, int), count=count, metric="l2", relevance=relation)
    np.testing.assert_array_equal(ranked.neighbour_NC, near)
    np.testing.assert_array_equal(ranked.relevant_NC, right)
    np.testing.assert_array_equal(ranked.relevant_N, total)


@pytest.mark.parametrize("seed", range(4))
def test_one_label_a_row_gives_what_labels_give(seed):
    rng = np.random.default_rng(seed)
    label_N = rng.integers(-1, 12, 60)
    embedding_ND = rng.normal(size=(60, 5))
    relation = SharedLabels.from_lists([[label] if label >= 0 else [] for label in label_N.tolist()])
    by_relation, by_label = retrieve(embedding_ND, label_N, relevance=relation), retrieve(embedding_ND, label_N)
    for name in ("neighbour_N", "correct_N", "counted_N", "lone", "unlabelled"):
        np.testing.assert_array_equal(getattr(by_relation, name), getattr(by_label, name))


def test_shared_labels_are_counted_as_sets_are():
    rng = np.random.default_rng(0)
    labels = [sorted(set(rng.integers(0, 9, rng.integers(0, 4)).tolist())) for _ in range(50)]
    relation = SharedLabels.from_lists(labels)
    expected = [
        sum(bool(set(mine) & set(other)) for j, other in enumerate(labels) if i != j) for i, mine in enumerate(labels)
    ]
    assert relation.counts().tolist() == expected
    rows = rng.permutation(50)[:20]
    assert relation.of(rows).counts().tolist() == SharedLabels.from_lists([labels[i] for i in rows]).counts().tolist()


def test_a_relation_is_the_same_after_saving():
    for relation in (places(9, 1, apart=True), SharedLabels.from_lists([[1], [], [0, 1]])):
        again = relevance_of(relation.kind, {name: np.array(values) for name, values in relation.arrays().items()})
        np.testing.assert_array_equal(again.counts(), relation.counts())


def test_a_query_far_from_all_of_the_database_still_finds_it():
    """The nearest rows are queries, which cannot be found: it is looked further."""
    query_N = np.arange(40) > 0
    relation = Nearby(
        position_N2=np.zeros((40, 2)), group_N=np.zeros(40, np.int32), query_N=query_N, database_N=~query_N, radius=1.0
    )
    embedding_ND = np.arange(40, dtype=np.float64)[:, None] + 100.0 * query_N[:, None]
    near = related_neighbours(embedding_ND, relation, count=2, metric="l2")
    assert near[1:].tolist() == [[0, -1]] * 39
    assert near[0].tolist() == [-1, -1]
