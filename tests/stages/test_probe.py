"""What the stage writes into the store comes from probes that never saw the row; refusals; resuming."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.config import parse
from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.probing.saved import load_probe
from pipeline.probing.settings import fold_of
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore, StoreLayout, UnitInfo, UnitRows, fit_rows
from pipeline.training.subset import SubsetConfig, keys_left_out
from stages.base import Experiment, Stage, Status
from stages.probe import Probe

WIDTH, CLASSES, COUNTS = 48, 4, (60, 0, 80)
NAMES = [f"c{index}" for index in range(CLASSES)]
STREAM = {"solver": "stream", "memory_gb": 1e-9, "l2": [0.1, 0.01], "min_steps": 30, "batch_size": 64, "window": 50}
SOLVERS = pytest.mark.parametrize("solver", [{}, STREAM], ids=["exact", "stream"])


def write_store(
    path: Path, *, classifier: bool = False, informative: bool = True, only: frozenset[str] | None = None
) -> RepresentationStore:
    """Of rows whose keys are not in ``only``, the embedding is another and the label is not told."""
    rows, chunk_rows = fit_rows(max(COUNTS), WIDTH, "float16")
    layout = StoreLayout(
        units=tuple(UnitInfo(name=f"{unit:05d}.tar") for unit in range(len(COUNTS))),
        rows=rows,
        views=("center", "random0"),
        width=WIDTH,
        view_params=("flip",),
        key_bytes=12,
        chunk_rows=chunk_rows,
    )
    store = RepresentationStore.create(path, layout, {"class_names": NAMES, "classifier": classifier})
    centre_CD = np.random.default_rng(9).normal(size=(CLASSES, WIDTH)) * informative
    for unit, count in enumerate(COUNTS):
        rng = np.random.default_rng(unit)
        label_R = rng.integers(CLASSES, size=count).astype(np.int32)
        embedding_RVD = 3 + centre_CD[label_R][:, None] + rng.normal(size=(count, 2, WIDTH))
        label_R[:: max(count, 1)] = -1  # the first row of each unit is unlabelled
        keys = [f"u{unit}/{row}" for row in range(count)]
        if only is not None:
            other_R = np.array([key not in only for key in keys], dtype=bool)
            label_R[other_R] = -1
            embedding_RVD[other_R] = rng.normal(size=(other_R.sum(), 2, WIDTH))
        store.write_unit(
            unit,
            UnitRows(
                embedding_RVD=embedding_RVD.astype(np.float32),
                view_params_RVP=np.zeros((count, 2, 1), np.float32),
                label_R=label_R,
                keys=keys,
                scores={},
            ),
        )
    return store


@pytest.fixture
def make_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Probe]:
    """A probe stage after a cache whose store is at ``<tmp>/<where>/cache/store``."""

    def make(where: str = "a", *, cached: Status | None = None, **values: Any) -> Probe:
        folder = tmp_path / where
        experiment = Experiment(
            name="test",
            data_root=folder,
            runs_root=folder / "runs",
            dataset={"kind": "toy"},
            backbone={"model": "toy"},
            head={},
            downstream={},
            compare={},
            stages={"probe": parse(Probe.Config, values, "probe")},
        )
        status = cached or Status(done=len(COUNTS), total=len(COUNTS), samples=sum(COUNTS))
        cache = SimpleNamespace(folder=folder / "cache", digest="0" * 64, status=lambda: status)

        def before(stage: Stage, name: str) -> Any:
            assert name in stage.inputs()
            return cache

        monkeypatch.setattr(Probe, "before", before)
        return Probe(experiment)

    return make


def complete(stage: Probe) -> None:
    """What an executor does."""
    stage.prepare()
    for unit in stage.plan():
        stage.run(unit, Silent())
    stage.finish(Silent())


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@SOLVERS
def test_every_score_is_that_of_the_fold_that_never_saw_the_row(
    solver: dict[str, Any], make_stage: Callable[..., Probe], tmp_path: Path
) -> None:
    write_store(tmp_path / "a/cache/store")
    stage = make_stage(folds=3, **solver)
    complete(stage)
    store = RepresentationStore.open(stage.store_path)
    loss_NV, entropy_NV, correct_NV = (store.load(name) for name in ("task_loss", "entropy", "top1_correct"))
    embedding_NVD, label_N = store.load("embedding").astype(np.float64), store.load("label")
    for row, key in enumerate(store.keys()):
        classifier = load_probe(stage.folder, f"fold-{fold_of(key, stage.settings)}")
        probability_VC = softmax(
            embedding_NVD[row] @ classifier.weight_CD.numpy().T.astype(np.float64) + classifier.bias_C.numpy()
        )
        np.testing.assert_allclose(entropy_NV[row], -(probability_VC * np.log(probability_VC)).sum(axis=1), atol=1e-4)
        if label_N[row] < 0:
            assert np.isnan(loss_NV[row]).all()
            assert not correct_NV[row].any()
        else:
            np.testing.assert_allclose(loss_NV[row], -np.log(probability_VC[:, label_N[row]]), atol=1e-4)
            assert (correct_NV[row] == (probability_VC.argmax(axis=1) == label_N[row])).all()


def test_nothing_leaks(make_stage: Callable[..., Probe], tmp_path: Path) -> None:
    """Where representations say nothing of the labels, the probe on all rows finds patterns, the folds must not."""
    write_store(tmp_path / "a/cache/store", informative=False)
    stage = make_stage(l2=[1e-4])
    complete(stage)
    store = RepresentationStore.open(stage.store_path)
    label_N, embedding_NVD = store.load("label"), store.load("embedding").astype(np.float32)
    probe = load_probe(stage.folder)
    seen_NV = (embedding_NVD @ probe.weight_CD.numpy().T + probe.bias_C.numpy()).argmax(axis=2) == label_N[:, None]
    unseen_NV = store.load("top1_correct")
    chance, labelled_N = 1 / CLASSES, label_N >= 0
    assert seen_NV[labelled_N].mean() > chance + 0.15
    assert abs(unseen_NV[labelled_N].mean() - chance) < 4 * np.sqrt(chance * (1 - chance) / labelled_N.sum())
    assert store.load("task_loss")[labelled_N].mean() > np.log(CLASSES)


@SOLVERS
def test_with_shots_nothing_of_the_other_rows_is_known(
    solver: dict[str, Any], make_stage: Callable[..., Probe], tmp_path: Path
) -> None:
    """Without their labels and with other embeddings, all probes and what is said of the shots have the same bytes."""
    store = write_store(tmp_path / "a/cache/store")
    taken = keys_left_out(store, SubsetConfig(shots=10, shots_seed=3))
    write_store(tmp_path / "b/cache/store", only=frozenset(key.decode() for key in taken))
    stages, stores = [], []
    for where in ("a", "b"):
        stages.append(make_stage(where, folds=2, shots=10, shots_seed=3, **solver))
        complete(stages[-1])
        stores.append(RepresentationStore.open(tmp_path / where / "cache/store"))
    one, other = ({path.name: path.read_bytes() for path in stage.folder.glob("*.safetensors")} for stage in stages)
    assert len(one) == 3
    assert one == other
    label_N, other_N = (store.load("label") for store in stores)
    shots_N = np.isin(np.array(store.keys(), dtype="S"), list(taken))
    assert ((other_N >= 0) == shots_N).all()
    loss_NV, other_NV = (store.load("task_loss") for store in stores)
    assert np.isfinite(loss_NV[label_N >= 0]).all(), "the others are scored as well, by probes that never saw them"
    assert (loss_NV[shots_N] == other_NV[shots_N]).all()
    facts = read_json(stages[0].folder / "probe.json")
    assert facts["rows"] == shots_N.sum() == 10 * CLASSES
    assert (facts["out_of_fold_rows"], facts["unlabelled_rows"]) == (sum(COUNTS) - 2, 2)
    assert (facts["classes_without_rows"], facts["classes_within_one_fold"]) == (0, 0)
    assert facts["task_loss"]["center"] == pytest.approx(loss_NV[label_N >= 0, 0].mean(), rel=1e-5)


def test_fields_that_came_later_leave_the_folders_of_probes_that_do_not_use_them(
    make_stage: Callable[..., Probe],
) -> None:
    assert make_stage().meaning()["config"].keys().isdisjoint({"shots", "shots_seed"})
    assert make_stage(shots=2).meaning()["config"]["shots"] == 2


def test_one_shot_is_too_few_and_what_helps_is_said(make_stage: Callable[..., Probe], tmp_path: Path) -> None:
    write_store(tmp_path / "a/cache/store")
    stage = make_stage(folds=2, shots=1, held_out=0.01)
    stage.prepare()
    with pytest.raises(UserError, match=r"too few to fit.*Take more probe\.shots, or set fewer probe\.folds"):
        stage.run(stage.plan()[0], Silent())


@SOLVERS
def test_its_record_says_what_came_out(
    solver: dict[str, Any], make_stage: Callable[..., Probe], tmp_path: Path
) -> None:
    write_store(tmp_path / "a/cache/store")
    stage = make_stage(folds=3, **solver)
    complete(stage)
    store = RepresentationStore.open(stage.store_path)
    facts, labelled_N = read_json(stage.folder / "probe.json"), store.load("label") >= 0
    assert facts["class_names"] == NAMES
    assert facts["out_of_fold_rows"] == facts["rows"] == labelled_N.sum() == sum(COUNTS) - 2
    assert facts["accuracy"]["random0"] == pytest.approx(store.load("top1_correct", view=1)[labelled_N].mean())
    assert facts["task_loss"]["center"] == pytest.approx(store.load("task_loss", view=0)[labelled_N].mean(), rel=1e-5)
    assert facts["accuracy"]["center"] > 0.6
    assert facts["unlabelled_rows"] == 2
    assert facts["classes_without_rows"] == facts["classes_within_one_fold"] == 0
    assert set(facts["fold_l2"]) == {"fold-0", "fold-1", "fold-2"}
    assert str(stage.folder) in stage.summary()[-1]
    assert stage.verify(Silent()) == []


def test_status_and_plan(make_stage: Callable[..., Probe], tmp_path: Path) -> None:
    write_store(tmp_path / "a/cache/store")
    stage = make_stage(folds=3)
    assert stage.status() == Status(done=0, total=None)
    (tmp_path / "a/cache").rename(tmp_path / "a/not there yet")
    Stage.prepare(stage)
    assert stage.status() == Status(done=0, total=None)
    (tmp_path / "a/not there yet").rename(tmp_path / "a/cache")
    stage.prepare()
    assert stage.status() == Status(done=0, total=3)
    assert [unit.id for unit in stage.plan()] == ["0", "1", "2"]
    for unit in stage.plan()[::-1]:
        stage.run(unit, Silent())
    assert stage.plan() == []
    assert stage.status().done == 2, "the scores are missing still"
    stage.finish(Silent())
    assert stage.status() == Status(done=3, total=3, samples=sum(COUNTS) - 2)


@SOLVERS
def test_killed_at_any_moment_it_ends_with_the_same_bytes(
    solver: dict[str, Any], make_stage: Callable[..., Probe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in ("a", "b"):
        write_store(tmp_path / where / "cache/store")
    complete(make_stage("a", folds=2, **solver))

    class KilledError(Exception):
        pass

    weights, record, scored = (
        f"{module}.{function}"
        for module, function in (
            ("pipeline.probing.saved", "write_bytes"),
            ("pipeline.probing.saved", "write_sealed"),
            ("stages.probe", "write_sealed"),
        )
    )
    last = (scored, 2) if solver else (record, 0)  # the record of the probe on all rows
    # each is killed at its first or second call, and the next goes on from there
    for moment, before in ((weights, 0), (record, 0), (weights, 1), (scored, 0), (scored, 1), last):
        original = pkgutil.resolve_name(moment)
        done: list[Any] = []

        def killed(*args: Any, original: Any = original, done: list[Any] = done, before: int = before) -> Any:
            if len(done) == before:
                raise KilledError
            done.append(args)
            return original(*args)

        with monkeypatch.context() as patch:
            patch.setattr(moment, killed)
            with pytest.raises(KilledError):
                complete(make_stage("b", folds=2, **solver))
    complete(make_stage("b", folds=2, **solver))
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    complete(make_stage("b", folds=2, **solver))
    assert tree(tmp_path / "a") == tree(tmp_path / "b"), "doing it again changes nothing"


def test_another_probe_on_the_same_store_is_refused(make_stage: Callable[..., Probe], tmp_path: Path) -> None:
    write_store(tmp_path / "a/cache/store")
    complete(make_stage(folds=2))
    with pytest.raises(UserError, match=r"another config(?s:.)*config\.folds: 2 → 3"):
        make_stage(folds=3).prepare()


def test_a_store_with_the_backbones_own_scores_is_refused(make_stage: Callable[..., Probe], tmp_path: Path) -> None:
    write_store(tmp_path / "a/cache/store", classifier=True)
    with pytest.raises(UserError, match=r"already holds the scores.*cache\.classifier=off"):
        make_stage().prepare()


def test_an_unfinished_cache_is_refused(make_stage: Callable[..., Probe], tmp_path: Path) -> None:
    write_store(tmp_path / "a/cache/store")
    for state in (Status(done=2, total=3), Status(done=0, total=None)):
        with pytest.raises(UserError, match=r"is not done\. Run `submit stage=cache` first"):
            make_stage(cached=state).plan()


def test_what_is_damaged_is_found_and_made_again(make_stage: Callable[..., Probe], tmp_path: Path) -> None:
    store = write_store(tmp_path / "a/cache/store")
    stage = make_stage(folds=2)
    complete(stage)
    before = tree(tmp_path / "a")
    for path in (stage.folder / "fold-1.safetensors", store.shard_path("task_loss", 2)):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    problems = stage.verify(Silent())
    assert len(problems) == 2
    assert "fold-1.safetensors" in problems[0]
    assert "unit 000002" in problems[1]
    assert stage.status().done < 2
    complete(stage)
    assert tree(tmp_path / "a") == before
    assert stage.verify(Silent()) == []


def test_a_damaged_score_is_made_again_without_another_fit(
    make_stage: Callable[..., Probe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "a/cache/store")
    stage = make_stage(folds=2, **STREAM)
    assert [unit.id for unit in stage.plan()] == ["all"]
    stage.prepare()
    assert stage.status() == Status(done=0, total=1)
    complete(stage)
    assert stage.status() == Status(done=1, total=1, samples=sum(COUNTS) - 2)
    before = tree(tmp_path / "a")
    path = store.shard_path("entropy", 2)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert len(stage.verify(Silent())) == 1
    assert stage.plan() == []
    stage.finish(Silent())
    assert tree(tmp_path / "a") == before
    (stage.folder / "probe.safetensors").unlink()
    assert len(stage.verify(Silent())) == 2, "its two records"
    complete(stage)
    assert tree(tmp_path / "a") == before


def test_a_device_that_is_not_there_is_said(make_stage: Callable[..., Probe], tmp_path: Path) -> None:
    write_store(tmp_path / "a/cache/store")
    for device, message in (("cuda:77", r"'cuda:77' is not there"), ("gpu", r"'gpu' is no device\. Valid: auto, cpu")):
        stage = make_stage(device=device)
        with pytest.raises(UserError, match=message):
            stage.run(stage.plan()[0], Silent())
