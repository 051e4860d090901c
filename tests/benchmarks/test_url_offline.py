"""The benchmark in small, whole: heads on the digits, searched, trained, evaluated, and the tables in a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import url_offline
from tests.integration.conftest import SMALL, runs_root

DOCUMENT = "before\n<!-- board -->\n<!-- end -->\nbetween\n<!-- chosen -->\n<!-- end -->\nafter\n"
SMALLER = (
    *SMALL[1:],
    "dataset.images_per_class=2",
    "downstream.digit_pairs_unseen.images_per_class=2",
    "train_head.tuned=true",
    "train_head.steps=20",
    "tune.trials=3",
    "evaluate.compare=[cross_entropy,inverse_norm]",
    "evaluate.analyses=[r_auroc]",
)


@pytest.mark.slow
def test_every_head_is_searched_and_stands_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, into = tmp_path / "page.md", tmp_path / "board"
    document.write_text(DOCUMENT)
    words = ["--experiments", "demo_digits", "--into", str(into), "--report", str(document)]
    settings = [*SMALLER, runs_root(tmp_path / "runs")]
    assert url_offline.main([*words, *settings]) == 0
    page = document.read_text()
    for name in ("loss_prediction", "cross_entropy", "inverse_norm", "classifier_entropy", "random"):
        assert f"| {name} |" in page
    chosen = page.partition("between")[2]
    assert chosen.count(" of 3 |") == 2, "two heads have something to choose"
    assert "| inverse_norm | " in chosen
    assert "as they stand" in chosen
    assert (into / "leaderboard.html").exists()
    capsys.readouterr()
    assert url_offline.main(["--show", *words, *settings]) == 0
    assert document.read_text() == page
    assert "units to do" not in capsys.readouterr().out
