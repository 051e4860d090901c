"""Scoring by hand on few rows, non-interference found and not assumed, and the table of rows."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.evaluation import (
    Contender,
    Rows,
    Scorer,
    collection_results,
    row_table,
    score_all,
    write_table,
)
from pipeline.evaluation import scoring as scoring_module
from pipeline.evaluation.table import read_scored
from pipeline.progress import Silent
from pipeline.relevance import SharedLabels


def rows_of(points: Any, labels: list[int]) -> Rows:
    return Rows(
        representation_ND=np.array(points, dtype=np.float32),
        label_N=np.array(labels, dtype=np.int32),
        unit_N=np.zeros(len(labels), dtype=np.int32),
        keys=[f"key{i}" for i in range(len(labels))],
        class_names=("ant", "bee", "cow"),
        stored=len(labels),
        quarantined=0,
    )


# On a line: neighbours are 1 0 1 4 3 4; wrong: row 2 (bee beside ant) and row 5 (lone cow, not judged).
LINE = rows_of([[0.0], [1], [2.5], [8], [9], [10.5]], [0, 0, 1, 1, 1, 2])


def contender(name: str, heads: Mapping[int, Any], role: Any = "head", absent: str = "") -> Contender:
    return Contender(name=name, role=role, config={"kind": name}, heads=heads, absent=absent)


def evaluated(contenders: list[Contender], rows: Rows = LINE) -> dict[str, Any]:
    scorer = Scorer(rows, metric="l2")
    return collection_results(scorer, score_all(scorer, contenders, Silent()))


def from_values(values: list[float]) -> Callable[..., torch.Tensor]:
    return lambda x: torch.tensor(values)


def test_numbers_by_hand(says: Any) -> None:
    """Judged rows: 0 1 2 3 4, row 2 wrong; R@1 4/5.

    Seed 0: row 2 is the least certain: R-AUROC 1, risks 0 0 0 0 1/5. Seed 1: two rows are less certain: 2/4.
    """
    heads = {
        0: says(score=from_values([0.1, 0.2, 0.9, 0.3, 0.4, 50.0])),
        1: says(score=from_values([0.1, 0.2, 0.5, 0.7, 0.8, -50.0])),
    }
    entropy = {0: says(entropy=from_values([5.0, 5, 5, 5, 5, 5]))}
    result = evaluated([contender("head", heads), contender("classifier_entropy", entropy, "baseline")])
    head = result["contenders"][0]
    assert head["recall_at_1"] == {"median": 0.8, "distance": 0.0, "values": [0.8, 0.8], "undefined": None}
    assert result["recall_at_1"]["values"] == [0.8]
    scores = head["scores"]["score"]
    assert scores["r_auroc"] == {"median": 0.75, "distance": 0.25, "values": [1.0, 0.5], "undefined": None}
    assert scores["aurc"]["values"][0] == pytest.approx((1 / 5) / 5, abs=1e-12)
    assert scores["e_aurc"]["values"][0] == pytest.approx(0, abs=1e-12)
    assert scores["augrc"]["values"] == pytest.approx([0.5 * 0.2**2, 0.5 * 0.8 * 0.2 + 0.5 * 0.2**2], abs=1e-12)
    assert head["advantage_over_entropy"]["values"] == [0.5, 0.0]
    assert result["contenders"][1]["scores"]["entropy"]["r_auroc"]["values"] == [0.5]
    assert result["counts"] == {
        "rows": 6,
        "stored": 6,
        "classes": 3,
        "counted": 5,
        "lone": 1,
        "unlabelled": 0,
        "quarantined": 0,
    }


def test_pictures_show_the_median_seed(says: Any) -> None:
    uncertainties = ([0.1, 0.2, 0.9, 0.3, 0.4, 0], [0.1, 0.2, 0.5, 0.7, 0.8, 0], [0.1, 0.2, 0.35, 0.3, 0.4, 0])
    heads = {seed: says(score=from_values(values)) for seed, values in zip((5, 6, 7), uncertainties, strict=True)}
    item = evaluated([contender("head", heads)])["contenders"][0]
    assert item["scores"]["score"]["r_auroc"]["values"] == [1.0, 0.5, 0.75]
    assert item["shown_seed"] == 7


def test_non_interference_is_found(says: Any) -> None:
    def score(x: torch.Tensor) -> torch.Tensor:
        return x[:, 0]

    def nudge(x: torch.Tensor) -> torch.Tensor:
        return torch.nextafter(x, torch.tensor(torch.inf))

    result = evaluated(
        [
            contender("same", {0: says(score=score)}),
            contender("copy", {0: says(lambda x: x.clone(), score=score)}),
            contender("one_bit", {0: says(nudge, score=score)}),
            contender("own", {0: says(lambda x: torch.sin(3 * x), score=score)}),
            contender("one_seed_differs", {0: says(score=score), 1: says(nudge, score=score)}),
        ]
    )
    found = {item["name"]: item["non_interference"] for item in result["contenders"]}
    yes = {"embedding_identical": True, "recall_at_1_identical": True}
    assert found["same"] == found["copy"] == yes
    assert found["one_bit"] == {"embedding_identical": False, "recall_at_1_identical": True}
    assert found["own"] == {"embedding_identical": False, "recall_at_1_identical": False}
    assert found["one_seed_differs"]["embedding_identical"] is False
    assert result["contenders"][3]["recall_at_1"]["values"] != [0.8]


def test_neighbours_are_searched_once_for_each_embedding(says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    search = scoring_module.retrieve
    monkeypatch.setattr(scoring_module, "retrieve", lambda *a, **k: calls.append(a) or search(*a, **k))
    same = {seed: says(score=lambda x: x[:, 0]) for seed in range(3)}
    own = {seed: says(lambda x: -2 * x, score=lambda x: x[:, 0]) for seed in range(3)}
    evaluated([contender("same", same), contender("own", own)])
    assert len(calls) == 2


def test_batches_do_not_matter(says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    head = contender("head", {0: says(lambda x: x * 3, score=lambda x: x[:, 0].sin())})
    whole = evaluated([head])
    monkeypatch.setattr(scoring_module, "BATCH_ROWS", 4)
    assert evaluated([head]) == whole


def test_what_is_undefined_says_why(says: Any) -> None:
    pairs = rows_of([[0.0], [1], [8], [9]], [0, 0, 1, 1])
    head = contender("head", {0: says(score=lambda x: x[:, 0])})
    absent = contender("classifier_entropy", {}, "baseline", "there is no classifier")
    result = evaluated([head, absent], pairs)
    item = result["contenders"][0]
    assert item["scores"]["score"]["r_auroc"] == {
        "median": None,
        "distance": None,
        "values": [],
        "undefined": "needs right and wrong neighbours: 4 right, 0 wrong",
    }
    assert item["scores"]["score"]["aurc"]["values"] == [0.0]
    assert "no entropy" in item["advantage_over_entropy"]["undefined"]
    assert result["contenders"][1]["absent"] == "there is no classifier"
    lonely = evaluated([head], rows_of([[0.0], [1]], [0, 1]))
    assert lonely["recall_at_1"]["undefined"] == "no row has another row of its class (2 lone, 0 unlabelled)"
    json.dumps([result, lonely], allow_nan=False)


def test_several_scores_of_one_head(says: Any) -> None:
    head = says(eta=from_values([0.1, 0.2, 0.9, 0.3, 0.4, 0.0]), variance=from_values([0.9, 0.8, 0.1, 0.7, 0.6, 0.0]))
    item = evaluated([contender("head", {0: head})])["contenders"][0]
    assert item["primary"] == "eta"
    assert [item["scores"][name]["r_auroc"]["median"] for name in ("eta", "variance")] == [1.0, 0.0]


def test_a_head_that_says_nan_is_refused(says: Any) -> None:
    """By name and seed, and the first row by its key: so that it can be looked for among thirty heads."""
    said = (
        r"odd, seed 3: uncertainty 'score': 6 of 6 rows are NaN or infinite, the first at index 0 \(%s\).*leave it out"
    )
    with pytest.raises(UserError, match=said % LINE.keys[0]):
        evaluated([contender("odd", {3: says(score=lambda x: x[:, 0] / 0 * 0)})])
    with pytest.raises(UserError, match="odd, seed 0: embedding: 6 of 6 rows are NaN"):
        evaluated([contender("odd", {0: says(lambda x: x / 0 * 0, score=lambda x: x[:, 0])})])


def test_embeddings_of_zeros_are_counted(says: Any) -> None:
    rows = replace(LINE, representation_ND=LINE.representation_ND * (np.arange(6) > 1)[:, None])
    result = evaluated([contender("head", {0: says(score=lambda x: x[:, 0])})], rows)
    assert result["zero_length"] == 2


def test_table_of_rows(says: Any, tmp_path: Path) -> None:
    scorer = Scorer(rows_of(LINE.representation_ND, [0, 0, 1, 1, 1, -1]), metric="l2")
    scored = score_all(
        scorer,
        [
            contender("same", {0: says(a=lambda x: x[:, 0], b=lambda x: -x[:, 0])}),
            contender("own", {4: says(torch.sin, a=lambda x: x[:, 0])}),
        ],
        Silent(),
    )
    columns = row_table(scorer, scored)
    for name in ("first", "second"):
        write_table(tmp_path / name, columns)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    table = np.load(tmp_path / "first", allow_pickle=False)
    assert set(table) == {
        *("key", "label", "counted", "correct", "neighbour_key", "neighbour"),
        *("uncertainty/same/0/a", "uncertainty/same/0/b", "uncertainty/own/4/a", "correct/own/4", "neighbour/own/4"),
    }
    assert table["key"].tolist() == [f"key{i}".encode() for i in range(6)]
    assert table["neighbour_key"].tolist() == [b"key1", b"key0", b"key1", b"key4", b"key3", b""]
    assert table["correct"].tolist() == [True, True, False, True, True, False]
    assert table["counted"].tolist() == [True] * 5 + [False]
    assert table["uncertainty/same/0/b"].tolist() == [0, -1, -2.5, -8, -9, -10.5]


SHARED = SharedLabels.from_lists([[0], [1], [1, 2], [2], [], [0, 2]])  # judges otherwise than the labels do


@pytest.mark.parametrize("relevance", [None, SHARED])
def test_scores_are_read_back_as_they_were(relevance: SharedLabels | None, says: Any, tmp_path: Path) -> None:
    """From the table and the plain results alone, with an unlabelled row, own embeddings and an absent contender."""
    rows = replace(rows_of(LINE.representation_ND, [0, 0, 1, 1, 1, -1]), relevance=relevance)
    same = {seed: says(a=from_values([seed, 2.0, 3, 4, 5, 6]), b=lambda x: -x[:, 0]) for seed in (0, 7)}
    absent = contender("classifier_entropy", {}, "baseline", "there is no classifier")
    own = contender("own", {4: says(torch.sin, a=lambda x: x[:, 0])}, "compare")
    scorer = Scorer(rows, metric="l2")
    scored = score_all(scorer, [contender("same", same), own, absent], Silent())
    write_table(tmp_path / "rows.npz", row_table(scorer, scored))
    result = json.loads(json.dumps(collection_results(scorer, scored)))
    for before, after in zip(scored, read_scored(tmp_path / "rows.npz", result), strict=True):
        assert (after.name, after.role, after.config, after.absent) == (
            *(before.name, before.role, before.config, before.absent),
        )
        assert list(after.seeds) == list(before.seeds)
        for seed, one in before.seeds.items():
            other = after.seeds[seed]
            assert (one.primary, one.embedding_sha256) == (other.primary, other.embedding_sha256)
            for name, value_N in one.uncertainty.items():
                np.testing.assert_array_equal(other.uncertainty[name], value_N)
            for field, value in vars(one.retrieval).items():
                np.testing.assert_array_equal(getattr(other.retrieval, field), value)
