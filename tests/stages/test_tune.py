"""The search over a store that a cache left: trials one by one, the choice, and training with what was chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.evaluation.rows import ChosenRows
from pipeline.evaluation.scoring import Scorer
from pipeline.files import read_json
from pipeline.heads.loss_prediction import LossPrediction
from pipeline.interruption import Interrupted, ask_to_stop, forget, stop_if_asked
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.sealed import read_sealed, write_sealed
from pipeline.training.checkpoints import load_head
from pipeline.training.loop import TrainingDivergedError
from pipeline.tuning import trial as trials
from stages.base import Experiment, Stage, make_stage
from tests.asking import AskAfter
from tests.pipeline.training.conftest import make_store
from tests.stages.tiny import tiny

HEAD = {"kind": "loss_prediction", "hidden": 8, "layers": 1}
Make = Callable[..., Experiment]


@pytest.fixture
def experiment(tmp_path: Path) -> Make:
    def make(head: Any = HEAD, runs: str = "runs", train: Any = (), **search: Any) -> Experiment:
        training = {"steps": 12, "batch_size": 32, "device": "cpu", "seeds": [3], **dict(train)}
        looked_for = {"trials": 4, "validation_classes": 0.5, **search}
        made = tiny(tmp_path, head, runs=runs, train_head=training, tune=looked_for)
        store = make_stage("cache", made).folder / "store"
        if not store.exists():
            make_store(store, [90, 60], labels=(0, 1, 2, 3), classes="abcd")
        return made

    return make


def files(folder: Path) -> dict[str, bytes]:
    """What a search leaves, but for what it cost and how fast it was."""
    of_the_run = ("cost.json", "log.csv")
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in of_the_run]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_trials_and_a_choice_and_nothing_left(experiment: Make) -> None:
    it = make_stage("tune", experiment())
    assert (it.status().done, it.status().total) == (0, 4)
    it.prepare()
    units = it.plan()
    assert [unit.id for unit in units] == ["trial-00", "trial-01", "trial-02", "trial-03"]
    for unit in units:
        it.run(unit, Silent())
    assert (it.plan(), it.status().done) == ([], 3)
    it.finish(Silent())
    assert (it.plan(), it.status().done, it.status().samples) == ([], 4, 4 * 12 * 32)
    records = [read_sealed(it.folder / f"{unit.id}.json") for unit in units]
    best = max(range(4), key=lambda place: records[place]["r_auroc"])
    assert read_sealed(it.folder / "choice.json")["trial"] == best
    assert f"trial {best} of 4" in it.summary()[0]
    assert it.verify(Silent()) == []
    assert not list(it.folder.glob("**/head.safetensors")), "weights of trials are not kept"
    assert read_json(it.folder / "trial-00" / "cost.json")["cpu_seconds"] >= 0


def test_a_trial_is_judged_on_classes_that_it_never_saw(experiment: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is what a head scores that was trained by hand on the rows of the other classes alone."""
    made = experiment()
    it = make_stage("tune", made)
    seen: list[int] = []
    loss = LossPrediction.loss
    monkeypatch.setattr(
        LossPrediction, "loss", lambda head, batch: seen.extend(batch.row_B.tolist()) or loss(head, batch)
    )
    monkeypatch.setattr(trials, "WEIGHTS", "kept")
    it.prepare()
    it.run(it.plan()[1], Silent())
    store = RepresentationStore.open(make_stage("cache", made).folder / "store")
    label_N = np.concatenate([label_R for _, label_R in store.column("label")])
    trained = {int(label) for label in label_N[seen]}
    assert len(trained) == 2
    rows = ChosenRows(store, among_N=~np.isin(label_N, list(trained))).rows("center")
    assert len({int(label) for label in rows.label_N}) == 2
    scores = Scorer(rows).score(load_head(it.folder / "trial-01" / "seed-0"))
    record = read_sealed(it.folder / "trial-01.json")
    assert (record["r_auroc"], record["r_at_1"]) == (scores.r_auroc(), scores.retrieval.recall_at_1)
    assert record["rows"] == len(rows.keys)


def test_interrupted_anywhere_it_ends_with_the_same_bytes(experiment: Make) -> None:
    train = {"checkpoint_seconds": 0, "log_every": 2}.items()
    calm = make_stage("tune", experiment(runs="calm", train=train))
    _after_cache(calm)
    it = make_stage("tune", experiment(train=train))
    it.prepare()
    stops = 0
    while units := it.plan():
        try:
            it.run(units[0], AskAfter(4 * 32 - 1, of="train_head"))
        except Interrupted:
            stops += 1
        finally:
            forget()
    it.finish(Silent())
    assert files(it.folder) == files(calm.folder)
    assert stops >= 8


def test_asked_to_stop_while_it_is_judged_it_is_not_trained_again(
    experiment: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = make_stage("tune", experiment())
    it.prepare()
    with monkeypatch.context() as patched:
        patched.setattr(trials, "_judge", lambda *_: ask_to_stop() or stop_if_asked())
        with pytest.raises(Interrupted):
            it.run(it.plan()[0], Silent())
    forget()
    monkeypatch.setattr(trials, "train", None)
    it.run(it.plan()[0], Silent())
    assert it.plan()[0].id == "trial-01"


def test_a_damaged_head_of_a_trial_is_trained_again(experiment: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a trial was cut off between training and judging; its bytes said "damaged" in the record before."""
    calm = make_stage("tune", experiment(runs="calm"))
    _after_cache(calm)
    it = make_stage("tune", experiment())
    it.prepare()
    with monkeypatch.context() as patched:
        patched.setattr(trials, "_judge", lambda *_: ask_to_stop() or stop_if_asked())
        with pytest.raises(Interrupted):
            it.run(it.plan()[0], Silent())
    forget()
    path = it.folder / "trial-00" / "seed-0" / "head.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    _after_cache(it)
    assert files(it.folder) == files(calm.folder)


def _after_cache(stage: Stage) -> None:
    stage.prepare()
    for unit in stage.plan():
        stage.run(unit, Silent())
    stage.finish(Silent())


def test_training_takes_what_was_chosen(experiment: Make) -> None:
    made = experiment(train={"tuned": True}.items())
    training = make_stage("train_head", made)
    assert training.folder != make_stage("train_head", experiment()).folder
    with pytest.raises(UserError, match=r"tune is not done .*Run: submit stage=tune"):
        training.plan()
    tune = make_stage("tune", made)
    assert tune.folder == make_stage("tune", experiment()).folder, "who takes the choice does not change it"
    _after_cache(tune)
    values = read_sealed(tune.folder / "trial-02.json")["values"]
    choice = {**read_sealed(tune.folder / "choice.json"), "values": values}  # whichever was the best
    write_sealed(tune.folder / "choice.json", choice)
    training.prepare()
    training.run(*training.plan(), Silent())
    record = read_json(training.folder / "seed-3" / "head.json")
    assert record["training"]["base_lr"] == values["base_lr"]
    assert {key: record["head"][key] for key in ("margin", "group")} == {
        key: values[key] for key in ("margin", "group")
    }


def test_what_diverges_is_a_result_and_not_chosen(experiment: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    train = trials.train

    def diverging(**arguments: Any) -> None:
        if arguments["config"].base_lr < 0.001:
            raise TrainingDivergedError("diverged at step 3")
        train(**arguments)

    monkeypatch.setattr(trials, "train", diverging)
    it = make_stage("tune", experiment())
    _after_cache(it)
    assert read_sealed(it.folder / "trial-02.json")["why"] == "diverged at step 3"
    choice = read_sealed(it.folder / "choice.json")
    assert choice["scored"] == 3
    assert choice["trial"] != 2


def test_one_trial_where_there_is_nothing_to_choose(experiment: Make) -> None:
    it = make_stage("tune", experiment(head={"kind": "inverse_norm"}))
    _after_cache(it)
    assert (it.status().done, it.status().total, it.plan()) == (1, 1, [])
    assert read_sealed(it.folder / "choice.json")["values"] == {}


def test_a_damaged_record_is_found_and_made_again(experiment: Make) -> None:
    it = make_stage("tune", experiment())
    _after_cache(it)
    before = files(it.folder)
    path = it.folder / "trial-01.json"
    path.write_bytes(path.read_bytes().replace(b"r_at_1", b"r_at_2"))
    (problem,) = it.verify(Silent())
    assert problem.startswith("unit trial-01: ")
    assert [unit.id for unit in it.plan()] == ["trial-01"]
    _after_cache(it)
    assert files(it.folder) == before


@pytest.mark.parametrize(
    ("search", "train", "message"),
    [
        ({"validation_classes": 0.2}, {}, "holds out 1 of 4 classes"),
        ({"view": "crop_40"}, {}, "has no view 'crop_40'"),
        ({}, {"sweep": {"base_lr": [1e-3]}}, "leave train_head.sweep out"),
        ({}, {"init_from": "elsewhere"}, "leave train_head.init_from out"),
    ],
)
def test_what_cannot_be_searched_is_refused(experiment: Make, search: Any, train: Any, message: str) -> None:
    it = make_stage("tune", experiment(train=train.items(), **search))
    it.prepare()
    with pytest.raises(UserError, match=message):
        it.run(it.plan()[0], Silent())
    assert not list(it.folder.glob("trial-*.json"))


def test_the_folder_is_that_of_what_decides(experiment: Make) -> None:
    same = make_stage("tune", experiment()).folder
    no_matter = {"seeds": [5], "threads": 3, "tuned": True, "engine": "deepspeed"}
    assert make_stage("tune", experiment(train=no_matter.items())).folder == same
    others = [experiment(trials=5), experiment(seed=1), experiment(train={"steps": 13}.items()), experiment(view="x")]
    assert len({same, *(make_stage("tune", one).folder for one in others)}) == 5
