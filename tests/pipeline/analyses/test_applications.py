"""Curation lists, sets and thresholds, on made-up collections of which the right answers are known."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from pipeline.analyses import make_analysis
from pipeline.analyses._records import Records
from tests.made_up import collection, made_up_rows


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
