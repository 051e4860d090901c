"""DeepSpeed trains what one process trains, up to rounding, in any number of processes; what ends one ends all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from hashlib import blake2b
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from pipeline.config import parse
from pipeline.errors import LeftError, UserError
from pipeline.heads.loss_prediction import LossPrediction
from pipeline.representation_store.reader import BatchReader
from pipeline.training.checkpoints import load_head
from pipeline.training.config import TrainingConfig
from pipeline.training.engines._zero import import_deepspeed
from pipeline.training.log import TrainingLog
from pipeline.training.state import state_step
from pipeline.training.sweep import seed_folder
from pipeline.world import current_world
from tests.pipeline.training.test_resume import result
from tests.pipeline.training.test_world import Scene, beside, play, scene
from tests.ranks import Ranks

__all__ = ["scene"]  # a fixture
pytestmark = [
    pytest.mark.xdist_group("ranks"),
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs the extra `deepspeed`"),
]

BATCHES, LINEAR = BatchReader.batches, torch.nn.functional.linear
Seen = list[list[str]]  # of each step, of each row: a hash of what the head was given


def watched(scene: Scene, play: Callable[[Scene], str] = play) -> tuple[str, Seen]:
    """Play a scene, and note the rows of this process."""
    seen: Seen = []

    def batches(self: BatchReader, *arguments: Any) -> Iterator[Any]:
        for batch in BATCHES(self, *arguments):
            rows = batch.representation_BVD.numpy()
            seen.append([blake2b(row.tobytes(), digest_size=8).hexdigest() for row in rows])
            yield batch

    with patch.object(BatchReader, "batches", batches):
        return play(scene), seen


def new_life() -> None:
    """Make DeepSpeed forget the process groups before, and what it has numbered: it thinks that there is one a life."""
    with patch.object(torch, "compile", lambda function=None, **_: function or (lambda f: f)):
        # An optimiser of its own that is not used here brings the compiler along, for seconds.
        import deepspeed.runtime.zero.muon.original_muon
    from deepspeed.comm import comm
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
    from deepspeed.runtime.zero.partition_parameters import Init
    from deepspeed.utils import groups

    assert deepspeed.__version__
    comm.cdb, Init.param_id = None, 0
    DeepSpeedZeRoOffload._register_deepspeed_module.__defaults__[0][0] = 0
    for name in ("_WORLD_GROUP", "_ZERO_PARAM_INTRA_PARALLEL_GROUP", "_DATA_PARALLEL_GROUP", "mesh_device", "mpu"):
        setattr(groups, name, None)


def sharded(scene: Scene) -> str:
    """Play a scene with DeepSpeed."""
    os.environ["LOCAL_RANK"] = str(current_world().rank)  # what a launcher sets
    new_life()

    def stumbling(self: LossPrediction, batch: Any) -> Any:
        raise RuntimeError("no kernel for this")

    with ExitStack() as patches:
        if scene.disturbed.get(current_world().rank) == "stumble":
            patches.enter_context(patch.object(LossPrediction, "loss", stumbling))
        try:
            return play(scene)
        except LeftError as error:  # as in a launcher's process, which ends
            scene.folder.with_name("said").write_text(str(error))
            os._exit(1)
        finally:
            assert torch.nn.functional.linear is LINEAR, "what others in this process compute with is as it was"


def watched_and_sharded(scene: Scene) -> tuple[str, Seen]:
    return watched(scene, sharded)


def on(scene: Scene, name: str, stage: int, **options: Any) -> Scene:
    """The scene beside itself, by DeepSpeed."""
    return beside(scene, name, options={**scene.options, "engine": "deepspeed", "zero_stage": stage, **options})


def agree(one: Path, other: Path, *, loss: float = 1e-6, weights: float = 1e-4) -> None:
    """The bounds are those of the documents."""
    for seed in (0, 1):
        ours, theirs = (seed_folder(folder, seed) for folder in (one, other))
        for name, value in load_head(theirs).state_dict().items():
            torch.testing.assert_close(load_head(ours).state_dict()[name], value, rtol=weights, atol=weights / 100)
        logs = [TrainingLog(folder / "log.csv").rows() for folder in (ours, theirs)]
        for mine, wanted in zip(*logs, strict=True):
            assert mine["loss"] == pytest.approx(wanted["loss"], rel=loss)
            assert (mine["step"], mine["lr"]) == (wanted["step"], wanted["lr"])


EACH = {"log_every": 1, "checkpoint_seconds": 1e9, "steps": 8}


@pytest.mark.parametrize(
    ("changes", "runs"),  # number of processes, stage
    [
        (
            {"noisy": True, "options": {**EACH, "batch_size": 31, "memory_gb": 1e-9}},
            [(3, 3), (3, 1), (3, 2), (2, 0), (2, 1), (2, 2), (1, 1)],
        ),
        (
            {"whole": True, "options": {**EACH, "accumulate": 3, "clip_norm": 0.05, "ema": 0.8}},
            [(2, 0), (2, 1), (3, 2)],
        ),
    ],
)
def test_the_same_batches_and_losses_as_one_process(
    ranks: Ranks, scene: Scene, changes: dict[str, Any], runs: list[tuple[int, int]]
) -> None:
    scene = replace(scene, **changes)
    _, wanted = watched(scene)
    assert len(wanted) == EACH["steps"]
    for size, stage in runs:
        again = on(scene, f"{size} processes, stage {stage}", stage)
        said = ranks.run(size, watched_and_sharded, again)
        assert all(len(one) == 2 and one[0] == "heads" for one in said), said
        assert [[*chain(*rows)] for rows in zip(*(seen for _, seen in said), strict=True)] == wanted
        agree(again.folder, scene.folder)


def test_stopped_and_going_on_by_another_engine_in_other_numbers(ranks: Ranks, scene: Scene) -> None:
    """Of a head that draws, compares all rows, and has scalars among its parameters."""
    options = {"checkpoint_seconds": 1e9, "ema": 0.8, "batch_size": 24, "accumulate": 3}
    scene = replace(scene, head={"kind": "hib"}, options=options)
    play(scene)
    cut, stopped = beside(scene, "cut"), "Interrupted: "
    for size, options, at in (
        (2, {"engine": "deepspeed", "zero_stage": 1}, 3),
        (3, {"engine": "deepspeed", "zero_stage": 2}, 6),
        (2, {"engine": "ddp"}, 8),
        (3, {"engine": "deepspeed", "zero_stage": 0}, 10),
    ):
        part = replace(cut, options={**cut.options, **options}, disturbed={size - 1: "ask"}, at=at)
        assert ranks.run(size, sharded, part) == [stopped] * size
        assert state_step(cut.folder) == at + 1
    assert ranks.run(1, sharded, on(cut, "cut", 1)) == ["heads"]
    agree(cut.folder, scene.folder, weights=1e-3)


def test_going_on_in_the_same_number_gives_the_bytes_of_a_straight_run(ranks: Ranks, scene: Scene) -> None:
    for stage in (1, 3):
        straight, cut = (on(scene, f"{name} {stage}", stage, checkpoint_seconds=1e9) for name in ("straight", "cut"))
        assert ranks.run(3, sharded, straight) == ["heads"] * 3
        assert ranks.run(3, sharded, replace(cut, disturbed={1: "ask"}, at=5)) == ["Interrupted: "] * 3
        assert ranks.run(3, sharded, cut) == ["heads"] * 3
        assert result(cut.folder) == result(straight.folder)


def test_in_bfloat16_it_is_what_one_process_gives(ranks: Ranks, scene: Scene) -> None:
    scene = replace(scene, options={"precision": "bf16", "validation_share": 0.2, "validate_every": 5})
    play(scene)
    again = on(scene, "sharded", 1)
    assert ranks.run(2, sharded, again) == ["heads"] * 2
    agree(again.folder, scene.folder, loss=1e-2, weights=1e-1)
    looks = [TrainingLog(seed_folder(folder, 0) / "validation.csv").rows() for folder in (again.folder, scene.folder)]
    assert [look["step"] for look in looks[0]] == [look["step"] for look in looks[1]] == [5, 10]


def test_all_diverge_at_the_same_step(ranks: Ranks, scene: Scene) -> None:
    results = ranks.run(2, sharded, on(scene, "far", 1, base_lr=1e30))
    assert results[0] == results[1]
    assert results[0].startswith("TrainingDivergedError: train_head: training diverged at step")


def test_what_it_lacks_is_said(scene: Scene, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no process group of torch.distributed.*`submit` makes one"):
        play(on(scene, "nobody", 1))
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(UserError, match=r"cannot be imported \(.*Install it with `DS_BUILD_OPS=0 pip install"):
        import_deepspeed()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"batched": "on"}, "one after the other: leave batched at auto"),
        ({"zero_stage": 3, "ema": 0.9}, "set zero_stage to 0, 1 or 2"),
        ({"zero_stage": 4}, "less than or equal to 3"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        parse(TrainingConfig, {"engine": "deepspeed", **options}, "train_head")


@pytest.mark.parametrize(
    ("disturbed", "of_others"),
    [
        ({1: "tear"}, "UserError: process 1 of 3 failed: unit 2 is damaged"),
        ({0: "fill"}, "UserError: process 0 of 3 failed: no space left"),
        ({2: "stumble"}, "LostError: process"),
    ],
)
def test_what_ends_one_ends_all(ranks: Ranks, scene: Scene, disturbed: dict[int, str], of_others: str) -> None:
    options = {"memory_gb": 1e-9, "window": 64}
    results = ranks.run(3, sharded, replace(on(scene, "ended", 1, **options), disturbed=disturbed, at=4))
    own = {
        "tear": "UserError: unit 2 is damaged",
        "fill": "OSError: no space left",
        "stumble": "1",
    }
    for rank, said in enumerate(results):
        assert str(said).startswith(own[disturbed[rank]] if rank in disturbed else of_others), results
    if "stumble" in disturbed.values():
        own_words = "process 2 of 3 failed within a step: RuntimeError: no kernel for this"
        assert scene.folder.with_name("said").read_text() == own_words
    assert not list(scene.folder.parent.rglob("head.json"))
