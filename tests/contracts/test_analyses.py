"""What every analysis promises, for every one that is found; a new one needs nothing here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline.analyses import CollectionAnalysis, chosen, make_analysis
from pipeline.analyses._records import Records
from pipeline.discovery import names
from pipeline.evaluation import Contender
from pipeline.evaluation.collection import Collection
from pipeline.progress import Silent
from pipeline.report.look import Look
from pipeline.report.parts import Context, Download, Figure, Gallery, Table, Words
from pipeline.report.style import LIGHT, drawing, png
from tests.made_up import Column, MadeUpChosen, cloud, collection, contenders, made_up_rows, on_sphere, votes

NAMES = [name for name in names("pipeline.analyses") if not make_analysis(name).lacking]
ROLES = {"upstream": "upstream", "unseen": "downstream"}
VIEWS = ("center", "crop_50", "blur_1", "blur_2")


@pytest.fixture(scope="module", autouse=True)
def coarse_plots() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.report.style.DOTS", 30)
        patch.setattr("pipeline.analyses.advantage.DRAWS", 40)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Records, list[Collection]]:
    records = Records(tmp_path_factory.mktemp("analyses"), list(ROLES), chosen(NAMES))
    found = []
    for place, (unit, role) in enumerate(ROLES.items()):
        rows = made_up_rows(120, 9, place)
        right_N = np.arange(120) % 3 > 0
        views = MadeUpChosen(rows, VIEWS, {"top1_correct": right_N, "task_loss": right_N * 1.0, "label": rows.label_N})
        more = [
            Contender(name=f"loss {n}", role="compare", config={"kind": "x"}, heads={0: Column(0, n / 4, n)})
            for n in range(6)
        ]
        methods = [*contenders()[:2], cloud(), on_sphere(), *more, *contenders()[2:]]
        found.append(collection(records, unit, role, rows, methods, chosen_rows=views, annotations=votes(rows)))
    return records, found


def measured(item: Any, records: Records, made: list[Collection]) -> tuple[Any, Context]:
    """Its record, and what it may look at."""
    look = Look.of([one.result for one in made])
    if isinstance(item, CollectionAnalysis):
        only = Records(records.folder, list(ROLES), [item])
        only.measure(made[-1], Silent())
        return only.read(only.of(made[-1].id))[item.name], Context(results=[made[-1].result], look=look)
    only = Records(records.folder, list(ROLES), [item])
    only.compare(made, Silent())
    return only.read(only.of_all)[item.name], Context(results=[one.result for one in made], look=look)


@pytest.mark.parametrize("name", NAMES)
def test_it_measures_the_same_plain_values_again_and_shows_them(name: str, made: Any) -> None:
    item = make_analysis(name)
    record, context = measured(item, *made)
    assert item.title
    if record["values"] is None:
        assert record["absent"]
        assert not record["absent"].endswith("."), "the report says: Not applicable: <clause>."
        return
    again = item.measure(made[1][-1]) if isinstance(item, CollectionAnalysis) else item.compare(made[1])
    assert json.dumps(again, allow_nan=False) == json.dumps(record["values"])
    parts = list(item.show(record["values"], context))
    assert parts, "what was measured is shown"
    figures = [part.name for part in parts if isinstance(part, Figure)]
    assert len(figures) == len(set(figures)), "each plot has a name of its own"
    for part in parts:
        check(part, set(record["files"]), rasterised=True)


def check(part: Any, files: set[str], *, rasterised: bool) -> None:
    if isinstance(part, Figure):
        assert len(part.words) > 20
        assert part.caption
        with drawing(LIGHT):
            drawn = part.draw(LIGHT)
            assert not rasterised or png(drawn)
        legends = [*drawn.legends, *(axes.get_legend() for axes in drawn.axes)]
        assert all(len(one.get_texts()) <= 10 for one in legends if one), "see Look.drawn: more cannot be told apart"
    elif isinstance(part, Table):
        assert part.caption
        assert part.rows
        assert {len(row) for row in part.rows} == {len(part.columns)}
        assert not part.classes or len(part.classes) == len(part.rows)
        assert all(cell.value is not None or cell.reason or cell.text in ("–", "") for row in part.rows for cell in row)
    elif isinstance(part, Gallery):
        assert all(picture.file is None or picture.file in files for picture in part.pictures)
        assert all(picture.words for picture in part.pictures)
    elif isinstance(part, Download):
        assert part.file in files
    else:
        assert isinstance(part, Words)


@pytest.fixture(scope="module", params=["unlabelled", "all_alone", "all_alike", "one_method", "two_rows"])
def odd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Records, Collection]:
    rows = made_up_rows(2 if request.param == "two_rows" else 24, 4, 0)
    if request.param == "unlabelled":
        rows = replace(rows, label_N=np.full(24, -1, dtype=np.int32))
    if request.param == "all_alone":
        rows = replace(rows, label_N=np.arange(24, dtype=np.int32), class_names=tuple(f"class {i}" for i in range(24)))
    if request.param == "all_alike":
        rows = replace(rows, representation_ND=np.ones_like(rows.representation_ND))
    methods = [contenders()[3]] if request.param == "one_method" else contenders()
    views = MadeUpChosen(
        rows, VIEWS, {"top1_correct": rows.label_N > 0, "task_loss": rows.label_N * np.nan, "label": rows.label_N}
    )
    records = Records(tmp_path_factory.mktemp("odd"), ["unseen"], chosen(NAMES))
    return records, collection(records, "unseen", "downstream", rows, methods, chosen_rows=views, images=False)


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(make_analysis(name), CollectionAnalysis)])
def test_odd_collections_are_measured_or_said_to_be_odd(name: str, odd: tuple[Records, Collection]) -> None:
    """Nothing raises: a record says the values, or why there are none; what is undefined is said in the parts."""
    item, (whole, one) = make_analysis(name), odd
    records = Records(whole.folder, ["unseen"], [item])
    records.measure(one, Silent())
    record = records.read(records.of("unseen"))[name]
    assert (record["values"] is None) == bool(record["absent"])
    if record["values"] is not None:
        context = Context(results=[one.result], look=Look.of([one.result]))
        for part in item.show(record["values"], context):
            check(part, set(record["files"]), rasterised=False)


def test_nothing_that_computes_is_imported_with_them() -> None:
    """Whoever asks how far an evaluation is knows the quick analyses, and waits neither for torch nor for plots."""
    script = (
        "import sys; from pipeline.analyses import chosen\n"
        "from pipeline.analyses._records import Records; chosen(['all'])\n"
        "heavy = {'torch', 'zarr', 'matplotlib', 'sklearn', 'scipy', 'jinja2', 'PIL'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_choice_of_analyses() -> None:
    quick = [item.name for item in chosen(["quick"])]
    assert [item.name for item in chosen(["quick", "-rejection"])] == [name for name in quick if name != "rejection"]
    assert [item.name for item in chosen(["rejection", "histograms"])] == ["histograms", "rejection"], "by place"
    assert chosen([]) == []
    assert sorted(item.name for item in chosen(["all"])) == names("pipeline.analyses")
