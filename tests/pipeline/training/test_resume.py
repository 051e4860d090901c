"""Killed at any moment, the same call ends with the same bytes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from pipeline import files
from pipeline.errors import UserError
from pipeline.heads.inverse_norm import InverseNorm
from pipeline.heads.loss_prediction import LossPrediction
from pipeline.interruption import Interrupted, ask_to_stop, forget
from pipeline.progress import Silent
from pipeline.sealed import SEAL
from pipeline.training.config import TrainingConfig
from pipeline.training.holdout import training_rows
from pipeline.training.loop import train
from pipeline.training.state import PREVIOUS, STATE, state_step
from pipeline.training.summary import summarise
from tests.asking import AskAfter
from tests.pipeline.training.conftest import curves, make_store

HEAD = {"kind": "loss_prediction", "hidden": 16}
STEPS = 200
CHILD = """
import sys
from pathlib import Path
import torch
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.training.config import TrainingConfig
from pipeline.training.loop import train
from pipeline.training.summary import summarise

torch.set_num_threads(1)
store = RepresentationStore.open(Path(sys.argv[1]))
config = TrainingConfig(
    steps=int(sys.argv[3]), batch_size=32, seeds=(0, 1), log_every=5, checkpoint_seconds=0, device="cpu",
    tensorboard=True
)
head = {"kind": "loss_prediction", "hidden": 16}
train(store=store, head=head, config=config, summary=summarise(store), folder=Path(sys.argv[2]), progress=Silent())
"""


def config(**options):
    return TrainingConfig(
        **{
            "steps": STEPS,
            "batch_size": 32,
            "seeds": (0, 1),
            "log_every": 5,
            "checkpoint_seconds": 0,
            "device": "cpu",
            **options,
        }
    )


def result(folder):
    """Every byte of the heads, and the log without its clock."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("head.*"))}
    for path in folder.rglob("log.csv"):
        found[str(path.relative_to(folder))] = [line.rpartition(",")[0] for line in path.read_text().splitlines()]
    return found


@pytest.mark.slow
def test_killed_at_random_moments_the_weights_are_those_of_an_undisturbed_run(store, tmp_path):
    straight = {**config().__dict__, "checkpoint_seconds": 1e9, "tensorboard": True}
    train(
        store=store,
        head=HEAD,
        config=TrainingConfig(**straight),
        summary=summarise(store),
        folder=tmp_path / "straight",
        progress=Silent(),
    )
    command = [sys.executable, "-c", CHILD, str(store.path), str(tmp_path / "killed"), str(STEPS)]
    draw, reached = random.Random(0), []
    for _ in range(2):
        child = subprocess.Popen(command)
        seen, deadline = state_step(tmp_path / "killed"), time.monotonic() + 60
        while child.poll() is None and time.monotonic() < deadline and state_step(tmp_path / "killed") == seen:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.2))
        child.send_signal(signal.SIGKILL)
        child.wait()
        reached.append(state_step(tmp_path / "killed"))
    assert reached[0] > 0
    assert reached == sorted(reached)
    assert reached[-1] < STEPS, "killed too late to show anything"
    subprocess.run(command, check=True)
    assert result(tmp_path / "killed") == result(tmp_path / "straight")
    for seed in ("seed-0", "seed-1"):
        killed, undisturbed = (curves(tmp_path / name / seed)["loss"] for name in ("killed", "straight"))
        assert killed == undisturbed
        assert [samples for samples, _ in killed] == list(range(5 * 32, STEPS * 32 + 1, 5 * 32))
    assert not list((tmp_path / "killed").rglob("*.partial"))
    assert not (tmp_path / "killed" / STATE).exists()


class Stop(Exception):  # noqa: N818
    pass


class StopAt(Silent):
    """Interrupts training after some samples."""

    def __init__(self, samples):
        self.left = samples

    def bar(self, description, total, unit, *, initial=0):
        return self

    def advance(self, count=1, **shown):
        self.left -= count
        if self.left <= 0:
            raise Stop

    def close(self):
        pass


@pytest.mark.parametrize("memory_gb", [2.0, 1e-9])
def test_interrupted_at_every_place_of_a_short_run(store, tmp_path, memory_gb):
    options = {"steps": 12, "log_every": 2, "memory_gb": memory_gb}
    call = {"store": store, "head": HEAD, "summary": summarise(store)}
    train(**call, config=config(**options), folder=tmp_path / "straight", progress=Silent())
    for step in (1, 2, 3, 7, 11, 12):
        with pytest.raises(Stop):
            train(**call, config=config(**options), folder=tmp_path / "cut", progress=StopAt(step * 32))
        train(**call, config=config(**options), folder=tmp_path / "cut", progress=Silent())
        assert result(tmp_path / "cut") == result(tmp_path / "straight"), step


@settings(max_examples=4)
@given(asked=st.lists(st.integers(1, 17), min_size=1, max_size=3), log_every=st.integers(1, 8))
def test_asked_to_stop_at_any_steps_it_saves_its_state_at_once_and_ends_with_the_same_bytes(asked, log_every):
    with tempfile.TemporaryDirectory() as name:
        store = make_store(Path(name) / "store", [120, 77, 100])
        call = {"store": store, "head": HEAD, "summary": summarise(store)}
        values = config(steps=20, log_every=log_every, checkpoint_seconds=1e9)
        train(**call, config=values, folder=Path(name) / "straight", progress=Silent())
        for step in sorted(set(asked)):
            with pytest.raises(Interrupted):
                train(**call, config=values, folder=Path(name) / "cut", progress=AskAfter(step * 32 - 1))
            forget()
            assert state_step(Path(name) / "cut") in (step + 1, step + 2)  # later where it was stopped just before
        train(**call, config=values, folder=Path(name) / "cut", progress=Silent())
        assert result(Path(name) / "cut") == result(Path(name) / "straight")
        assert not (Path(name) / "cut" / STATE).exists()


def test_asked_to_stop_during_the_pass_after_training_it_goes_on_there(store, tmp_path, monkeypatch):
    seen = []

    def finalise(self, batches):
        for batch in batches:
            seen.append(len(batch.row_B))
            if len(seen) == 3:
                ask_to_stop()

    monkeypatch.setattr(LossPrediction, "finalise", finalise)
    call = {"store": store, "head": HEAD, "summary": summarise(store), "config": config(steps=3), "folder": tmp_path}
    with pytest.raises(Interrupted):
        train(**call, progress=Silent())
    assert len(seen) == 3
    assert state_step(tmp_path) == 3
    forget()
    train(**call, progress=Silent())
    assert sum(seen[3:]) == 2 * 297, "each of two seeds sees every row"


def test_the_state_holds_no_pickle_and_all_moments(store, tmp_path):
    with pytest.raises(Stop):
        train(
            store=store, head=HEAD, config=config(), summary=summarise(store), folder=tmp_path, progress=StopAt(11 * 32)
        )
    assert state_step(tmp_path) == 10
    tensors = load_file(tmp_path / STATE)
    assert {name.split(".")[0] for name in tensors} == {"0", "1"}
    moments = [name for name in tensors if name.endswith(("exp_avg", "exp_avg_sq"))]
    assert len(moments) == 2 * 6 * 2
    assert all(tensors[name].abs().sum() > 0 for name in moments)
    assert all(value.dtype == torch.float32 for value in tensors.values())


def test_the_state_of_another_run_is_refused_with_the_difference(store, tmp_path):
    call = {"store": store, "summary": summarise(store), "folder": tmp_path}
    with pytest.raises(Stop):
        train(**call, head=HEAD, config=config(), progress=StopAt(11 * 32))
    with pytest.raises(UserError, match=r"head\.margin: 0\.1 → 0\.2"):
        train(**call, head={**HEAD, "margin": 0.2}, config=config(), progress=Silent())
    with pytest.raises(UserError, match=r"training\.base_lr: 0\.001 → 0\.002"):
        train(**call, head=HEAD, config=config(base_lr=2e-3), progress=Silent())


class Listening(Silent):
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def say(self, line):
        self.said.append(line)


def cut_off(data):
    return data[: len(data) // 2]


def flipped(where):
    def flip(data):
        place = len(data) - 4 if where == "weight" else data.index(b'"step":"') + len(b'"step":"')
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return flip


@pytest.mark.parametrize("damage", [cut_off, flipped("weight"), flipped("step"), lambda data: b"\x10\x00\x00"])
@pytest.mark.parametrize(("both", "goes_on"), [(False, "goes on at step 8"), (True, "begins again at step 0")])
def test_a_damaged_state_is_said_and_the_run_goes_on_at_the_one_before(store, tmp_path, damage, both, goes_on):
    call = {"store": store, "head": HEAD, "summary": summarise(store), "config": config(steps=12, log_every=2)}
    train(**call, folder=tmp_path / "straight", progress=Silent())
    cut = tmp_path / "cut"
    with pytest.raises(Stop):
        train(**call, folder=cut, progress=StopAt(11 * 32))
    assert state_step(cut) == 10
    bad = [STATE, PREVIOUS] if both else [STATE]
    for name in bad:
        (cut / name).write_bytes(damage((cut / name).read_bytes()))
    progress = Listening()
    train(**call, folder=cut, progress=progress)
    assert all(
        f"{cut / name}: the checkpoint is damaged" in line for name, line in zip(bad, progress.said, strict=True)
    )
    assert all(goes_on in line and "\n" not in line for line in progress.said)
    assert result(cut) == result(tmp_path / "straight")
    assert not list(cut.glob("checkpoint*"))


def test_a_state_of_before_there_were_digests_is_read(store, tmp_path):
    call = {"store": store, "head": HEAD, "summary": summarise(store), "config": config(steps=12, log_every=2)}
    train(**call, folder=tmp_path / "straight", progress=Silent())
    cut = tmp_path / "cut"
    with pytest.raises(Stop):
        train(**call, folder=cut, progress=StopAt(11 * 32))
    with safe_open(cut / STATE, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del metadata[SEAL]
    save_file(tensors, cut / STATE, metadata)
    (cut / PREVIOUS).unlink()
    progress = Listening()
    train(**call, folder=cut, progress=progress)
    assert not progress.said
    assert result(cut) == result(tmp_path / "straight")


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda data: data[:-20], 0),  # within its last line, as a crash leaves it
        (lambda data: b"\xff\xfe" + data[2:], 5),
        (lambda data: b"", 0),
        (lambda data: data.replace(b"\n4,", b"\n4;", 1).replace(b"\n6,", b"\n6,7,", 1), 2),
    ],
)
def test_a_damaged_log_costs_its_lines_and_changes_no_weight(store, tmp_path, damage, lost):
    call = {"store": store, "head": HEAD, "summary": summarise(store), "config": config(steps=12, log_every=2)}
    train(**call, folder=tmp_path / "straight", progress=Silent())
    cut = tmp_path / "cut"
    with pytest.raises(Stop):
        train(**call, folder=cut, progress=StopAt(11 * 32))
    log = cut / "seed-1" / "log.csv"
    log.write_bytes(damage(log.read_bytes()))
    progress = Listening()
    train(**call, folder=cut, progress=progress)
    assert progress.said == (
        [f"train_head: {log}: {lost} lines cannot be read and are left out of the log."] * bool(lost)
    )
    found, wanted = result(cut), result(tmp_path / "straight")
    assert {name: data for name, data in found.items() if "log" not in name} == {
        name: data for name, data in wanted.items() if "log" not in name
    }
    assert found["seed-0/log.csv"] == wanted["seed-0/log.csv"]
    assert set(found["seed-1/log.csv"]) <= set(wanted["seed-1/log.csv"])


def test_how_far_a_run_is_is_known_beside_a_state_that_is_cut_off(store, tmp_path):
    (tmp_path / STATE).write_bytes(b"\x10\x00\x00")
    assert state_step(tmp_path) == 0
    call = {"store": store, "head": HEAD, "summary": summarise(store), "config": config(), "folder": tmp_path / "run"}
    with pytest.raises(Stop):
        train(**call, progress=StopAt(11 * 32))
    (tmp_path / "run" / STATE).write_bytes(b"\x10\x00\x00")
    assert state_step(tmp_path / "run") == 5


@pytest.mark.parametrize("dies", ["move_file", "write_bytes"])
def test_where_saving_fails_the_state_before_it_is_there(store, tmp_path, monkeypatch, dies):
    """A disk that is full, at either of the two changes that saving makes."""
    call = {"store": store, "head": HEAD, "summary": summarise(store), "config": config(steps=12, log_every=2)}
    train(**call, folder=tmp_path / "straight", progress=Silent())
    done = getattr(files, dies)
    left = [3 if dies == "write_bytes" else 2]

    def fail(*args):
        left[0] -= 1
        if not left[0]:
            raise OSError(28, "No space left on device")
        done(*args)

    monkeypatch.setattr(f"pipeline.training.state.{dies}", fail)
    with pytest.raises(OSError, match="No space"):
        train(**call, folder=tmp_path / "cut", progress=Silent())
    assert state_step(tmp_path / "cut") == 4
    train(**call, folder=tmp_path / "cut", progress=Silent())
    assert result(tmp_path / "cut") == result(tmp_path / "straight")


def test_a_head_without_training_gets_its_pass_if_it_asks_for_it(store, tmp_path, monkeypatch):
    """Over the rows to train on; a head that does not ask reads nothing."""
    seen, made = [], []
    monkeypatch.setattr(InverseNorm, "finalise", lambda self, batches: seen.extend(len(b.row_B) for b in batches))
    call = {"store": store, "summary": summarise(store), "config": config(validation_share=0.3, seeds=(0,))}
    train(**call, head={"kind": "inverse_norm"}, folder=tmp_path / "asks", progress=Silent())
    assert sum(seen) == int(training_rows(store, 0.3).sum())
    monkeypatch.setattr("pipeline.training.once.make_reader", lambda *_: made.append(1))
    train(**call, head={"kind": "random"}, folder=tmp_path / "asks_not", progress=Silent())
    assert not made
