"""Curation lists, sets and thresholds, on made-up collections of which the right answers are known."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from pipeline.analyses import make_analysis
from pipeline.analyses._records import Records
from pipeline.analyses.base import NotApplicable
from pipeline.relevance import SharedLabels
from pipeline.report.look import Look
from pipeline.report.parts import Context, Words
from tests.made_up import collection, contenders, made_up_rows, on_sphere, votes


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    records = Records(tmp_path_factory.mktemp("made"), ["unseen"], [])
    return collection(records, "unseen", "downstream", made_up_rows(600, 12, 0), images=False)


def test_the_list_begins_with_the_most_uncertain_and_names_what_misled_it(made):
    item = make_analysis("curation")
    values = item.measure(made)
    (text,) = item.files(made, values).values()
    lines = list(csv.DictReader(io.StringIO(text.decode())))
    scores = made.present[0].shown
    uncertainty = scores.uncertainty[scores.primary]
    assert [float(line["uncertainty"]) for line in lines] == sorted(uncertainty.tolist(), reverse=True)
    row = int(uncertainty.argmax())
    first, near = lines[0], int(scores.retrieval.neighbour_N[row])
    assert (first["key"], first["neighbour"], first["less_certain"]) == (
        made.rows.keys[row],
        made.rows.keys[near],
        "0.000000",
    )
    assert sorted(line["key"] for line in lines) == sorted(made.rows.keys)
    assert values["listed"] == len(lines) == 600


def test_keys_as_they_are_stand_in_the_table_of_rows_in_the_order_that_is_documented(tmp_path):
    """docs/design/05_evaluation.md: in the CSV file what a spreadsheet would run has an apostrophe in front."""
    rows = made_up_rows(60, 6, 0)
    starts = ("=", "+", "-", "@", "'=", "")  # keys with control characters are quarantined
    rows = replace(rows, keys=[f"{starts[place % 6]}{key}" for place, key in enumerate(rows.keys)])
    records = Records(tmp_path, ["unseen"], [])
    one = collection(records, "unseen", "downstream", rows, images=False)
    item = make_analysis("curation")
    values = item.measure(one)
    (text,) = item.files(one, values).values()
    listed = [line["key"] for line in csv.DictReader(io.StringIO(text.decode(), newline=""))]
    with np.load(records.table("unseen"), allow_pickle=False) as table:
        (name,) = [name for name in table if name.startswith(f"uncertainty/{values['contender']}/{values['seed']}/")]
        order = np.argsort(-table[name], kind="stable")
        exact = [key.decode() for key in table["key"][order]]
    assert sorted(exact) == sorted(rows.keys)
    assert listed == [f"'{key}" if key[0] in "=+-@" else key for key in exact]


def test_safe_retrieval_lowers_the_error_of_a_good_uncertainty_and_starts_from_recall(made):
    values = make_analysis("safe_retrieval").measure(made)
    for numbers in (values["per_class"], values["overall"]):
        good = numbers["loss_prediction"]
        assert good["plain"]["median"] == pytest.approx(1 - made.result["recall_at_1"]["median"])
        assert good["both"]["median"] < good["queries"]["median"] < good["plain"]["median"]
        assert good["both"]["median"] < numbers["random"]["both"]["median"]


def test_sets_cover_what_was_promised_and_fit_the_query(made):
    values = make_analysis("conformal_sets").measure(made)
    numbers, bins = values["numbers"]["loss_prediction"], values["bins"]["loss_prediction"]
    tried = sum(one["tried"] for one in bins)
    assert numbers["coverage"]["median"] >= 0.9 - 3 * np.sqrt(0.09 / tried)
    assert bins[0]["size"] <= bins[-1]["size"]


def test_what_is_kept_at_a_target_has_at_most_its_error(made):
    values = make_analysis("target_error").measure(made)
    good, chance = values["numbers"]["loss_prediction"], values["numbers"]["random"]
    assert good["kept_0.1"]["median"] > chance["kept_0.1"]["median"]
    assert good["error_0.1"]["median"] is None or good["error_0.1"]["median"] <= 0.1 + 3 * np.sqrt(
        0.09 / values["test"]
    )


def angle_of_share(kappa, width, share):
    """The cosine beyond which a von Mises–Fisher has this share, by adding up its density on a grid."""
    edge_T = np.linspace(-1, 1, 200_001)
    middle_T = (edge_T[1:] + edge_T[:-1]) / 2
    log_T = kappa * (middle_T - 1) + (width - 3) / 2 * np.log1p(-(middle_T**2))
    above_T = np.cumsum(np.exp(log_T - log_T.max())[::-1])
    return middle_T[::-1][np.searchsorted(above_T, share * above_T[-1])]


@pytest.mark.parametrize("related", [False, True])
def test_credible_sets_are_the_rows_within_the_angle_of_the_share(related, tmp_path):
    rows = made_up_rows(150, 6, 1)
    annotations = votes(rows)
    if related:  # two labels each; what has none is no query
        lists = [[] if label < 0 else [int(label), 10 + place % 4] for place, label in enumerate(rows.label_N)]
        rows = replace(rows, relevance=SharedLabels.from_lists(lists))
        annotations = replace(annotations, relevance=rows.relevance)
    records = Records(tmp_path, ["unseen"], [])
    methods = [*contenders()[:1], on_sphere()]
    one = collection(records, "unseen", "downstream", rows, methods, images=False, annotations=annotations)
    values = make_analysis("credible_sets").measure(one)
    assert list(values["numbers"]) == ["elk"]
    scored = next(item for item in one.present if item.name == "elk")
    unit_NE = rows.representation_ND.astype(float)
    unit_NE /= np.linalg.norm(unit_NE, axis=1, keepdims=True)
    database = [row for row in range(150) if not related or rows.relevance.found_N[row]]
    for place, scores in enumerate(scored.seeds.values()):
        queries, sizes, relevant = np.flatnonzero(scores.retrieval.counted_N), {}, []
        for level in (0.5, 0.9, 0.99):
            sizes[level] = []
            for query in queries:
                bound = angle_of_share(1 / scores.uncertainty["inverse_concentration"][query], 12, level)
                inside = [row for row in database if row != query and unit_NE[row] @ unit_NE[query] >= bound]
                sizes[level].append(len(inside))
                if level == 0.9:
                    same = [
                        bool(rows.relevance.relevant(np.array([query]), np.array([row]))[0])
                        if related
                        else rows.label_N[row] == rows.label_N[query]
                        for row in inside
                    ]
                    relevant.append(any(same))
        found = {name: numbers["values"][place] for name, numbers in values["numbers"]["elk"].items()}
        wrong = ~scores.retrieval.correct_N[queries]
        at_90 = np.array(sizes[0.9])
        assert {level: found[f"size_{level:g}"] for level in sizes} == {k: np.median(of) for k, of in sizes.items()}
        assert found["empty"] == pytest.approx((at_90 == 0).mean())
        assert 0 < found["relevant"] == pytest.approx(np.mean(relevant))
        assert (found["right"], found["wrong"]) == (np.median(at_90[~wrong]), np.median(at_90[wrong]))
        share_QA = annotations.votes_NA[queries] / np.maximum(annotations.votes_NA[queries].sum(1, keepdims=True), 1)
        asked = share_QA.sum(1) > 0
        entropy_Q = -(share_QA * np.log(np.where(share_QA > 0, share_QA, 1))).sum(1)
        assert found["votes"] == pytest.approx(spearmanr(at_90[asked], entropy_Q[asked]).statistic)


@pytest.mark.parametrize(("size", "said"), [(149.0, True), (20.0, False)])
def test_sets_that_are_the_whole_database_are_said(size, said):
    numbers = dict.fromkeys(["size_0.5", "size_0.9", "size_0.99", "empty", "relevant", "right", "wrong", "votes"])
    numbers = {name: {"median": size, "distance": 0.0, "values": [size], "undefined": None} for name in numbers}
    values = {"queries": 150, "database": 150, "votes": False, "numbers": {"elk": numbers}}
    result = {"dataset": "unseen", "role": "downstream", "about": {"title": "Unseen"}, "contenders": []}
    result["counts"] = {"counted": 150}
    context = Context(results=[result], look=Look.of([result]))
    words = [part.text for part in make_analysis("credible_sets").show(values, context) if isinstance(part, Words)]
    assert any(text.startswith("Most sets of elk at 90% are the whole database") for text in words) == said


def test_credible_sets_want_a_posterior_on_the_sphere(made):
    with pytest.raises(NotApplicable, match="no score is the spread 1/κ"):
        make_analysis("credible_sets").measure(made)
