"""The few-shot curve: what of an evaluation goes into which line, and what the tables say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import few_shot
from benchmarks._few_shot_tables import Curves, draw, table
from pipeline.errors import UserError
from pipeline.files import write_json


def contender(name: str, role: str, r_auroc: float | None, recall: float = 0.5) -> dict[str, object]:
    values = {"values": [] if r_auroc is None else [r_auroc]}
    return {
        "name": name,
        "role": role,
        "absent": None,
        "primary": "u",
        "scores": {"u": {"r_auroc": values}},
        "recall_at_1": {"values": [recall]},
    }


@pytest.fixture
def curves() -> Curves:
    made = Curves(shots=[1, 10])
    for seed, plus in ((0, 0.0), (1, 0.1)):
        for shots in (1, 10):
            found = [
                contender("elk", "head", 0.6 + plus + shots / 100),
                contender("elk before training", "compare", 0.5 + plus),
                contender("classifier_entropy", "baseline", 0.4),
                contender("inverse_norm", "baseline", 0.3),
                contender("random", "baseline", 0.5),
            ]
            for one in found:
                made.add(one, head="elk", shots=shots, seed=seed, probed=False)
            made.add(
                contender("loss_prediction", "head", None), head="loss_prediction", shots=shots, seed=seed, probed=True
            )
            made.add(found[2], head="loss_prediction", shots=shots, seed=seed, probed=True)
    return made


def test_lines_of_a_table(curves: Curves) -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(curves, "r_auroc").splitlines()]
    assert rows[0] == ["R-AUROC, k =", "0", "1", "10", "seeds"]
    assert rows[2] == ["`elk`", "0.550 (0.500–0.600)", "0.660 (0.610–0.710)", "0.750 (0.700–0.800)", "2"]
    assert rows[3] == ["`loss_prediction`", "–", "–", "–", "0"], "undefined, and not known before training"
    probe = ["entropy of a probe on the shots", "–", *["0.400 (0.400–0.400)"] * 2, "2"]
    assert rows[4] == probe, "only where the store has one"
    assert rows[5] == ["entropy of the backbone's classifier", *["0.400 (0.400–0.400)"] * 3, "2"]
    assert rows[6] == ["inverse norm", *["0.300 (0.300–0.300)"] * 3, "2"]
    assert len(rows) == 7


def test_the_picture(curves: Curves, tmp_path: Path) -> None:
    draw(curves, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    draw(Curves(shots=[1]), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_every_point_is_judged_by_the_same_test(tmp_path: Path) -> None:
    root = f"runs_root={tmp_path}"
    bench = few_shot.Bench(
        upstream=["experiment=demo_heads", root],
        downstream=["experiment=few_shot", root],
        heads=["elk", "loss_prediction"],
        shots=[1, 10],
        seeds=[3],
    )
    for head in bench.heads:
        write_json(bench.pretraining(head, 3).folder / "seed-3" / "head.json", {"head": head})
    stages = {(head, shots): bench.judging(head, shots, seed) for seed, head, shots in bench.points()}
    assert len({stage.digest for stage in stages.values()}) == len(stages) == 4
    assert {stage.experiment.stages["evaluate"].without_shots for stage in stages.values()} == {10}
    for (head, shots), stage in stages.items():
        training = stage.experiment.stages["train_head"]
        assert (training.shots, training.shots_seed, training.seeds) == (shots, 3, (3,))
        assert str(training.init_from) == str(bench.pretraining(head, 3).folder / "seed-3")
    stores = {key: stage.before("cache").folder for key, stage in stages.items()}
    assert stores["elk", 1] == stores["elk", 10] == bench.filling().folder
    assert len({*stores.values()}) == 3, "a store has the scores of one probe"


def test_settings_that_are_wrong_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert few_shot.main(["--show", "train_head.stepz=3"]) == 2
    assert "stepz" in capsys.readouterr().err
    with pytest.raises(UserError, match="no_such"):
        few_shot.Bench(upstream=["experiment=no_such"], downstream=[], heads=[], shots=[1], seeds=[0]).pretraining(
            "elk", 0
        )
