"""From scores to the plain values that are written: numbers over seeds, what is undefined and why.

Curves, pictures and further metrics are analyses (:mod:`pipeline.analyses`); here is what every table shows.

``collection_results`` gives, with every number over seeds as ``{"median", "distance", "values", "undefined"}``
(nulls and a reason where it does not exist)::

    counts       rows, stored, classes, counted, lone, unlabelled, quarantined
    metric, representation_sha256
    images_sha256  of keys and class names, in whatever order: two runs that have the same one judged the same images
    zero_length  rows whose representation is zero: with cosine they have no direction (metrics/nearest.py)
    recall_at_1  of the representation alone, without any head: one value
    contenders   a list, in the order given:
        name, role, config, seeds, primary, absent, shown_seed, embedding_sha256 (one a seed)
        recall_at_1, non_interference {embedding_identical, recall_at_1_identical}
        scores {name: {r_auroc, aurc, e_aurc, augrc}}, advantage_over_entropy
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.digests import digest
from pipeline.evaluation.contenders import Scored
from pipeline.evaluation.rows import Rows
from pipeline.evaluation.scoring import Scorer, SeedScores
from pipeline.metrics.aggregate import plain_numbers
from pipeline.metrics.retrieval import Retrieval
from pipeline.metrics.selective import augrc, aurc, e_aurc
from pipeline.metrics.undefined import Score, Undefined
from pipeline.report.look import ENTROPY

SELECTIVE = {"aurc": aurc, "e_aurc": e_aurc, "augrc": augrc}


def collection_results(scorer: Scorer, scored: Sequence[Scored]) -> dict[str, Any]:
    """All numbers of one collection, as plain values.

    Args:
        scorer: with its rows.
        scored: of the same scorer.
    """
    entropy = next((item for item in scored if item.name == ENTROPY and item.seeds), None)
    rows = scorer.rows
    return {
        "counts": _counts(rows, scorer.backbone),
        "metric": scorer.metric,
        "representation_sha256": scorer.representation_sha256,
        "images_sha256": digest(sorted((key, rows.class_name(row) or "") for row, key in enumerate(rows.keys))),
        "zero_length": int((~rows.representation_ND.any(axis=1)).sum()),
        "recall_at_1": plain_numbers([scorer.backbone.recall_at_1]),
        "contenders": [_contender(scorer, item, entropy) for item in scored],
    }


def _counts(rows: Rows, retrieval: Retrieval) -> dict[str, int]:
    labelled = rows.label_N[rows.label_N >= 0]
    return {
        "rows": len(rows.keys),
        "stored": rows.stored,
        "classes": len(np.unique(labelled)),
        "counted": retrieval.counted,
        "lone": retrieval.lone,
        "unlabelled": retrieval.unlabelled,
        "quarantined": rows.quarantined,
    }


def _contender(scorer: Scorer, item: Scored, entropy: Scored | None) -> dict[str, Any]:
    common = {
        "name": item.name,
        "role": item.role,
        "config": dict(item.config),
        "seeds": list(item.seeds),
        "absent": item.absent or None,
    }
    if not item.seeds:
        return common
    seeds = list(item.seeds.values())
    return {
        **common,
        "primary": seeds[0].primary,
        "shown_seed": item.shown_seed,
        "embedding_sha256": [scores.embedding_sha256 for scores in seeds],
        "recall_at_1": plain_numbers([scores.retrieval.recall_at_1 for scores in seeds]),
        "non_interference": {
            "embedding_identical": all(s.embedding_sha256 == scorer.representation_sha256 for s in seeds),
            "recall_at_1_identical": all(_same_retrieval(s.retrieval, scorer.backbone) for s in seeds),
        },
        "scores": {name: _score_numbers(seeds, name) for name in seeds[0].uncertainty},
        "advantage_over_entropy": _advantage(item, entropy),
    }


def _same_retrieval(one: Retrieval, other: Retrieval) -> bool:
    same_neighbours = np.array_equal(one.neighbour_N, other.neighbour_N)
    return same_neighbours and one.recall_at_1 == other.recall_at_1


def _score_numbers(seeds: Sequence[SeedScores], name: str) -> dict[str, Any]:
    numbers = {"r_auroc": plain_numbers([scores.r_auroc(name) for scores in seeds])}
    for metric, function in SELECTIVE.items():
        numbers[metric] = plain_numbers([function(*scores.judged(name)) for scores in seeds])
    return numbers


def _advantage(item: Scored, entropy: Scored | None) -> dict[str, Any]:
    """R-AUROC less that of the classifier's entropy, seed by seed."""
    if entropy is None:
        return plain_numbers([Undefined("there is no classifier over this representation, so no entropy")])
    return plain_numbers([_difference(scores, entropy.at(seed)) for seed, scores in item.seeds.items()])


def _difference(mine: SeedScores, theirs: SeedScores | None) -> Score:
    if theirs is None:
        return Undefined("the entropy lacks a seed")
    left, right = mine.r_auroc(), theirs.r_auroc()
    if isinstance(left, Undefined):
        return left
    return right if isinstance(right, Undefined) else left - right
