"""The evaluate stage on pairs of digits with a small random backbone; heads are made ready, but not trained."""

import itertools
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stages.base
from pipeline.datasets import check_dataset
from pipeline.errors import UserError
from pipeline.files import read_json, write_bytes
from pipeline.heads import make_head
from pipeline.places import Place
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.training.checkpoints import load_head, save_head
from pipeline.training.config import Sweep
from pipeline.training.subset import SubsetConfig, keys_left_out
from pipeline.training.summary import summarise
from pipeline.training.sweep import head_folders
from stages._evaluated import Evaluated
from stages.base import Experiment, Stage, Status, Unit, complete, make_stage
from stages.train_head import TrainHead
from tests import published, published_judged

RANKING = {"kind": "loss_prediction"}
ANALYSES = ("extremes", "histograms", "rejection", "r_auroc")
L2 = {"kind": "loss_prediction", "objective": "l2"}


class Training(Stage):
    """Stands for train_head: heads as they are before the first step, one a seed and point of the sweep."""

    name = "train_head"
    groups = ("head",)

    def inputs(self) -> tuple[str, ...]:
        return ("cache",)

    def meaning(self) -> Mapping[str, Any]:
        return {"head": dict(self.experiment.head), "cache": self.before("cache").digest}

    def plan(self) -> list[Unit]:
        return [] if all(place.exists() for place in self._places()) else [Unit(id="heads", what="heads")]

    def _places(self) -> list[Place]:
        return head_folders(self.folder, self.config)

    def run(self, unit: Unit, progress: Any) -> None:
        summary = summarise(RepresentationStore.open(self.before("cache").folder / "store"))
        for place, seed in zip(self._places(), itertools.cycle(self.config.seeds), strict=False):
            head = make_head(self.experiment.head, seed=seed)
            head.prepare(summary)
            save_head(place, head, summary, store="", training={}, metrics={})

    def status(self) -> Status:
        return Status(done=1 - len(self.plan()), total=1)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    real = stages.base.stage_class
    monkeypatch.setattr(stages.base, "stage_class", lambda name: Training if name == "train_head" else real(name))


def make_experiment(root: Path) -> Experiment:
    classes = {name: stages.base.stage_class(name).Config for name in ("pack", "cache", "evaluate")}
    return Experiment(
        name="small",
        data_root=root / "data",
        runs_root=root / "runs",
        dataset={"kind": "digit_pairs", "name": "digits", "images_per_class": 1},
        backbone={"model": "test_vit", "weights": "random", "num_classes": 0, "size": 64, "compute": "fp32"},
        head=RANKING,
        settings=("experiment=small", "evaluate.datasets=[unseen]"),
        downstream={"unseen": {"kind": "digit_pairs", "name": "u", "split": "unseen", "images_per_class": 4}},
        compare={"ranking": RANKING, "l2": L2},
        stages={
            "pack": classes["pack"](min_tars=2),
            "cache": classes["cache"](random_views=1, workers=1),
            "train_head": TrainHead.Config(seeds=(0, 1)),
            "evaluate": classes["evaluate"](upstream_rows=40, analyses=ANALYSES, device="cpu"),
        },
    )


def train(experiment: Experiment) -> None:
    for head in (RANKING, L2):
        complete(make_stage("train_head", experiment.with_head(head)), Silent())


def run_all(stage: Stage) -> None:
    stage.prepare()
    for unit in stage.plan():
        stage.run(unit, Silent())
    stage.finish(Silent())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    with pytest.MonkeyPatch.context() as patch:
        real = stages.base.stage_class
        patch.setattr(stages.base, "stage_class", lambda name: Training if name == "train_head" else real(name))
        patch.setattr("pipeline.report.style.DOTS", 40)
        experiment = make_experiment(tmp_path_factory.mktemp("evaluate"))
        train(experiment)
        run_all(make_stage("evaluate", experiment))
    return experiment


def test_what_is_written(finished: Experiment) -> None:
    stage = make_stage("evaluate", finished)
    assert stage.plan() == []
    status = stage.status()
    assert (status.done, status.total, status.samples) == (2, 2, 40 + 120)
    together = json.loads((stage.folder / "results.json").read_text())
    assert together["digest"] == stage.digest
    upstream, unseen = together["results"]
    alone = json.loads((stage.folder / "results" / "unseen.json").read_text())
    assert {**unseen, "seal": alone["seal"]} == {**alone, "analyses": unseen["analyses"]}
    assert (upstream["role"], unseen["role"]) == ("upstream", "downstream")
    assert (upstream["counts"]["rows"], upstream["counts"]["stored"]) == (40, 70)
    assert (unseen["counts"]["classes"], unseen["counts"]["lone"], unseen["counts"]["counted"]) == (30, 0, 120)
    assert unseen["about"]["title"] == "Pairs of scikit-learn digits"
    names = [(item["name"], item["role"], item["seeds"]) for item in unseen["contenders"]]
    assert names == [
        ("loss_prediction", "head", [0, 1]),
        ("l2", "compare", [0, 1]),
        ("classifier_entropy", "baseline", []),
        ("inverse_norm", "baseline", [0]),
        ("random", "baseline", [0, 1]),
    ], "the head is not compared with itself"
    assert "no class head" in unseen["contenders"][2]["absent"]
    for item in unseen["contenders"]:
        if item["seeds"]:
            assert item["non_interference"] == {"embedding_identical": True, "recall_at_1_identical": True}
    assert (stage.folder / "table.md").read_text().count("\n| ") == 2 * 5
    assert unseen["analyses"].keys() == {"extremes", "histograms", "rejection"}
    assert together["comparisons"].keys() == {"r_auroc"}
    assert len(list((stage.folder / "analyses" / "unseen" / "extremes").iterdir())) == 24
    assert (stage.folder / "report.html").read_text().count('src="data:image/jpeg') == 24
    assert stage.summary()[-1] == f"evaluate: {stage.folder / 'report.html'}"
    told = "submit stage=evaluate experiment=small &#39;evaluate.datasets=[unseen]&#39;"
    assert f"<code>{told}</code>" in (stage.folder / "report.html").read_text()
    assert make_stage("evaluate", replace(finished, settings=())).folder == stage.folder, "they decide nothing"
    assert any("loss_prediction" in line and "unseen" in line for line in stage.summary())


def test_each_point_of_a_sweep_is_a_method_of_its_own(finished: Experiment) -> None:
    swept = replace(finished.stages["train_head"], sweep=Sweep(base_lr=(1e-3, 0.1)))
    experiment = replace(finished, stages={**finished.stages, "train_head": swept})
    train(experiment)
    found = make_stage("evaluate", experiment)._contenders  # type: ignore[attr-defined]
    assert [(item.name, item.role, list(item.heads)) for item in found[:4]] == [
        ("loss_prediction base_lr-0.001", "head", [0, 1]),
        ("loss_prediction base_lr-0.1", "compare", [0, 1]),
        ("l2 base_lr-0.001", "compare", [0, 1]),
        ("l2 base_lr-0.1", "compare", [0, 1]),
    ]


def test_the_table_of_rows_is_what_the_head_says(finished: Experiment) -> None:
    """Recomputed from the store's own arrays and the stored head, without the evaluation's code."""
    stage = make_stage("evaluate", finished)
    table = np.load(stage.folder / "rows" / "unseen.npz")
    stores = [
        path for path in finished.runs_root.glob("cache-*/store") if len(RepresentationStore.open(path).keys()) == 120
    ]
    store = RepresentationStore.open(stores[0])
    assert store.layout.views == ("center",)
    assert [key.decode() for key in table["key"]] == store.keys()
    representation = torch.from_numpy(store.load("embedding", view=0).astype(np.float32))
    for seed in (0, 1):
        head = load_head(make_stage("train_head", finished).folder / f"seed-{seed}")
        with torch.inference_mode():
            output = head(representation)
        column = table[f"uncertainty/loss_prediction/{seed}/{output.primary}"]
        assert column == pytest.approx(output.uncertainty_B.numpy(), rel=1e-5)
    similarity = torch.nn.functional.normalize(representation.double(), dim=1)
    similarity = (similarity @ similarity.T).fill_diagonal_(-1)
    label = torch.from_numpy(table["label"])
    right = label[similarity.argmax(dim=1)] == label
    assert table["correct"].tolist() == right.tolist()


def test_another_head_touches_no_image(finished: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_images(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr("pipeline.images.packed.read_tar", no_images)
    monkeypatch.setattr("pipeline.images.packing.write_tar", no_images)
    stages_ = {**finished.stages, "evaluate": replace(finished.stages["evaluate"], analyses=("histograms",))}
    other = replace(finished, head=L2, compare={}, stages=stages_)
    stage = make_stage("evaluate", other)
    stage.prepare()
    stage.run(stage.plan()[1], Silent())
    first = json.loads((stage.folder / "results" / "unseen.json").read_text())["contenders"][0]
    assert first["name"] == "loss_prediction objective=l2"
    before = json.loads((make_stage("evaluate", finished).folder / "results" / "unseen.json").read_text())
    assert first["scores"] == before["contenders"][1]["scores"]


def test_the_same_bytes_again_also_with_faiss(
    finished: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    elsewhere = replace(finished.stages["evaluate"], output=tmp_path / "again", search="faiss")
    stage = make_stage("evaluate", replace(finished, stages={**finished.stages, "evaluate": elsewhere}))
    monkeypatch.setattr("pipeline.report.style.DOTS", 40)
    monkeypatch.setattr("pipeline.metrics.nearest.candidates", None)  # calling ours would be an error
    run_all(stage)
    original = make_stage("evaluate", finished).folder
    files = sorted(path.relative_to(original) for path in original.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(stage.folder) for path in stage.folder.rglob("*") if path.is_file())
    different = [str(file) for file in files if (original / file).read_bytes() != (stage.folder / file).read_bytes()]
    assert different == []


def test_faiss_that_is_not_installed_is_said_before_any_work(
    finished: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    config = replace(finished.stages["evaluate"], output=tmp_path / "run", search="faiss")
    stage = make_stage("evaluate", replace(finished, stages={**finished.stages, "evaluate": config}))
    with pytest.raises(UserError, match=r"pip install 'hedgerow\[faiss\]'"):
        stage.plan()


def test_an_analysis_that_is_added_takes_the_stored_scores(
    finished: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(*args: Any) -> None:
        raise AssertionError("scored again")

    def stage_with(*analyses: str) -> Stage:
        config = replace(finished.stages["evaluate"], output=tmp_path / "run", analyses=analyses)
        return make_stage("evaluate", replace(finished, stages={**finished.stages, "evaluate": config}))

    monkeypatch.setattr("pipeline.report.style.DOTS", 40)
    run_all(stage_with("histograms"))
    page = tmp_path / "run" / "report.html"
    assert stage_with("histograms").status().done == 2
    assert "R@1 of the images that are kept" not in page.read_text()
    monkeypatch.setattr("pipeline.evaluation.scoring.run_head", again)
    monkeypatch.setattr("pipeline.evaluation.scoring.retrieve", again)
    stage = stage_with("histograms", "rejection", "r_auroc")
    assert stage.digest == make_stage("evaluate", finished).digest
    assert (len(stage.plan()), stage.status().done) == (2, 0)
    run_all(stage)
    assert (stage.plan(), stage.status().done) == ([], 2)
    assert "R@1 of the images that are kept" in page.read_text()
    original = make_stage("evaluate", finished).folder
    for name in ("analyses/unseen/rejection.json", "comparisons/r_auroc.json", "plots/unseen_rejection.png"):
        assert (tmp_path / "run" / name).read_bytes() == (original / name).read_bytes()
    assert stage_with("histograms").status().done == 2, "fewer analyses are no other evaluation"
    with pytest.raises(UserError, match=r"unknown analysis 'histogram'. Did you mean 'histograms'"):
        stage_with("histogram").plan()


def test_a_damaged_file_of_an_analysis_is_found_and_made_again(finished: Experiment, tmp_path: Path) -> None:
    config = replace(finished.stages["evaluate"], output=tmp_path / "run", analyses=("extremes",))
    stage = make_stage("evaluate", replace(finished, stages={**finished.stages, "evaluate": config}))
    stage.prepare()
    stage.run(stage.plan()[1], Silent())
    assert stage.verify(Silent()) == []
    image = tmp_path / "run" / "analyses" / "unseen" / "extremes" / "least_certain_03.jpg"
    good = image.read_bytes()
    image.write_bytes(good[:-1])
    assert ["least_certain_03.jpg" in problem for problem in stage.verify(Silent())] == [True]
    stage.run(stage.plan()[1], Silent())
    assert (image.read_bytes() == good, [unit.id for unit in stage.plan()]) == (True, ["upstream"])


def test_a_damaged_table_is_found_and_made_again(finished: Experiment, tmp_path: Path) -> None:
    config = replace(finished.stages["evaluate"], output=tmp_path / "run", analyses=())
    stage = make_stage("evaluate", replace(finished, stages={**finished.stages, "evaluate": config}))
    stage.prepare()
    stage.run(stage.plan()[1], Silent())
    assert stage.status().done == 1
    assert stage.verify(Silent()) == []
    table = tmp_path / "run" / "rows" / "unseen.npz"
    good = table.read_bytes()
    table.write_bytes(good[:-1])
    assert ["unseen" in problem for problem in stage.verify(Silent())] == [True]
    assert [unit.id for unit in stage.plan()] == ["upstream", "unseen"]
    stage.run(stage.plan()[1], Silent())
    assert table.read_bytes() == good


def test_what_is_damaged_is_found_wherever_it_is_and_made_again(
    finished: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody who asks how far it is meets an error; verify names each file, and the same command makes its bytes."""
    monkeypatch.setattr("pipeline.report.style.DOTS", 40)
    stage = make_stage("evaluate", finished)
    config = replace(finished.stages["evaluate"], output=tmp_path / "run")
    copy = make_stage("evaluate", replace(finished, stages={**finished.stages, "evaluate": config}))
    shutil.copytree(stage.folder, tmp_path / "run")
    cut, flipped = (
        ("results/upstream.json", "comparisons/r_auroc.json"),
        ("analyses/unseen/extremes.json", "results.json"),
    )
    pages = ("report.html", "plots/r_auroc.png")
    assert copy.verify(Silent()) == []
    good = {name: (tmp_path / "run" / name).read_bytes() for name in (*cut, *flipped, *pages)}
    for name in cut:
        (tmp_path / "run" / name).write_bytes(good[name][: len(good[name]) // 2])
    for name in flipped:
        (tmp_path / "run" / name).write_bytes(re.sub(rb"0\.[0-8]", rb"0.9", good[name], count=1))
    assert (copy.status().done, [unit.id for unit in copy.plan()]) == (0, ["upstream", "unseen"])
    said = copy.verify(Silent())
    assert len(said) == len(cut + flipped)
    assert all(any(name in line for line in said) for name in cut + flipped), said
    run_all(copy)
    assert {name: (tmp_path / "run" / name).read_bytes() for name in good} == good
    for name in pages:
        (tmp_path / "run" / name).write_bytes(good[name][:-1])
    said = copy.verify(Silent())
    assert [name in line for name, line in zip(sorted(pages), said, strict=True)] == [True, True]
    assert copy.status().done == 1, "the report is made again"


def test_nothing_counts_as_done_before_the_report(
    finished: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(folder: Path, *rest: Any) -> None:
        write_bytes(folder / "report.html", b"")

    monkeypatch.setattr("pipeline.report.build.write_report", page)
    config = replace(finished.stages["evaluate"], output=tmp_path / "run", analyses=(), upstream_rows=0)
    stage = make_stage("evaluate", replace(finished, stages={**finished.stages, "evaluate": config}))
    stage.prepare()
    assert [unit.id for unit in stage.plan()] == ["unseen"]
    stage.run(stage.plan()[0], Silent())
    assert (stage.plan(), stage.status().done) == ([], 0)
    stage.finish(Silent())
    assert stage.status().done == 1


def test_a_head_that_is_not_trained(finished: Experiment) -> None:
    wide = {"kind": "loss_prediction", "hidden": 64}
    with pytest.raises(UserError, match=r"Run: submit stage=train_head head=wide$"):
        make_stage("evaluate", replace(finished, compare={"wide": wide})).plan()
    with pytest.raises(UserError, match=r"Run: submit stage=train_head$"):
        make_stage("evaluate", replace(finished, head=wide)).plan()


def test_the_dataset_that_heads_are_trained_on_is_no_test_under_another_name(finished: Experiment) -> None:
    """It is refused; with few shots the rest of it is a test, and what was trained on is left out under any name."""
    again = {**finished.dataset, "name": "again"}
    experiment = replace(finished, downstream={"again": again, "part": {**again, "images_per_class": 3}})
    with pytest.raises(UserError, match=r"evaluate.datasets: again is the very dataset that heads are trained on"):
        make_stage("evaluate", experiment).plan()
    few = replace(experiment, stages={**finished.stages, "train_head": TrainHead.Config(seeds=(0, 1), shots=1)})
    left_out = [Evaluated(few)._left_out(unit) for unit in ("upstream", "again", "part")]
    assert len(left_out[0]) == 70
    assert left_out == [left_out[0]] * 3


def few_shots(experiment: Experiment, shots: int | None, without: int | None, heads: Place | None = None) -> Experiment:
    """The experiment with so many images of each class trained on, and those of so many left out of the test."""
    training = TrainHead.Config(seeds=(0, 1), shots=shots, init_from=heads)
    evaluating = replace(experiment.stages["evaluate"], without_shots=without, upstream_rows=5000, analyses=())
    return replace(experiment, stages={**experiment.stages, "train_head": training, "evaluate": evaluating})


def test_numbers_of_shots_have_one_test_with_the_head_as_it_was(tmp_path: Path) -> None:
    """Points of a curve are those of one test: none of its images is trained on, and all heads are judged on it."""
    made = replace(make_experiment(tmp_path), dataset={"kind": "digit_pairs", "name": "d", "images_per_class": 6})
    made = replace(made, downstream={}, compare={})
    complete(make_stage("train_head", made), Silent())
    heads = make_stage("train_head", made).folder
    tests, before = [], []
    for shots in (1, 2, 3):
        stage = make_stage("evaluate", few_shots(made, shots, without=3, heads=heads))
        complete(stage, Silent())
        result = read_json(stage.folder / "results" / "upstream.json")
        store = RepresentationStore.open(stage.before("cache").folder / "store")
        shots_alone = keys_left_out(store, SubsetConfig(shots=shots))
        keys = Evaluated(stage.experiment).chosen("upstream").keys
        assert not shots_alone & {key.encode() for key in keys}
        tests.append((keys, result["images_sha256"]))
        (as_it_was,) = [one for one in result["contenders"] if one["name"].endswith("before training")]
        before.append((as_it_was["recall_at_1"], as_it_was["scores"]))
    assert len(tests[0][0]) == 70 * (6 - 3)
    assert tests == [tests[0]] * 3
    assert before == [before[0]] * 3
    with pytest.raises(UserError, match=r"all 420 rows .* lower train_head\.shots, and evaluate\.without_shots"):
        complete(make_stage("evaluate", few_shots(made, 1, without=6, heads=heads)), Silent())


@pytest.mark.parametrize(("shots", "says"), [(4, r" is less than .*shots=4.*4 or more"), (None, ": .*all rows")])
def test_a_test_without_fewer_shots_than_are_trained_on_is_refused(
    finished: Experiment, shots: int | None, says: str
) -> None:
    with pytest.raises(UserError, match=rf"evaluate\.without_shots=3{says}"):
        make_stage("evaluate", few_shots(finished, shots, without=3)).plan()


def test_shots_left_out_name_another_run_and_none_the_same_as_ever(finished: Experiment) -> None:
    stages = [make_stage("evaluate", few_shots(finished, 2, without)) for without in (None, 2, 10)]
    assert "without_shots" not in stages[0].meaning()["config"]
    assert len({stage.digest for stage in stages}) == 3
    assert len({stage.before("train_head").digest for stage in stages}) == 1


def test_images_that_heads_are_trained_on_are_no_test_in_another_part_either(finished: Experiment) -> None:
    """`split` is `all` unless it is said: the unseen third of a folder all of which trains was reported as unseen."""
    folder = {"kind": "image_folder", "name": "f", "root": "birds", "class_folds": 3}
    for ours, theirs in (("all", "unseen"), ("seen", "all"), ("seen", "seen")):
        experiment = replace(
            finished, dataset={**folder, "split": ours}, downstream={"test": {**folder, "split": theirs}}
        )
        with pytest.raises(UserError, match=r"test is the very dataset .* or a part of it.*dataset\.split=seen"):
            make_stage("evaluate", experiment).plan()
    split = replace(finished, dataset={**folder, "split": "seen"}, downstream={"test": {**folder, "split": "unseen"}})
    assert Evaluated(split).seen() == []

    more = replace(finished, downstream={"more": {**finished.dataset, "images_per_class": 2}})
    assert Evaluated(more).seen() == []  # not by its settings, but by what it holds
    complete(Evaluated(more).cache_of("more"), Silent())
    with pytest.raises(UserError, match="70 of the 140 images of more are images that heads are trained on, the"):
        Evaluated(more).rows("more")
    part = replace(more, stages={**finished.stages, "train_head": TrainHead.Config(seeds=(0, 1), only_units=(0,))})
    left = len(Evaluated(part).rows("more").keys)
    assert 70 < left < 140  # what the part does not train on


def test_the_same_published_images_are_seen_under_another_kind_and_in_another_place(
    finished: Experiment, tmp_path: Path
) -> None:
    """CIFAR-10H is the test batch of CIFAR-10: heads trained on the one were evaluated on the other as unseen."""
    for place in "ab":
        published_judged.make_cifar10h(tmp_path / place)
    ours = check_dataset({"kind": "cifar10", "root": str(tmp_path / "a")})
    theirs = check_dataset({"kind": "cifar10h", "root": str(tmp_path / "b")})
    experiment = replace(finished, dataset=ours, downstream={"people": theirs})
    for cache in (make_stage("cache", experiment), Evaluated(experiment).cache_of("people")):
        complete(cache, Silent())
    with pytest.raises(UserError, match="12 of the 12 images of people are images that heads are trained on"):
        Evaluated(experiment).rows("people")


def test_nothing_to_evaluate(finished: Experiment) -> None:
    config = replace(finished.stages["evaluate"], upstream_rows=0)
    stage = make_stage("evaluate", replace(finished, downstream={}, stages={**finished.stages, "evaluate": config}))
    with pytest.raises(UserError, match="no dataset to evaluate"):
        stage.plan()


def test_all_datasets_that_are_missing_are_named_at_once(finished: Experiment, tmp_path: Path) -> None:
    absent = {kind: {"kind": kind, "name": kind, "root": str(tmp_path / kind)} for kind in ("cub200", "svhn")}
    stage = make_stage("evaluate", replace(finished, downstream={**absent, **finished.downstream}))
    sources = stage.sources()
    assert [name for name, problem in sources.items() if problem] == ["cub200", "svhn"]
    with pytest.raises(UserError) as caught:
        stage.plan()
    assert str(caught.value) == f"{sources['cub200']}\n{sources['svhn']}"
    for kind in ("cub200", "svhn"):
        assert f"downstream.{kind}: {kind}: no folder at {tmp_path / kind}. Expected there: " in str(caught.value)
        assert f"downstream.{kind}.…" in sources[kind]
    published.make_svhn(tmp_path / "svhn")
    assert [name for name, problem in stage.sources().items() if problem] == ["cub200"]


def test_a_dataset_with_a_result_is_not_looked_for(finished: Experiment) -> None:
    assert make_stage("evaluate", finished).sources() == {}


def test_an_upstream_cache_without_the_view(finished: Experiment) -> None:
    cache = replace(finished.stages["cache"], views=())
    with pytest.raises(UserError, match=r"no view 'center'.*evaluate.upstream_rows=0"):
        make_stage("evaluate", replace(finished, stages={**finished.stages, "cache": cache})).plan()


def test_another_config_in_the_same_folder_is_refused(finished: Experiment) -> None:
    folder = make_stage("evaluate", finished).folder
    config = replace(finished.stages["evaluate"], output=folder, metric="l2")
    stage = make_stage("evaluate", replace(finished, stages={**finished.stages, "evaluate": config}))
    with pytest.raises(UserError, match=r'config\.metric: "cosine" → "l2"'):
        stage.prepare()


def test_a_part_of_a_dataset_gets_the_views_that_are_asked_for_and_votes_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.report.style.DOTS", 20)
    base = make_experiment(tmp_path)
    published_judged.make_voted("turkey", tmp_path / "data/turkey", count=1)
    turkey = check_dataset({"kind": "turkey", "root": str(tmp_path / "data/turkey"), "part": "train"})
    evaluate = replace(
        base.stages["evaluate"],
        upstream_rows=0,
        views=("blur_1", "crop_50"),
        views_of=("unseen",),
        view_rows=7,
        analyses=("interventions", "crop_test", "annotators"),
    )
    experiment = replace(
        base,
        downstream={**base.downstream, "turkey": turkey},
        compare={},
        stages={**base.stages, "evaluate": evaluate},
    )
    complete(make_stage("train_head", experiment), Silent())
    stage = make_stage("evaluate", experiment)
    run_all(stage)
    records = {
        name: read_json(stage.folder / f"analyses/{name}.json")
        for name in (
            "unseen/interventions",
            "unseen/crop_test",
            "unseen/annotators",
            "turkey/interventions",
            "turkey/annotators",
        )
    }
    assert records["unseen/interventions"]["values"]["rows"] == 7
    assert records["unseen/interventions"]["values"]["views"] == {"blur": ["blur_1"], "crop": ["crop_50"]}
    assert records["unseen/crop_test"]["values"]["sizes"] == [50]
    assert "nobody voted" in records["unseen/annotators"]["absent"]
    assert "has no view blur_" in records["turkey/interventions"]["absent"]
    assert records["turkey/annotators"]["values"]["voted"] == 9
    views = stage.evaluated.cache_of_views("unseen")
    store = RepresentationStore.open(views.folder / "store")
    assert store.layout.views == ("center", "blur_1", "crop_50")
    whole = RepresentationStore.open(stage.evaluated.cache_of("unseen").folder / "store")
    part = {tuple(np.round(row, 2)) for row in store.representations(view=0)[:, :4]}
    assert part <= {tuple(np.round(row, 2)) for row in whole.representations(view=0)[:, :4]}  # of the same images
    stages_with = {**experiment.stages, "evaluate": replace(evaluate, views_of=("nothing",))}
    with pytest.raises(UserError, match=r"evaluate\.views_of: nothing is not among"):
        make_stage("evaluate", replace(experiment, stages=stages_with)).plan()
