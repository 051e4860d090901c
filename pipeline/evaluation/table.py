"""One line a row, for whoever wants to look closer: what each head said of it, and its neighbour.

The file is an ``.npz`` without pickles: ``numpy.load(path)`` gives the arrays by name. Same values, same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.contenders import Scored
from pipeline.evaluation.scoring import Scorer
from pipeline.files import atomic_file
from pipeline.places import Place


def row_table(scorer: Scorer, scored: Sequence[Scored]) -> dict[str, NDArray[Any]]:
    """The columns, each with N entries.

    ``key`` and ``neighbour_key`` (UTF-8 bytes, empty = none), ``label`` (−1 = unlabelled), ``counted``, ``correct`` of
    the representation alone; ``uncertainty/<name>/<seed>/<score>`` float64 of every head; and
    ``correct/<name>/<seed>`` of heads with an embedding of their own.
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
    }
    for item in scored:
        for seed, scores in item.seeds.items():
            place = f"{item.contender.name}/{seed}"
            columns |= {f"uncertainty/{place}/{name}": value_N for name, value_N in scores.uncertainty.items()}
            if scores.embedding_sha256 != scorer.representation_sha256:
                columns[f"correct/{place}"] = scores.retrieval.correct_N
    return columns


def write_table(path: Place, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write the columns, atomically."""
    with atomic_file(path) as file:
        np.savez_compressed(file, allow_pickle=False, **columns)
