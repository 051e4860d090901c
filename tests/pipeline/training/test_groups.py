"""Heads that learn from groups of rows (triplets, class-balanced): what the loop promises holds for them too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.heads import head_class
from pipeline.heads.base import LossOutput, Needs
from pipeline.heads.loss_prediction import LossPrediction
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.ddp import Ddp
from pipeline.training.loop import TrainingDivergedError, train
from pipeline.training.summary import summarise
from pipeline.training.sweep import seed_folder
from tests.pipeline.training.conftest import make_store
from tests.pipeline.training.test_resume import Stop, StopAt, result
from tests.ranks import Ranks
from tests.toys import toy_heads

BATCH = 50  # ten triplets with three negatives
MINED = {"kind": "toy_triplet", "mining": "representation", "pool": 60}
BY_HEAD = {"kind": "toy_triplet", "mining": "head", "pool": 60}
HEADS = pytest.mark.parametrize("head", [{"kind": "toy_triplet"}, MINED, BY_HEAD])


@dataclass(frozen=True, kw_only=True)
class Scene:
    store: Path
    folder: Path
    head: dict[str, Any]


def run(scene: Scene, progress: Any = None, **options: Any) -> str:
    seeds = (0,) if scene.head.get("mining") == "head" else (0, 1)
    values = {"steps": 12, "batch_size": BATCH, "seeds": seeds, "log_every": 2, "checkpoint_seconds": 0, **options}
    store = RepresentationStore.open(scene.store)
    with toy_heads():
        train(
            store=store,
            head=scene.head,
            config=TrainingConfig(**{"device": "cpu", "threads": 1, "window": 128, "base_lr": 1e-2, **values}),
            summary=summarise(store),
            folder=scene.folder,
            progress=progress or Silent(),
        )
    return "done"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    path = make_store(tmp_path / "store", [120, 77, 100], width=15, labels=(-1, 0, 1, 2)).path
    assert isinstance(path, Path)
    return Scene(store=path, folder=tmp_path / "straight", head=MINED)


@pytest.mark.xdist_group("ranks")
@HEADS
def test_any_number_of_processes_gives_the_bytes_of_one(ranks: Ranks, scene: Scene, head: dict[str, Any]) -> None:
    scene = replace(scene, head=head)
    run(scene)
    for size in (2, 3):
        again = replace(scene, folder=scene.folder.parent / f"{size}")
        assert ranks.run(size, run, again) == ["done"] * size
        assert result(again.folder) == result(scene.folder)


@HEADS
@pytest.mark.parametrize("memory_gb", [2.0, 1e-9])
def test_interrupted_anywhere_it_ends_with_the_same_bytes(scene: Scene, head: dict[str, Any], memory_gb: float) -> None:
    scene = replace(scene, head=head)
    run(scene)
    cut = replace(scene, folder=scene.folder.parent / "cut")
    for step in (1, 7):
        with pytest.raises(Stop):
            run(cut, StopAt(step * BATCH), memory_gb=memory_gb)
        run(cut, memory_gb=memory_gb)
        assert result(cut.folder) == result(scene.folder), step


def test_members_side_by_side_are_what_they_are_alone(scene: Scene) -> None:
    run(scene, seeds=(3, 7))
    alone = replace(scene, folder=scene.folder.parent / "alone")
    run(alone, seeds=(7,))
    one, other = (seed_folder(one.folder, 7) / "head.safetensors" for one in (scene, alone))
    assert one.read_bytes() == other.read_bytes()


def test_negatives_are_nearest_in_the_head_as_it_is_at_each_step(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against float64 and a full sort, with the weights of every single step."""
    store = RepresentationStore.open(scene.store)
    with toy_heads():
        cls = head_class("toy_triplet")
    original, seen = cls.loss, []

    def watched(self: Any, batch: Any) -> LossOutput:
        assert self.training
        seen.append((batch.row_B, self.weight_ED.detach().double().numpy().copy()))
        return original(self, batch)

    monkeypatch.setattr(cls, "loss", watched)
    run(replace(scene, head=BY_HEAD), base_lr=0.3, warmup_episodes=0)
    sampler = BatchReader(
        store, cls(cls.Config(mining="head", pool=60)).needs, Reading(batch_size=BATCH, window=128)
    ).sampler
    embedding, label = store.representations().astype(np.float64), store.load("label")
    choices = []
    for step in range(12):
        parts = seen[4 * step : 4 * step + 4]
        groups, weight_ED = torch.cat([rows for rows, _ in parts]).view(-1, 5).numpy(), parts[0][1]
        spans = [
            span for span in sampler.spans(step * BATCH, step * BATCH + BATCH) for _ in range(span.start, span.stop)
        ]
        view_G = sampler.batch(step)[1].reshape(-1, 5)[:, 0]
        for group, span, view in zip(groups, spans[::5], view_G, strict=True):
            window = sampler.window(span.window)
            pool, views = window.row_N[window.seen :], window.view_NV[window.seen :, 0]
            near = [pool_rows(pool, views, group[0], view, embedding @ w.T, label) for w in (weight_ED, seen[0][1])]
            assert group[2:].tolist() == near[0]
            choices.append(near[0] == near[1])
    assert all(choices[:10])
    assert np.mean(choices[10:]) < 0.9, "the head has changed, and its negatives with it"


def pool_rows(pool: Any, views: Any, anchor: int, view: int, embedding_NVE: Any, label: Any) -> list[int]:
    """The three of the pool that are nearest to the anchor and of other classes."""
    direction = embedding_NVE / np.linalg.norm(embedding_NVE, axis=-1, keepdims=True)
    cosine = direction[pool, views] @ direction[anchor, view]
    cosine[label[pool] == label[anchor]] = -np.inf
    return list(pool[np.argsort(-cosine)[:3]])


def test_negatives_of_a_heads_own_choice_want_one_head_and_an_engine_that_has_its_weights(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = replace(scene, head=BY_HEAD)
    with pytest.raises(UserError, match=r"2 heads are trained .*mining=head.*mining=representation"):
        run(scene, seeds=(0, 1))
    monkeypatch.setattr(Ddp, "current", False)
    with pytest.raises(UserError, match=r"train_head\.engine: .* Set train_head\.engine=auto"):
        run(scene)


class Listener(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_rows_that_are_in_no_triplet_are_counted(scene: Scene) -> None:
    listener = Listener()
    run(scene, listener, steps=1)
    unlabelled = int((RepresentationStore.open(scene.store).load("label") < 0).sum())
    assert unlabelled > 50
    assert listener.said == [f"train_head: rows that are in no triplet: {unlabelled} have no label."]


@pytest.mark.parametrize("sampling", ["triplets", "by head", "class_balanced"])
def test_divergence_stops_with_the_step_and_keys_of_the_rows_that_the_batch_had(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, sampling: str
) -> None:
    store = RepresentationStore.open(scene.store)
    with toy_heads():
        kind = "loss_prediction" if sampling == "class_balanced" else "toy_triplet"
        cls = head_class(kind)
        scene = replace(scene, head={"triplets": MINED, "by head": BY_HEAD}.get(sampling, {"kind": kind, "hidden": 8}))
        if sampling == "class_balanced":
            needs = Needs(task_loss=True, together=2, sampling="class_balanced", rows_per_class=2)
            monkeypatch.setattr(cls, "needs", needs)
        original, calls = cls.loss, []

        def broken(self: Any, batch: Any) -> LossOutput:
            output = original(self, batch)
            calls.append(batch.row_B)
            return replace(output, total=output.total * (float("nan") if len(calls) == 7 * 4 + 3 else 1))

        monkeypatch.setattr(cls, "loss", broken)
    with pytest.raises(TrainingDivergedError, match="diverged at step 7 for seed 5: loss nan") as caught:
        run(scene, seeds=(5,), log_every=12)
    keys = store.keys()
    rows_B = torch.cat(calls[7 * 4 : 8 * 4])
    rows = (rows_B.view(-1, 5)[:, :2].reshape(-1) if sampling == "by head" else rows_B)[:4].tolist()
    assert "begins with " + ", ".join(f"{keys[row]} (row {row})" for row in rows) in str(caught.value)


@pytest.mark.parametrize("accumulate", [1, 3, 4])
def test_parts_of_a_batch_hold_whole_classes(scene: Scene, monkeypatch: pytest.MonkeyPatch, accumulate: int) -> None:
    """A loss that compares all rows of a part: with parts of as many rows, groups of three would be torn."""
    parts: list[list[int]] = []

    def loss(self: LossPrediction, batch: Any) -> LossOutput:
        groups = batch.label_B.view(-1, 3)
        assert (groups == groups[:, :1]).all()
        parts.append(groups[:, 0].tolist())
        return LossOutput(total=self.network(batch.representation_BVD[:, 0]).square().mean())

    needs = Needs(labels=True, sampling="class_balanced", rows_per_class=3)
    monkeypatch.setattr(LossPrediction, "needs", needs)
    monkeypatch.setattr(LossPrediction, "loss", loss)
    run(
        replace(scene, head={"kind": "loss_prediction", "hidden": 8}),
        batch_size=48, accumulate=accumulate, steps=2, seeds=(0,), log_every=1,
    )  # fmt: skip
    sizes = [len(part) for part in parts]
    assert sizes == {1: [16], 3: [5, 5, 6], 4: [4] * 4}[accumulate] * 2
    reader = BatchReader(RepresentationStore.open(scene.store), needs, Reading(batch_size=48, window=128))
    wanted = [label for batch in reader.batches(0, 2) for label in batch.label_B[::3].tolist()]
    assert [label for part in parts for label in part] == wanted


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    import pipeline.heads

    assert not [path for path in pipeline.heads.__path__ if "toy" in path]
