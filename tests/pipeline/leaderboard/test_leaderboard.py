"""Runs become entries: seeds are put together, what contradicts is told apart, means are taken seed by seed."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
import yaml

from pipeline.errors import UserError
from pipeline.leaderboard import read_board, write_board
from pipeline.leaderboard.plots import scatter
from pipeline.leaderboard.tables import as_csv, as_latex, as_markdown
from pipeline.metrics.aggregate import plain_numbers
from pipeline.metrics.undefined import Undefined
from pipeline.report.escape import markdown
from pipeline.report.style import LIGHT


def contender(name, role, seeds, r_auroc, recall=0.5):
    numbers = {"median": None, "distance": None, "values": [], "undefined": "all are right"}
    if r_auroc is not None:
        numbers = plain_numbers(r_auroc)
    scores = dict.fromkeys(("r_auroc", "aurc", "e_aurc", "augrc"), numbers)
    config = {"kind": name}
    common = {"name": name, "role": role, "config": config, "seeds": seeds, "absent": None}
    return {**common, "primary": "u", "recall_at_1": plain_numbers([recall] * len(seeds)), "scores": {"u": scores}}


@pytest.fixture
def run(tmp_path):
    def make(
        name,
        datasets,
        *,
        model="net",
        training=None,
        upstream=(),
        shapes=(),
        counted=7,
        probe="p",
        cache="c",
        tune=None,
        images=None,
    ):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        results = [
            {
                "dataset": dataset,
                "role": "upstream" if dataset in upstream else "downstream",
                "counts": {"counted": counted},
                "contenders": contenders,
                **({"images_sha256": images} if images else {}),
                "analyses": {
                    "histograms": {
                        "values": {n: {"edges": [0, 1, 2], "right": [3, 1], "wrong": [0, 2]} for n in shapes}
                    }
                },
            }
            for dataset, contenders in datasets.items()
        ]
        meaning = {"backbone": {"model": model}, "dataset": {"kind": "d"}, "config": {"metric": "cosine"}}
        meaning["inputs"] = {"cache": cache, "probe": probe, "train_head": name}
        (folder / "results.json").write_text(json.dumps({"experiment": name, "results": results}))
        (folder / "run.json").write_text(json.dumps({"meaning": meaning}))
        (folder / "config.yaml").write_text(
            yaml.safe_dump({"train_head": {"seeds": [0], "base_lr": 1.0, **(training or {})}, "tune": tune or {}})
        )
        return folder

    return make


def values(board):
    return {entry.name: entry.average(board.datasets, "r_auroc")["values"] for entry in board.entries}


def test_seeds_of_several_runs_are_one_entry_and_a_baseline_counts_once(run):
    chance = contender("random", "baseline", [0], [0.5])
    one = run("one", {"cub": [contender("elk", "head", [0, 1], [0.6, 0.7]), chance]})
    two = run("two", {"cub": [contender("elk", "head", [4], [0.9]), chance]}, training={"seeds": [4], "device": "cuda"})
    board = read_board([one, two])
    assert values(board) == {"elk": [0.6, 0.7, 0.9], "random": [0.5]}
    assert board.entries[0].numbers("cub", "r_auroc")["median"] == 0.7
    assert board.entries[0].numbers("cub", "r_auroc")["distance"] == pytest.approx(0.2)  # to the farther extreme
    assert (board.entries[0].seeds, board.rows) == ([0, 1, 4], {"cub": 7})


def test_a_head_that_another_run_calls_otherwise_is_the_same_entry_and_that_is_said(run, tmp_path):
    """The experiment's own head is called after its settings, one beside it after its file."""
    own = {**contender("loss_prediction objective=l2", "head", [0, 1], [0.6, 0.7]), "config": {"kind": "k"}}
    beside = {**contender("loss_prediction_l2", "compare", [1, 4], [0.7, 0.9]), "config": {"kind": "k"}}
    one, two = run("one", {"cub": [own]}), run("two", {"cub": [beside]}, shapes=["loss_prediction_l2"])
    board = read_board([one, two])
    assert values(board) == {"loss_prediction objective=l2": [0.6, 0.7, 0.9]}
    said = "loss_prediction objective=l2, net: also loss_prediction_l2 in two, with the same settings."
    assert markdown(said) in as_markdown(board)
    write_board(tmp_path / "board", board, "submit leaderboard")
    assert said in (tmp_path / "board" / "leaderboard.html").read_text()
    assert (tmp_path / "board" / "plots" / "leaderboard_histograms_cub.png").exists(), (
        "the histogram of the run that has it"
    )


def test_points_of_a_sweep_and_heads_before_training_stay_apart_whatever_the_rest_of_their_name(run):
    def heads(name, value):
        ends = ("base_lr-0.1", "base_lr-0.2", "before training")
        found = [contender(f"{name} {end}", "head", [0], [value + place / 10]) for place, end in enumerate(ends)]
        return {"cub": [{**item, "config": {"kind": "k"}} for item in found]}

    training = {"sweep": {"base_lr": [0.1, 0.2], "weight_decay": []}}
    board = read_board([run(name, heads(name, 0.5), training=training) for name in ("one", "two")])
    assert values(board) == {"one before training": [0.7], "one base_lr-0.2": [0.6], "one base_lr-0.1": [0.5]}


def test_other_training_another_value_or_another_backbone_is_another_entry(run):
    def head(value):
        return {"cub": [contender("elk", "head", [0], [value])]}

    runs = [run("a", head(0.6)), run("b", head(0.7), training={"base_lr": 2.0}), run("c", head(0.8))]
    board = read_board([*runs, run("d", head(0.9), model="other")])
    assert values(board) == {"elk": [0.9], "elk (c)": [0.8], "elk (b)": [0.7], "elk (a)": [0.6]}
    assert [entry.backbone for entry in board.entries] == ["other", "net", "net", "net"]


def test_the_entropy_of_another_probe_is_another_entry(run):
    """Its seed tells two of them not apart: an entropy has none of its own."""
    places = {"a": ([0], 0.6, "p"), "b": ([1], 0.7, "q"), "c": ([2], 0.7, "q")}
    made = [
        run(name, {"cub": [contender("classifier_entropy", "baseline", seeds, [value] * len(seeds))]}, probe=probe)
        for name, (seeds, value, probe) in places.items()
    ]
    assert values(read_board(made)) == {"classifier_entropy (b)": [0.7, 0.7], "classifier_entropy (a)": [0.6]}


def test_baselines_that_no_classifier_makes_are_one_entry_whatever_the_probe(run):
    made = [
        run(probe, {"cub": [contender("inverse_norm", "baseline", [0], [0.5])]}, probe=probe, cache=probe)
        for probe in "pq"
    ]
    assert values(read_board(made)) == {"inverse_norm": [0.5]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"cache": "c"}, {"cache": "d"}),
        ({"probe": "p"}, {"probe": "q"}),
        ({"training": {"tuned": True}, "tune": {"trials": 4}}, {"training": {"tuned": True}, "tune": {"trials": 9}}),
    ],
)
def test_what_a_head_learnt_from_is_part_of_the_method(run, one, other):
    """Other seeds of other views, losses or settings: they were put together as seeds of one method."""
    first = run("a", {"cub": [contender("elk", "head", [0], [0.6])]}, **one)
    second = run("b", {"cub": [contender("elk", "head", [1], [0.8])]}, **other)
    assert values(read_board([first, second])) == {"elk (b)": [0.8], "elk (a)": [0.6]}


def test_a_run_that_contradicts_on_one_dataset_is_kept_together(run):
    """What it says of a dataset that the first run lacks had gone to the first run's entry."""
    one = run("one", {"cub": [contender("elk", "head", [0], [0.6])]})
    two = run("two", {"cub": [contender("elk", "head", [0], [0.7])], "cars": [contender("elk", "head", [0], [0.1])]})
    board = read_board([one, two])
    assert {entry.name: sorted(entry.values) for entry in board.entries} == {
        "elk (two)": ["cars", "cub"],
        "elk (one)": ["cub"],
    }


def test_runs_of_the_same_folder_name_are_told_apart(run):
    made = [run(f"{root}/x", {"cub": [contender("elk", "head", [0], [value])]}) for root, value in (("a", 1), ("b", 2))]
    assert set(values(read_board(made))) == {f"elk ({folder})" for folder in made}


def test_other_images_of_a_name_are_refused(run):
    heads = {"cub": [contender("elk", "head", [0], [0.6])]}
    with pytest.raises(UserError, match=r"one and .*two have other images of cub \(counted: 7 → 9\)"):
        read_board([run("one", heads), run("two", heads, counted=9)])
    with pytest.raises(UserError, match=r"three and .*four have other images of cub \(as many, with other keys"):
        read_board([run("three", heads, images="i"), run("four", heads, images="j")])
    assert read_board([run("five", heads, images="i"), run("six", heads)]).rows == {"cub": 7}  # an older record


def test_means_are_taken_seed_by_seed_and_a_dataset_that_lacks_is_said(run):
    full = contender("elk", "head", [0, 1], [0.6, 0.8])
    one = run("one", {"cub": [full], "cars": [contender("elk", "head", [1, 2], [0.4, 0.2])]})
    two = run("two", {"cub": [contender("hib", "head", [0], [0.99])]})
    board = read_board([one, two])
    assert values(board) == {"elk": [pytest.approx(0.6)], "hib": []}  # seed 1 alone is in both
    assert board.entries[1].average(board.datasets, "r_auroc")["undefined"] == "not evaluated on cars"
    assert "- hib, net: no mean R-AUROC: not evaluated on cars." in as_markdown(board)


def test_undefined_stays_undefined_with_its_reason(run):
    board = read_board(
        [run("one", {"cub": [contender("elk", "head", [0], None), contender("hib", "head", [0], [0.4])]})]
    )
    assert values(board) == {"hib": [0.4], "elk": []}
    assert board.entries[1].numbers("cub", "r_auroc")["undefined"] == "all are right"
    assert isinstance(board.entries[1].values["cub"]["r_auroc"][0], Undefined)


def test_the_table_in_its_forms(run):
    best, other = contender("a_b", "head", [0], [0.75], 0.9), contender("c|d", "compare", [0, 1], [0.5, 0.7])
    board = read_board([run("one", {"x": [best, other], "y": [best, other]})])
    lines = as_markdown(board).splitlines()
    assert lines[0] == "| Score | Backbone | mean R@1 | mean R-AUROC | x | y | Seeds |"
    assert lines[2] == "| a_b | net | **0.900** | **0.750** | **0.750** | **0.750** | 1 |"
    assert lines[3] == "| c\\|d | net | 0.500 | 0.600 ± 0.100 | 0.600 ± 0.100 | 0.600 ± 0.100 | 2 |"
    assert r"a\_b & net & \textbf{0.900} & \textbf{0.750}" in as_latex(board)
    assert r"0.600 $\pm$ 0.100" in as_latex(board)
    found = list(csv.DictReader(io.StringIO(as_csv(board))))
    assert len(found) == 2 * 3 * 5
    line = next(row for row in found if (row["score"], row["dataset"], row["metric"]) == ("c|d", "mean", "r_auroc"))
    assert [float(line[key]) for key in ("median", "distance", "min", "max", "seeds")] == pytest.approx(
        [0.6, 0.1, 0.5, 0.7, 2]
    )


def test_no_name_breaks_a_table(run):
    odd = contender("[=1|<b>*", "head", [0], [0.75])
    board = read_board(
        [run("one", {"=x\ny": [{**odd, "name": "=1+1", "config": {"kind": "another"}}, odd]}, model="@net")]
    )
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in as_markdown(board).splitlines()] == [6] * 4
    assert r"\[=1\|&lt;b>\*" in as_markdown(board)
    assert r"{}[=1\textbar{}\textless{}b\textgreater{}* & @net" in as_latex(board)
    found = list(csv.DictReader(io.StringIO(as_csv(board))))
    assert {row["score"] for row in found} == {"'=1+1", "[=1|<b>*"}
    assert {(row["backbone"], row["dataset"]) for row in found} == {("'@net", "'=x\ny"), ("'@net", "mean")}


@pytest.mark.parametrize("methods", [3, 12])
def test_more_methods_than_colours_have_numbers_beside_their_points(run, methods):
    board = read_board([run("one", {"d": [contender(f"m{n}", "head", [0], [n / 20]) for n in range(methods)]})])
    drawn = scatter(board).draw(LIGHT)
    beside = {text.get_text(): text.xy[1] for text in drawn.axes[0].texts}
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert len(set(labels)) == methods
    if methods == 3:
        assert beside == {}
    else:
        named = {label.split()[1]: beside[label.split()[0]] for label in labels}
        assert named == {f"m{n}": n / 20 for n in range(methods)}


def test_nothing_is_bold_where_all_are_equal(run):
    alike = [contender(name, "head", [0], [value]) for name, value in (("a", 0.6), ("b", 0.7))]
    lines = as_markdown(read_board([run("one", {"x": alike})])).splitlines()
    assert lines[2:] == ["| b | net | 0.500 | **0.700** | 1 |", "| a | net | 0.500 | 0.600 | 1 |"]


def test_the_page_needs_nothing_beside_it(run, tmp_path):
    one = run(
        "one",
        {"x": [contender("a<b", "head", [0], [0.75]), contender("r", "baseline", [0], [0.5])]},
        shapes=["a<b", "r"],
    )
    paths = write_board(tmp_path / "out", read_board([one]), "submit leaderboard …")
    assert [path.name for path in paths] == ["leaderboard.html", "leaderboard.md", "leaderboard.csv", "leaderboard.tex"]
    page = paths[0].read_text()
    assert "a&lt;b" in page
    assert "a<b" not in page
    assert not re.search(r"""(src|href|srcset)=["'](?!data:|#)""", page)
    assert page.count("<img") == 3
    assert "right 0.5, wrong 1.5" in page


def test_what_is_no_finished_evaluation_is_said(run, tmp_path):
    with pytest.raises(UserError, match=r"nowhere has no results.json.*submit stage=evaluate"):
        read_board([tmp_path / "nowhere"])
    one = run("one", {"up": [contender("elk", "head", [0], [0.6])]}, upstream=["up"])
    with pytest.raises(UserError, match="none of the 1 runs has a downstream dataset"):
        read_board([one])
    (one / "config.yaml").write_text("a: [b")
    with pytest.raises(UserError, match=r"config\.yaml is damaged"):
        read_board([one], upstream=True)
    (one / "config.yaml").unlink()
    assert values(read_board([one], upstream=True)) == {"elk": [0.6]}


@pytest.mark.parametrize("cut", [3, 12, 40])
def test_a_config_that_is_cut_off_is_no_other_training(run, cut):
    """What was left of it was read, and the settings that were gone made another method, or one of two."""
    folder = run("one", {"cub": [contender("elk", "head", [0], [0.6])]}, training={"weight_decay": 0.25})
    text = (folder / "config.yaml").read_bytes()
    (folder / "config.yaml").write_bytes(text[:-cut])
    with pytest.raises(UserError, match=r"one/config\.yaml is damaged"):
        read_board([folder])
