"""What analyses say of interventions and votes, on scores that were made up so that the answer is known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pipeline.analyses import chosen, make_analysis
from pipeline.analyses._records import Records
from pipeline.analyses._violins import BINS, counted, density
from pipeline.annotations import Annotations
from pipeline.evaluation import Contender
from pipeline.files import write_json
from pipeline.progress import Silent
from pipeline.report.look import Look
from pipeline.report.parts import Context, Table, Words
from tests.made_up import Column, MadeUpChosen, collection, made_up_rows

ROWS = 40


class Views(MadeUpChosen):
    """Column 0, which is the uncertainty, is that of ``center`` plus a number a view, of some rows or all."""

    def __init__(self, rows, more):
        super().__init__(rows, ("center", *more))
        self.more = more

    def representation(self, view):
        made = self._rows.representation_ND.copy()
        if view != "center":
            made[:, 0] += self.more[view]
        return made


@pytest.fixture(scope="module")
def rows():
    made = made_up_rows(ROWS, 4, 0)
    made.representation_ND[:, 0] = np.arange(1, ROWS + 1) / 10
    return made


def measured(name, rows, folder, more=None, annotations=None, views=Views):
    head = Contender(name="head", role="head", config={"kind": "head"}, heads={0: Column(0, 0.0, 0)})
    records = Records(folder, ["unseen"], chosen([name]))
    made = collection(
        records,
        "unseen",
        "downstream",
        rows,
        [head],
        chosen_rows=views(rows, more or {}),
        images=False,
        annotations=annotations,
    )
    values = make_analysis(name).measure(made)
    parts = list(make_analysis(name).show(values, Context(results=[made.result], look=Look.of([made.result]))))
    return values, parts


def test_the_crop_test_counts_crops_that_are_less_sure(rows, tmp_path):
    up = np.where(np.arange(ROWS) % 4 == 0, -0.05, 0.05)  # three of four are less sure
    values, parts = measured("crop_test", rows, tmp_path, {"crop_50": up, "crop_90": 0.0, "crop_100": 0.0})
    found = values["contenders"]["head"]
    assert values["sizes"] == [90, 50]  # 100 is the whole
    assert found["share_50"]["median"] == 0.75
    assert found["share_90"]["median"] == 0.5  # equals by half
    assert found["share"]["median"] == 0.625
    assert 0 < found["rank_correlation"]["median"] < 0.1  # images differ far more than sizes
    assert values["distinct"] == [ROWS, ROWS]
    assert not [part for part in parts if isinstance(part, Words)]
    assert [part.columns for part in parts if isinstance(part, Table)] == [
        ("Score", "All crops", "90 %", "50 %", "Rank correlation")
    ]


def test_crops_that_show_the_same_are_counted(rows, tmp_path):
    class Empty(Views):
        def representation(self, view):
            made = super().representation(view)
            return made if view == "center" else np.where(np.arange(ROWS)[:, None] % 2, made, np.float32(1))

    same = np.zeros(ROWS)
    values, parts = measured("crop_test", rows, tmp_path, {"crop_50": same, "crop_10": same}, views=Empty)
    assert values["distinct"] == [ROWS // 2 + 1] * 2
    (words,) = (part.text for part in parts if isinstance(part, Words))
    assert words.startswith("Of 40 crops so many differ: 21 at 50 %, 21 at 10 % of the side.")


def test_a_median_that_falls_is_said_with_the_view_where_it_does(rows, tmp_path):
    rising = {f"noise_{number}": 0.2 * number for number in range(1, 6)}
    falling = {"blur_1": 0.3, "blur_2": 0.5, "blur_4": 0.4}  # not all strengths are there
    values, parts = measured("interventions", rows, tmp_path, {**rising, **falling})
    noise, blur = (values["contenders"]["head"][kind] for kind in ("noise", "blur"))
    assert values["views"] == {"blur": ["blur_1", "blur_2", "blur_4"], "noise": [f"noise_{n}" for n in range(1, 6)]}
    center = float(np.median(np.arange(1, ROWS + 1) / 10))
    medians = [median for _, median, _ in noise["quartiles"]]
    assert medians == pytest.approx([center, *(center + 0.2 * n for n in range(1, 6))])
    assert noise["rises"] == [True]
    assert noise["falls_at"] is None
    assert blur["rises"] == [False]
    assert blur["falls_at"] == "blur_4"
    auroc = [numbers["median"] for numbers in noise["auroc"]]
    assert auroc == sorted(auroc)
    # x + 1 exceeds y of the same 40 numbers, .1 apart, in 30 · 31 / 2 pairs fewer and 10 equals fewer
    x = np.arange(1, ROWS + 1) / 10
    difference = np.round(x[:, None] + 1 - x[None], 6)
    assert auroc[-1] == pytest.approx((difference > 0).mean() + (difference == 0).mean() / 2, abs=0.01)
    (words,) = (part.text for part in parts if isinstance(part, Words))
    assert words == "On unseen the median uncertainty does not rise at each step: head with blur, first at blur_4."


def test_violins_count_every_row_once_in_bins_of_one_range():
    steep = np.arange(100.0)
    found = counted([np.zeros(100), steep, np.append(steep[:99], 1e9)])
    assert found["range"] == pytest.approx([0, np.quantile(np.append(steep[:99], 1e9), 0.99)])
    found = counted([np.zeros(100), steep, np.append(steep[:-1], 120.0)])
    low, high = found["range"]
    flat, steep_B, bent = ([int(count) for count in line.split()] for line in found["counts"])
    assert (sum(flat), sum(bent)) == (100, 100)
    assert flat == [100, *[0] * (BINS - 1)]
    width = (high - low) / BINS
    assert steep_B == [
        sum(1 for value in steep if place == min(int((min(value, high) - low) / width), BINS - 1))
        for place in range(BINS)
    ]
    assert found["quartiles"][1] == [24.75, 49.5, 74.25]
    constant = counted([np.full(3, 7.0), np.full(3, 7.0)])
    assert constant["range"] == [3.5, 10.5]
    assert [sum(map(int, line.split())) for line in constant["counts"]] == [3, 3]


def test_a_violin_is_a_kernel_density_of_the_counts():
    rng = np.random.default_rng(0)
    counts = np.bincount(np.clip(rng.normal(20, 5, 400).round(), 0, BINS - 1).astype(int), minlength=BINS)
    rows = np.repeat(np.arange(BINS), counts)
    width = rows.std() * len(rows) ** -0.2
    reflected = np.concatenate([rows, -1 - rows, 2 * BINS - 1 - rows])
    kernel = np.exp(-(((np.arange(BINS)[:, None] - reflected) / width) ** 2) / 2).sum(axis=1)
    assert density(" ".join(map(str, counts))) == pytest.approx(kernel / kernel.sum(), abs=2e-4)
    assert density("7" + " 0" * (BINS - 1)).sum() == pytest.approx(1)


def test_what_an_earlier_version_measured_is_measured_anew_and_nothing_else(rows, tmp_path, monkeypatch):
    head = Contender(name="head", role="head", config={"kind": "head"}, heads={0: Column(0, 0.0, 0)})
    views = Views(rows, {"blur_1": 0.1, "crop_50": 0.1})
    records = Records(tmp_path, ["unseen"], chosen(["interventions", "crop_test"]))
    made = collection(records, "unseen", "downstream", rows, [head], chosen_rows=views, images=False)
    records.measure(made, Silent())
    paths = {name: tmp_path / "analyses" / "unseen" / f"{name}.json" for name in records.versions}
    before = {name: path.read_bytes() for name, path in paths.items()}
    write_json(records.together, {"analyses": list(records.versions)})  # as it was before there were versions
    assert (records.missing("unseen"), records.is_reported()) == ([], False)
    old = json.loads(before["interventions"])
    del old["version"], old["seal"]  # an older one has neither
    write_json(paths["interventions"], {**old, "values": {"of another form": 1}})
    paths["crop_test"].write_bytes(b" " + before["crop_test"])  # would be written without the blank
    assert [item.name for item in records.missing("unseen")] == ["interventions"]
    assert records.measured("unseen") is None
    records.measure(made, Silent())
    assert paths["interventions"].read_bytes() == before["interventions"]
    assert paths["crop_test"].read_bytes() == b" " + before["crop_test"]
    paths["crop_test"].write_text("{ cut off")
    assert [item.name for item in records.missing("unseen")] == ["crop_test"]


def test_agreement_with_people_is_over_those_who_were_asked(rows, tmp_path):
    votes = np.zeros((ROWS, 3), int)
    votes[:, 0] = 20
    votes[:, 1] = np.arange(ROWS) // 2  # ever more of another mind; the first two of one
    votes[-1] = 0
    known = Annotations(keys=tuple(rows.keys[::-1]), votes_NA=votes[::-1], vote_names=("a", "b", "c"))
    values, _ = measured("annotators", rows, tmp_path, annotations=known)
    assert (values["rows"], values["voted"], values["ambiguous"]) == (ROWS, ROWS - 1, ROWS - 2)
    found = values["contenders"]["head"]
    assert found["rank_correlation"]["median"] > 0.999
    assert found["auroc"]["median"] == 1.0


def test_a_collection_judged_by_a_relation_has_its_neighbours(rows, tmp_path):
    from pipeline.relevance import SharedLabels

    everybody = SharedLabels.from_lists([[0, n] for n in range(1, ROWS + 1)])
    related = replace(rows, relevance=everybody)
    records = Records(tmp_path, ["unseen"], [])
    head = Contender(name="head", role="head", config={"kind": "head"}, heads={0: Column(0, 0.0, 0)})
    made = collection(records, "unseen", "downstream", related, [head], images=False)
    assert made.result["recall_at_1"]["median"] == 1.0  # all share a label
    assert made.result["counts"]["counted"] == ROWS
