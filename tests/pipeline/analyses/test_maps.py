"""Maps: what is shown of which row, and what is said where the package is missing. The layouts are others' work."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from pipeline.analyses import make_analysis
from pipeline.analyses._records import Records
from pipeline.analyses.base import NotApplicable
from pipeline.errors import UserError
from pipeline.report.look import Look
from pipeline.report.parts import Context
from pipeline.report.style import LIGHT, drawing, png
from tests.made_up import collection, made_up_rows


@pytest.mark.parametrize("name", ["tsne", "umap"])
def test_each_row_stands_at_its_place_with_its_rank_and_class(name, tmp_path, monkeypatch):
    made = collection(Records(tmp_path, ["x"], []), "x", "downstream", made_up_rows(60, 12, 0), images=False)
    item = make_analysis(name)
    monkeypatch.setattr("pipeline.analyses._map.ROWS", 40)
    monkeypatch.setattr(type(item), "layout", lambda self, representation_RD, metric: representation_RD[:, :2])
    values = item.measure(made)
    assert values == item.measure(made)
    at = {tuple(round(float(x), 3) for x in made.rows.representation_ND[row, :2]): row for row in range(60)}
    rows = [at[place] for place in zip(values["x"], values["y"], strict=True)]
    assert len(set(rows)) == 40
    uncertainty = made.present[0].shown.uncertainty["score"]
    assert [rows[place] for place in np.argsort(values["rank"])] == sorted(rows, key=lambda row: uncertainty[row])
    for row, label in zip(rows, values["label"], strict=True):
        if label >= 0:
            assert values["classes"][label] == made.rows.class_name(row)
    (part,) = item.show(values, Context(results=[made.result], look=Look.of([made.result])))
    assert "40 of 60 images" in part.caption
    with drawing(LIGHT), monkeypatch.context() as patch:
        patch.setattr("pipeline.report.style.DOTS", 30)
        assert png(part.draw(LIGHT))


def test_a_package_that_is_missing_is_said_before_anything_is_done(tmp_path, monkeypatch):
    item = make_analysis("tsne")
    monkeypatch.setattr(type(item), "packages", ("no_such_module",))
    with pytest.raises(UserError, match=r"tsne needs no_such_module, .*pip install 'hedgerow\[maps\]'"):
        Records(tmp_path, ["x"], [item]).require()
    Records(tmp_path, ["x"], [make_analysis("curation")]).require()


@pytest.mark.parametrize("name", ["tsne", "umap"])
def test_images_that_are_all_alike_have_no_map(name, tmp_path):
    """openTSNE gave NaN for them, which is no JSON; the packages are not asked for here."""
    rows = made_up_rows(20, 3, 0)
    rows.representation_ND[:] = 1
    made = collection(Records(tmp_path, ["x"], []), "x", "downstream", rows, images=False)
    with pytest.raises(NotApplicable, match="all images alike"):
        make_analysis(name).measure(made)


def test_a_map_where_numba_can_keep_nothing(tmp_path, monkeypatch):
    """As in a container whose packages and home folder can only be read: openTSNE 1.0.4 with numba 0.68 did not run."""
    made = collection(Records(tmp_path, ["x"], []), "x", "downstream", made_up_rows(20, 3, 0), images=False)
    numba = ModuleType("numba")
    numba.config = SimpleNamespace(CACHE_DIR="")
    monkeypatch.setitem(sys.modules, "numba", numba)
    item, kept = make_analysis("tsne"), []

    def layout(self, representation_RD, metric):
        if not numba.config.CACHE_DIR:
            raise RuntimeError("cannot cache function 'seed': no locator available for file 'pynndescent/utils.py'")
        kept.append(Path(numba.config.CACHE_DIR).is_dir())
        return representation_RD[:, :2]

    monkeypatch.setattr(type(item), "layout", layout)
    assert len(item.measure(made)["x"]) == 20
    assert kept == [True]
    monkeypatch.setattr(type(item), "layout", lambda *_: (_ for _ in ()).throw(RuntimeError("another")))
    with pytest.raises(RuntimeError, match="another"):
        item.measure(made)
