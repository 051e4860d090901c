"""One line a row, for whoever wants to look closer: what each head said of it, and its neighbour.

The file is an ``.npz`` without pickles: ``numpy.load(path)`` gives the arrays by name. Same values, same bytes. With
the plain results beside it, it holds all that was scored, so that analyses can be made later from the two alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.contenders import Scored
from pipeline.evaluation.scoring import Scorer, SeedScores
from pipeline.fetching import local_copy
from pipeline.files import atomic_file
from pipeline.metrics.retrieval import Retrieval
from pipeline.places import Place


def row_table(scorer: Scorer, scored: Sequence[Scored]) -> dict[str, NDArray[Any]]:
    """The columns, each with N entries.

    ``key`` and ``neighbour_key`` (UTF-8 bytes, empty = none), ``label`` (−1 = unlabelled), ``counted``, ``correct`` of
    the representation alone, ``neighbour`` as index (−1 = none); ``uncertainty/<name>/<seed>/<score>`` float64 of every
    head; and ``correct/<name>/<seed>``, ``neighbour/<name>/<seed>`` of heads with an embedding of their own.
    """
    rows, backbone = scorer.rows, scorer.backbone
    keys = np.array([key.encode() for key in rows.keys])
    neighbour_keys = np.where(backbone.neighbour_N >= 0, keys[backbone.neighbour_N], b"")
    columns: dict[str, NDArray[Any]] = {
        "key": keys,
        "label": rows.label_N,
        "counted": backbone.counted_N,
        "correct": backbone.correct_N,
        "neighbour_key": neighbour_keys,
        "neighbour": backbone.neighbour_N,
    }
    for item in scored:
        for seed, scores in item.seeds.items():
            place = f"{item.name}/{seed}"
            columns |= {f"uncertainty/{place}/{name}": value_N for name, value_N in scores.uncertainty.items()}
            if scores.embedding_sha256 != scorer.representation_sha256:
                columns[f"correct/{place}"] = scores.retrieval.correct_N
                columns[f"neighbour/{place}"] = scores.retrieval.neighbour_N
    return columns


def write_table(path: Place, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write the columns, atomically."""
    with atomic_file(path) as file:
        np.savez_compressed(file, allow_pickle=False, **columns)


def read_scored(path: Place, result: Mapping[str, Any]) -> list[Scored]:
    """What :func:`row_table` was made of, from the table and the collection's plain results."""
    with local_copy(path) as local, np.load(local, allow_pickle=False) as table:
        return [
            Scored(
                name=item["name"],
                role=item["role"],
                config=item["config"],
                seeds={seed: _seed_scores(table, item, seed, result["counts"]) for seed in item["seeds"]},
                absent=item["absent"] or "",
            )
            for item in result["contenders"]
        ]


def _seed_scores(
    table: Mapping[str, NDArray[Any]], item: Mapping[str, Any], seed: int, counts: Mapping[str, int]
) -> SeedScores:
    """What was judged is read, never judged again: it may have been by a relation, which the labels do not tell."""
    place = f"{item['name']}/{seed}"
    own = f"/{place}" if f"neighbour/{place}" in table else ""
    return SeedScores(
        uncertainty={name: table[f"uncertainty/{place}/{name}"] for name in item["scores"]},
        primary=item["primary"],
        embedding_sha256=item["embedding_sha256"][item["seeds"].index(seed)],
        retrieval=Retrieval(
            neighbour_N=table[f"neighbour{own}"],
            correct_N=table[f"correct{own}"],
            counted_N=table["counted"],  # the same in every embedding: who asks, and whether anything can be found
            lone=counts["lone"],
            unlabelled=counts["unlabelled"],
        ),
    )
