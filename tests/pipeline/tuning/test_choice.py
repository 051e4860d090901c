"""Which trial is taken, on cases worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.sealed import write_sealed
from pipeline.tuning.choice import choose, chosen_head, describe


def trial(r_auroc: float | None, r_at_1: float | None = 0.5, **values: Any) -> dict[str, Any]:
    return {"values": values, **({} if r_auroc is None else {"r_auroc": r_auroc, "r_at_1": r_at_1})}


def test_the_best_of_those_that_still_retrieve() -> None:
    found = choose([trial(0.6), trial(0.9, 0.09, base_lr=1.0), trial(0.7, 0.1, base_lr=2.0), trial(None)], 0.1)
    assert (found["trial"], found["values"], found["r_auroc"]) == (2, {"base_lr": 2.0}, 0.7)
    assert (found["tried"], found["scored"], found["passed"]) == (4, 3, 2)
    assert describe(found) == "trial 2 of 4: R-AUROC 0.700, R@1 0.100 on held-out classes: base_lr=2.0"


def test_the_first_of_equals() -> None:
    assert choose([trial(0.6), trial(0.7, margin=1), trial(0.7, margin=2)], 0.1)["values"] == {"margin": 1}


def test_where_none_retrieves_the_settings_stay_and_it_is_said() -> None:
    found = choose([trial(0.6, 0.01), trial(0.9, 0.05, margin=1), trial(None, margin=2)], 0.1)
    assert (found["trial"], found["values"], found["passed"]) == (0, {}, 0)
    assert "none of 3 trials" in describe(found)


def test_the_head_takes_its_settings_and_not_the_rate(tmp_path: Path) -> None:
    head = {"kind": "loss_prediction", "margin": 0.1, "group": 2}
    with pytest.raises(UserError, match="submit stage=tune"):
        chosen_head(head, tmp_path)
    write_sealed(tmp_path / "choice.json", choose([trial(0.5), trial(0.6, base_lr=1e-3, margin=0.3)], 0.1))
    assert chosen_head(head, tmp_path) == {"kind": "loss_prediction", "margin": 0.3, "group": 2}
