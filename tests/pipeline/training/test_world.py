"""Any number of processes gives the heads and the log of one, byte for byte; what ends one of them ends all."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from pipeline.errors import UserError
from pipeline.heads.base import Needs
from pipeline.heads.loss_prediction import LossPrediction
from pipeline.interruption import Interrupted, ask_to_stop, forget
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.training import loop
from pipeline.training.checkpoints import load_head
from pipeline.training.config import TrainingConfig
from pipeline.training.engines import base
from pipeline.training.log import TrainingLog
from pipeline.training.loop import train
from pipeline.training.schedule import learning_rate
from pipeline.training.state import STATE, state_step
from pipeline.training.summary import summarise
from pipeline.training.sweep import seed_folder
from pipeline.world import current_world
from tests.pipeline.training.conftest import make_store
from tests.pipeline.training.test_resume import result
from tests.ranks import Ranks, die

pytestmark = pytest.mark.xdist_group("ranks")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What happens in each process: a training run, and what disturbs it at which step, in which process."""

    store: Path
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    noisy: bool = False  # the loss draws
    whole: bool = False  # the loss compares all rows
    exact: bool = True
    disturbed: dict[int, str] = field(default_factory=dict)  # rank → what
    at: int = 0  # step


def config(**options: Any) -> TrainingConfig:
    defaults = {"steps": 14, "batch_size": 30, "seeds": (0, 1), "log_every": 4, "checkpoint_seconds": 0}
    return TrainingConfig(**{**defaults, "device": "cpu", "threads": 1, "base_lr": 1e-2, **options})


def noisy_loss(self: LossPrediction, batch: Any) -> Any:
    output = LOSS(self, batch)
    return replace(output, total=output.total * (1 + 0.5 * torch.rand(())))


LOSS, READ, CUT = LossPrediction.loss, RepresentationStore.read, base.cut_batch


def play(scene: Scene) -> str:
    what = scene.disturbed.get(current_world().rank, "")

    def rate(settings: TrainingConfig, step: int) -> float:
        if step == scene.at and what == "ask":
            ask_to_stop()
        if step == scene.at and what == "die":
            die()
        return learning_rate(settings, step)

    def torn(self: RepresentationStore, name: str, unit: int, **part: Any) -> Any:
        if name == "task_loss" and unit == 2:
            raise UserError("unit 2 is damaged")
        return READ(self, name, unit, **part)

    def no_room(self: TrainingLog, row: Any) -> None:
        if row["step"] > scene.at:
            raise OSError("no space left")

    with contextlib.ExitStack() as patches:
        patches.enter_context(patch.object(loop, "learning_rate", rate))
        if scene.noisy:
            patches.enter_context(patch.object(LossPrediction, "loss", noisy_loss))
        if scene.whole:
            patches.enter_context(patch.object(LossPrediction, "needs", Needs(task_loss=True)))
        if not scene.exact:
            patches.enter_context(patch.object(base, "cut_batch", lambda *a, **k: CUT(*a, **{**k, "exact": False})))
        if what == "tear":
            patches.enter_context(patch.object(RepresentationStore, "read", torn))
        if what == "fill":
            patches.enter_context(patch.object(TrainingLog, "append", no_room))
        store = RepresentationStore.open(scene.store)
        options = {**scene.options, **({"device": "cuda:77"} if what == "device" else {})}
        try:
            train(
                store=store,
                head=scene.head if "kind" in scene.head else {"kind": "loss_prediction", "hidden": 16, **scene.head},
                config=config(**options),
                summary=summarise(store),
                folder=scene.folder,
                progress=Silent(),
            )
        finally:
            forget()
    return "heads" if (seed_folder(scene.folder, 1) / "head.json").exists() else "no heads"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    path = make_store(tmp_path / "store", [120, 77, 100], width=15).path  # of odd width: parts begin anywhere in memory
    assert isinstance(path, Path)
    return Scene(store=path, folder=tmp_path / "alone")


def beside(scene: Scene, name: str, **changes: Any) -> Scene:
    return replace(scene, folder=scene.folder.parent / name, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"noisy": True},
        {"head": {"objective": "l2"}, "options": {"batch_size": 31, "memory_gb": 1e-9}},
        {"whole": True, "options": {"accumulate": 3, "validation_share": 0.2}},
        {"head": {"kind": "lam", "dimension": 3, "projection_hidden": 4, "negatives": 1, "mining": "random"}},
    ],
)
def test_any_number_of_processes_gives_the_bytes_of_one(ranks: Ranks, scene: Scene, changes: dict[str, Any]) -> None:
    play(replace(scene, **changes))
    for size in (2, 3):
        again = beside(scene, f"{size} processes", **changes)
        assert ranks.run(size, play, again) == ["heads"] * size
        assert result(again.folder) == result(scene.folder)
        assert sorted(path.name for path in again.folder.iterdir()) == ["seed-0", "seed-1"]


def test_stopped_and_going_on_in_other_numbers_gives_the_bytes_of_one(ranks: Ranks, scene: Scene) -> None:
    play(scene)
    cut = beside(scene, "cut", options={"checkpoint_seconds": 1e9})
    stopped = ["Interrupted: "]
    assert ranks.run(2, play, replace(cut, disturbed={1: "ask"}, at=5)) == stopped * 2
    assert state_step(cut.folder) == 6
    assert ranks.run(3, play, replace(cut, disturbed={0: "ask", 2: "ask"}, at=9)) == stopped * 3
    assert state_step(cut.folder) == 10
    with pytest.raises(Interrupted):
        play(replace(cut, disturbed={0: "ask"}, at=13))
    assert state_step(cut.folder) == 14
    assert ranks.run(2, play, cut) == ["heads"] * 2
    assert result(cut.folder) == result(scene.folder)


def test_all_go_on_together_at_the_state_before_a_damaged_one(ranks: Ranks, scene: Scene) -> None:
    play(scene)
    cut = beside(scene, "cut")
    assert ranks.run(2, play, replace(cut, disturbed={1: "ask"}, at=9)) == ["Interrupted: "] * 2
    state = cut.folder / STATE
    state.write_bytes(state.read_bytes()[:-1])
    before = state_step(cut.folder)
    assert 0 < before < 10
    assert ranks.run(2, play, cut) == ["heads"] * 2
    assert result(cut.folder) == result(scene.folder)


@pytest.mark.parametrize(
    ("disturbed", "reason"),
    [
        ({1: "tear"}, "process 1 of 3 failed: unit 2 is damaged"),
        ({0: "fill"}, "process 0 of 3 failed: no space left"),
        ({2: "device"}, "process 2 of 3 failed: train_head.device: 'cuda:77' is not there"),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_what_ends_one_ends_all_with_its_reason(
    ranks: Ranks, scene: Scene, disturbed: dict[int, str], reason: str, exact: bool
) -> None:
    scene = replace(scene, exact=exact)
    results = ranks.run(3, play, replace(scene, disturbed=disturbed, at=4, options={"memory_gb": 1e-9, "window": 64}))
    for rank, said in enumerate(results):
        assert (reason in said) == (rank not in disturbed), said
        assert reason.partition("failed: ")[2] in said
    assert not list(scene.folder.rglob("head.json"))


def test_where_a_look_is_dear_all_stop_at_the_next_one(ranks: Ranks, scene: Scene) -> None:
    loose = replace(scene, exact=False, options={"checkpoint_seconds": 1e9})
    assert ranks.run(2, play, loose) == ["heads"] * 2
    cut = beside(loose, "cut")
    assert ranks.run(2, play, replace(cut, disturbed={1: "ask"}, at=5)) == ["Interrupted: "] * 2
    assert state_step(cut.folder) == 8, "the next line of the log"
    assert ranks.run(2, play, replace(cut, disturbed={1: "ask"}, at=9)) == ["Interrupted: "] * 2
    assert state_step(cut.folder) == 11, "every tenth step"
    assert ranks.run(2, play, cut) == ["heads"] * 2
    assert result(cut.folder) == result(scene.folder)


def test_all_diverge_at_the_same_step(ranks: Ranks, scene: Scene) -> None:
    results = ranks.run(2, play, replace(scene, options={"base_lr": 1e30}))
    assert results[0] == results[1]
    assert results[0].startswith("TrainingDivergedError: train_head: training diverged at step")


def test_one_that_is_killed_ends_all_and_other_numbers_go_on(ranks: Ranks, scene: Scene) -> None:
    play(scene)
    cut = beside(scene, "cut")
    first, dead = ranks.run(2, play, replace(cut, disturbed={1: "die"}, at=10))
    assert dead == -9
    assert first.startswith("LostError: process 0 of 2 cannot reach the others any more")
    assert state_step(cut.folder) == 8
    assert ranks.run(3, play, cut) == ["heads"] * 3
    assert result(cut.folder) == result(scene.folder)
    assert not (cut.folder / STATE).exists()


def test_a_loss_that_compares_all_rows_cannot_be_shared_without_parts(ranks: Ranks, scene: Scene) -> None:
    results = ranks.run(2, play, replace(scene, whole=True, options={"batch_size": 32}))
    assert all("UserError: train_head: 2 processes" in said for said in results)
    assert all("Set train_head.accumulate=2 " in said for said in results)


def test_one_engine_wants_one_process_and_the_other_goes_on_in_any_number(ranks: Ranks, scene: Scene) -> None:
    said = ranks.run(2, play, replace(scene, options={"engine": "single"}))
    assert all("UserError: train_head.engine=single: there are 2 processes. Set" in line for line in said)
    play(scene)
    cut = beside(scene, "cut", options={"engine": "single"})
    with pytest.raises(Interrupted):
        play(replace(cut, disturbed={0: "ask"}, at=5))
    assert ranks.run(2, play, replace(cut, options={"engine": "ddp"})) == ["heads"] * 2
    assert result(cut.folder) == result(scene.folder)


def test_added_up_in_any_order_it_is_the_same_up_to_rounding(ranks: Ranks, scene: Scene) -> None:
    """What GPUs do; the bound is that of the documents."""
    play(scene)
    loose = beside(scene, "loose", exact=False)
    assert ranks.run(3, play, loose) == ["heads"] * 3
    for seed in (0, 1):
        one, three = (seed_folder(folder, seed) for folder in (scene.folder, loose.folder))
        for name, value in load_head(one).state_dict().items():
            torch.testing.assert_close(load_head(three).state_dict()[name], value, rtol=1e-4, atol=1e-6)
        for ours, theirs in zip(
            TrainingLog(three / "log.csv").rows(), TrainingLog(one / "log.csv").rows(), strict=True
        ):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
