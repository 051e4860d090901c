"""From scores to the plain values that are written: numbers over seeds, what is undefined and why, curves, extremes.

``collection_results`` gives, with every number over seeds as ``{"median", "distance", "values", "undefined"}``
(nulls and a reason where it does not exist)::

    counts       rows, stored, classes, counted, lone, unlabelled, quarantined
    metric, representation_sha256
    recall_at_1  of the representation alone, without any head: one value
    contenders   a list, in the order given:
        name, role, config, seeds, primary, absent
        recall_at_1, non_interference {embedding_identical, recall_at_1_identical}
        scores {name: {r_auroc, aurc, e_aurc, augrc}}, advantage_over_entropy
        shown {seed, histogram {edges, right, wrong}, rejection {rejected, accuracy}}
    extremes     contender, seed, most_certain [...], least_certain [...] of
                 {key, unit, class_name, uncertainty, correct, neighbour_key, neighbour_class}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.contenders import ENTROPY, Scored
from pipeline.evaluation.rows import Rows
from pipeline.evaluation.scoring import Scorer, SeedScores
from pipeline.metrics.aggregate import over_seeds
from pipeline.metrics.r_auroc import r_auroc
from pipeline.metrics.retrieval import Retrieval
from pipeline.metrics.selective import augrc, aurc, e_aurc, rejection_curve
from pipeline.metrics.undefined import Score, Undefined

BINS = 40
SELECTIVE = {"aurc": aurc, "e_aurc": e_aurc, "augrc": augrc}


def collection_results(scorer: Scorer, scored: Sequence[Scored], *, extremes: int) -> dict[str, Any]:
    """All numbers of one collection, as plain values.

    Args:
        scorer: with its rows.
        scored: of the same scorer.
        extremes: how many of the most and of the least certain rows are listed.
    """
    entropy = {
        seed: _primary_r_auroc(scores)
        for item in scored
        if item.contender.name == ENTROPY
        for seed, scores in item.seeds.items()
    }
    return {
        "counts": _counts(scorer.rows, scorer.backbone),
        "metric": scorer.metric,
        "representation_sha256": scorer.representation_sha256,
        "recall_at_1": _numbers([scorer.backbone.recall_at_1]),
        "contenders": [_contender(scorer, item, entropy) for item in scored],
        "extremes": _extremes(scorer.rows, next((item for item in scored if item.seeds), None), extremes),
    }


def _numbers(values: Sequence[Score]) -> dict[str, Any]:
    found = over_seeds(values)
    if isinstance(found, Undefined):
        return {"median": None, "distance": None, "values": [], "undefined": found.reason}
    return {"median": found.median, "distance": found.distance, "values": list(found.values), "undefined": None}


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


def _contender(scorer: Scorer, item: Scored, entropy: Mapping[int, Score]) -> dict[str, Any]:
    contender = item.contender
    common = {
        "name": contender.name,
        "role": contender.role,
        "config": dict(contender.config),
        "seeds": list(item.seeds),
        "absent": contender.absent or None,
    }
    if not item.seeds:
        return common
    seeds = list(item.seeds.values())
    shown = median_seed(item)
    return {
        **common,
        "primary": seeds[0].primary,
        "recall_at_1": _numbers([scores.retrieval.recall_at_1 for scores in seeds]),
        "non_interference": {
            "embedding_identical": all(s.embedding_sha256 == scorer.representation_sha256 for s in seeds),
            "recall_at_1_identical": all(_same_retrieval(s.retrieval, scorer.backbone) for s in seeds),
        },
        "scores": {name: _score_numbers(seeds, name) for name in seeds[0].uncertainty},
        "advantage_over_entropy": _advantage(item, entropy),
        "shown": {"seed": shown, **_shapes(item.seeds[shown])},
    }


def _same_retrieval(one: Retrieval, other: Retrieval) -> bool:
    same_neighbours = np.array_equal(one.neighbour_N, other.neighbour_N)
    return same_neighbours and one.recall_at_1 == other.recall_at_1


def _score_numbers(seeds: Sequence[SeedScores], name: str) -> dict[str, Any]:
    numbers = {"r_auroc": _numbers([r_auroc(scores.uncertainty[name], scores.retrieval) for scores in seeds])}
    for metric, function in SELECTIVE.items():
        numbers[metric] = _numbers([function(*_judged(scores, name)) for scores in seeds])
    return numbers


def _judged(scores: SeedScores, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Uncertainty and wrongness of the counted rows."""
    counted_N = scores.retrieval.counted_N
    return scores.uncertainty[name][counted_N], ~scores.retrieval.correct_N[counted_N]


def _primary_r_auroc(scores: SeedScores) -> Score:
    return r_auroc(scores.uncertainty[scores.primary], scores.retrieval)


def _advantage(item: Scored, entropy: Mapping[int, Score]) -> dict[str, Any]:
    """R-AUROC less that of the classifier's entropy, seed by seed; an entropy of one seed stands for all."""
    if not entropy:
        return _numbers([Undefined("there is no classifier over this representation, so no entropy")])
    only = next(iter(entropy.values()))
    pairs = [(_primary_r_auroc(scores), entropy.get(seed, only)) for seed, scores in item.seeds.items()]
    return _numbers([_difference(mine, theirs) for mine, theirs in pairs])


def _difference(mine: Score, theirs: Score) -> Score:
    if isinstance(mine, Undefined):
        return mine
    return theirs if isinstance(theirs, Undefined) else mine - theirs


def median_seed(item: Scored) -> int:
    """The seed that pictures show: its primary R-AUROC is nearest to the median; the first of equals."""
    values = {seed: _primary_r_auroc(scores) for seed, scores in item.seeds.items()}
    known = {seed: value for seed, value in values.items() if not isinstance(value, Undefined)}
    if not known:
        return next(iter(values))
    median = float(np.median(list(known.values())))
    return min(known, key=lambda seed: abs(known[seed] - median))


def _shapes(scores: SeedScores) -> dict[str, Any]:
    uncertainty_C, wrong_C = _judged(scores, scores.primary)
    edges = np.histogram_bin_edges(uncertainty_C, bins=BINS)
    right, wrong = (np.histogram(uncertainty_C[part_C], bins=edges)[0].tolist() for part_C in (~wrong_C, wrong_C))
    curve = rejection_curve(uncertainty_C, wrong_C)
    return {
        "histogram": {"edges": edges.tolist(), "right": right, "wrong": wrong},
        "rejection": {"rejected": curve.rejected_P.tolist(), "accuracy": curve.accuracy_P.tolist()},
    }


def _extremes(rows: Rows, item: Scored | None, count: int) -> dict[str, Any] | None:
    if item is None or count == 0:
        return None
    seed = median_seed(item)
    scores = item.seeds[seed]
    uncertainty_N = scores.uncertainty[scores.primary]
    certain_first = np.argsort(uncertainty_N, kind="stable")
    return {
        "contender": item.contender.name,
        "seed": seed,
        "most_certain": [_row(rows, scores, index) for index in certain_first[:count]],
        "least_certain": [_row(rows, scores, index) for index in certain_first[::-1][:count]],
    }


def _row(rows: Rows, scores: SeedScores, index: int) -> dict[str, Any]:
    retrieval, neighbour = scores.retrieval, int(scores.retrieval.neighbour_N[index])
    return {
        "key": rows.keys[index],
        "unit": int(rows.unit_N[index]),
        "class_name": _class_name(rows, index),
        "uncertainty": float(scores.uncertainty[scores.primary][index]),
        "correct": bool(retrieval.correct_N[index]) if retrieval.counted_N[index] else None,
        "neighbour_key": rows.keys[neighbour] if neighbour >= 0 else None,
        "neighbour_class": _class_name(rows, neighbour) if neighbour >= 0 else None,
    }


def _class_name(rows: Rows, index: int) -> str | None:
    label = int(rows.label_N[index])
    return rows.class_names[label] if label >= 0 else None
