"""Every row of the configs is one that can be run; a run is done once; tables say what was found."""

import multiprocessing
import time
from dataclasses import replace

import pytest

from benchmarks.reproductions import controlled, lam_fashion, n_digits, runs
from benchmarks.reproductions.controlled import __main__ as controlled_command
from benchmarks.reproductions.controlled.settings import Settings
from benchmarks.reproductions.lam_fashion.__main__ import COLUMNS as OF_FASHION
from benchmarks.reproductions.lam_fashion.settings import Settings as FashionSettings
from benchmarks.reproductions.n_digits.__main__ import COLUMNS as OF_DIGITS
from benchmarks.reproductions.n_digits.settings import Settings as DigitSettings
from benchmarks.reproductions.tables import bars_of, cell, markdown, show
from pipeline.errors import UserError

PLANS = [
    ("controlled", Settings, controlled_command.COLUMNS),
    ("n_digits", DigitSettings, OF_DIGITS),
    ("lam_fashion", FashionSettings, OF_FASHION),
]


@pytest.mark.parametrize(("name", "config", "columns"), PLANS)
def test_every_row_is_in_a_table_and_has_settings_of_its_own(name, config, columns):
    plan = runs.Plan.read(name)
    made = plan.runs(config, plan.tables, {})
    assert set(made) == set(plan.rows)
    assert all(len(of_row) == len(plan.seeds) >= 3 for of_row in made.values())
    paths = [run.result_in(runs.CONFIGS) for of_row in made.values() for run in of_row]
    assert len({path.name.split("-", 1)[1] for path in paths}) == len(paths)  # no two rows are the same
    assert set(plan.paper) <= set(plan.rows)
    assert all(len(values) == len(columns) for values in plan.paper.values())
    assert all(package.__doc__ for package in (controlled, lam_fashion, n_digits))


def test_a_run_is_done_once_and_other_settings_are_another_run(tmp_path):
    plan, calls = runs.Plan.read("controlled"), []

    def work(settings, state, progress):
        calls.append((settings.method, settings.seed))
        return {"scores": {"value": 2.0 * settings.seed}, "cpu_seconds": 1.0}

    made = plan.runs(Settings, ["losses"], {})
    runs.perform(work, made, tmp_path, workers=1)
    assert calls[:4] == [(method, 0) for method in ("mc_info_nce", "elk", "hib", "info_nce")]  # seed by seed
    assert len(calls) == 20
    runs.perform(work, made, tmp_path, workers=1)
    assert len(calls) == 20
    assert [result["scores"]["value"] for result in runs.found(made, tmp_path)["elk"]] == [0, 2, 4, 6, 8]
    assert not runs.found(plan.runs(Settings, ["losses"], runs.overrides_of(["steps=7"])), tmp_path)["elk"]


def _fails_or_takes_for_ever(settings, state, progress):
    if settings.seed == 0:
        raise UserError("it cannot be done")
    time.sleep(600)


def test_one_that_fails_ends_those_that_are_computed_beside_it_and_no_others(tmp_path):
    made = runs.Plan.read("controlled").runs(Settings, ["losses"], {})
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    other.start()
    try:
        before = set(multiprocessing.active_children())
        with pytest.raises(UserError, match="it cannot be done"):
            runs.perform(_fails_or_takes_for_ever, {"elk": made["elk"][:2]}, tmp_path, workers=2)
        assert set(multiprocessing.active_children()) == before
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_what_is_asked_wrongly_is_refused():
    plan = runs.Plan.read("controlled")
    with pytest.raises(UserError, match=r"no table lossses\. There are: losses, "):
        plan.runs(Settings, ["lossses"], {})
    with pytest.raises(UserError, match="Did you mean 'steps'"):
        plan.runs(Settings, ["losses"], {"step": 3})
    with pytest.raises(UserError, match="name=value"):
        runs.overrides_of(["steps"])


def test_cells_and_tables():
    assert cell([1.0, 2.0, 4.0], 1) == "2.0 ± 2.0"
    assert cell([1.234], 2) == "1.23"
    assert cell([3e7, 5e7], 2) == "4e+07"
    assert cell([1.0, None], 2) == cell([], 2) == "–"
    assert markdown(["", "a"], [["b", "1"]]) == "|  | a |\n| --- | --: |\n| b | 1 |"


def test_bars_are_of_medians_and_differences():
    bars = [
        {"what": "a", "row": "one", "score": "x", "at_least": 2.0},
        {"what": "b", "row": "one", "over": "two", "score": "y.z", "at_most": 0.5},
        {"what": "c", "row": "three", "score": "x", "at_least": 0.0},
    ]
    results = {
        "one": [{"scores": {"x": x, "y": {"z": x + 1}}} for x in (1.0, 2.0, 9.0)],
        "two": [{"scores": {"y": {"z": 2.0}}}],
    }
    lines = bars_of(bars, results).splitlines()[2:]
    assert lines[0] == "| a | ≥ 2.0 | 2.000 | 3 | yes |"
    assert lines[1] == "| b | ≤ 0.5 | 1.000 | 3 and 1 | no |"
    assert lines[2] == "| c | ≥ 0.0 | – | 0 | not known |"


def test_tables_go_into_their_document(tmp_path, capsys):
    document = tmp_path / "a.md"
    document.write_text("one\n<!-- t -->\nold\n<!-- end -->\ntwo\n")
    for _ in range(2):
        show({"t": "| new |"}, document)
        assert document.read_text() == "one\n<!-- t -->\n| new |\n<!-- end -->\ntwo\n"
    assert "| new |" in capsys.readouterr().out
    with pytest.raises(UserError, match="<!-- u -->"):
        show({"u": ""}, document)


def test_a_part_of_the_tables_leaves_the_others_in_the_document(tmp_path, monkeypatch, capsys):
    def scores(settings, state, progress):
        one = {"location_rmse": 0.5, "location_rank": 0.5, "kappa_rmse": 0.5, "kappa_rank": 0.5, "median_kappa": 0.5}
        return {"scores": one, "cpu_seconds": 60.0}

    drawn = []
    made = replace(
        controlled_command.REPRODUCTION,
        work=lambda options: scores,
        draw=lambda results, folder: drawn.append(folder),
    )
    document, names = tmp_path / "a.md", ["bars", *runs.Plan.read("controlled").tables]
    document.write_text("".join(f"<!-- {name} -->\nas it was\n<!-- end -->\n" for name in names))

    def untouched(*tables):
        command = ["controlled", "--seeds", "0", "1", "--output", f"{tmp_path}/out", "--report", str(document)]
        monkeypatch.setattr("sys.argv", [*command, "--tables", *tables])
        assert made.main() == 0
        parts = document.read_text().split("<!-- end -->\n")
        return [name for name, part in zip(names, parts, strict=False) if part.endswith("\nas it was\n")]

    assert untouched("architecture", "families") == sorted({*names} - {"architecture", "families"}, key=names.index)
    assert "bars" in untouched("variants")
    assert not drawn
    assert "bars" not in untouched("losses")
    assert drawn == [tmp_path]
    assert "| ELK, rank correlation of κ̂ | ≥ 0.92 | 0.500 | 2 | no |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "document"),
    [("controlled", "controlled_experiment"), ("n_digits", "n_digit_mnist"), ("lam_fashion", "lam_fashion_mnist")],
)
def test_the_documents_have_a_place_for_every_table(name, document):
    text = (runs.CONFIGS.parents[1] / "docs" / "results" / f"{document}.md").read_text()
    for table in ("bars", *runs.Plan.read(name).tables):
        assert text.count(f"<!-- {table} -->\n") == 1
