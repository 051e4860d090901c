"""The streaming solver against the exact one and scikit-learn; folds, views, odd classes; killed and resumed."""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.heads.base import LinearClassifier
from pipeline.interruption import Interrupted, forget
from pipeline.probing import stream
from pipeline.probing.exact import fit_probe
from pipeline.probing.saved import FITTED, NAME, load_probe
from pipeline.probing.settings import ProbeSettings, exact_bytes, fold_of, is_streamed
from pipeline.probing.softmax import Scratch, SoftmaxClassifier
from pipeline.probing.state import load_state, remove_state, save_state
from pipeline.probing.stream import Means, fit_stream
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from tests.asking import AskAfter
from tests.pipeline.probing.conftest import MakeClusters

CPU = torch.device("cpu")
QUICK = {"folds": 2, "l2": (0.01, 0.001), "min_steps": 12, "passes": 1, "batch_size": 64, "window": 100}


def settings_of(**values: object) -> ProbeSettings:
    """Streamed from the store, never held in memory."""
    return ProbeSettings(**{"solver": "stream", "memory_gb": 1e-9, **values})  # type: ignore[arg-type]


def streamed(store: RepresentationStore, folder: Path, **values: object) -> Path:
    fit_stream(store, settings_of(**values), folder=folder, means=Means(device=CPU), progress=Silent())
    return folder


def rows_in(store: RepresentationStore, fold: int, settings: ProbeSettings) -> tuple[Tensor, Tensor]:
    """Features of all views and labels of the labelled rows of a fold."""
    fold_N = np.array([fold_of(key, settings) for key in store.load("key").astype(str)])
    here = (fold_N == fold) & (store.load("label") >= 0)
    label_N = np.repeat(store.load("label")[here], len(store.layout.views))
    return torch.from_numpy(store.representations()[here]).flatten(0, 1), torch.from_numpy(label_N).long()


def judged(classifier: LinearClassifier, features_ND: Tensor, label_N: Tensor) -> tuple[float, float]:
    """Loss in nats and accuracy."""
    logits_NC = linear(features_ND, classifier.weight_CD, classifier.bias_C)
    return float(cross_entropy(logits_NC, label_N)), float((logits_NC.argmax(dim=1) == label_N).float().mean())


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_out_of_fold_it_is_as_good_as_the_exact_solver(make_clusters: MakeClusters, tmp_path: Path) -> None:
    """Within 0.002 nats and 1 % of the rows, each with its own choice of the penalty."""
    store = make_clusters(counts=(300, 0, 500))
    chosen = {"folds": 2, "l2": (0.1, 0.01, 0.003, 0.001)}
    streamed(store, tmp_path, **chosen, batch_size=256, min_steps=150, window=200)
    settings = settings_of(**chosen)
    for fold in range(2):
        rows = rows_in(store, fold, settings)
        exact = fit_probe(store, settings, leave_out=fold, device=CPU, progress=Silent())
        loss, accuracy = judged(exact.classifier, *rows)
        assert 0.3 < accuracy < 0.9, "a problem that is neither solved nor hopeless"
        assert judged(load_probe(tmp_path, f"fold-{fold}"), *rows) == (
            pytest.approx(loss, abs=2e-3),
            pytest.approx(accuracy, abs=0.01),
        )


def test_the_probe_on_all_rows_is_scikit_learns(make_clusters: MakeClusters, tmp_path: Path) -> None:
    store = make_clusters(counts=(200, 150))
    streamed(store, tmp_path, folds=2, l2=(0.01,), batch_size=256, min_steps=200)
    label_N = store.load("label")
    raw_ND = store.representations()[label_N >= 0].reshape(-1, store.layout.width).astype(np.float64)
    labels = np.repeat(label_N[label_N >= 0], 2)
    scaled_ND = raw_ND - raw_ND.mean(axis=0)
    scaled_ND /= np.sqrt((scaled_ND**2).mean())
    facts = read_json(tmp_path / f"{FITTED}.json")
    assert facts["l2"] == 0.01, "the only one there is"
    theirs = LogisticRegression(C=1 / (0.01 * len(labels)), max_iter=5000, tol=1e-10).fit(scaled_ND, labels)
    probe = load_probe(tmp_path, record=FITTED)
    probability_NC = linear(torch.from_numpy(raw_ND).float(), probe.weight_CD, probe.bias_C).softmax(dim=1)
    np.testing.assert_allclose(probability_NC, theirs.predict_proba(scaled_ND), atol=0.01)
    assert facts["rows"] == len(labels) // 2
    loss = -np.log(theirs.predict_proba(scaled_ND)[np.arange(len(labels)), labels]).mean()
    assert facts["loss"] == pytest.approx(loss, abs=0.03)


def test_a_probe_knows_nothing_of_the_fold_that_is_left_out(make_clusters: MakeClusters, tmp_path: Path) -> None:
    """With a fixed penalty; where one is chosen, that number is all that the probes share."""
    settings = settings_of(**QUICK)
    store = make_clusters(counts=(90, 110))
    other = make_clusters("other", counts=(90, 110), relabel=lambda k, v: 5 - v if fold_of(k, settings) == 1 else v)
    values = {**QUICK, "l2": (0.01,)}
    one, two = streamed(store, tmp_path / "one", **values), streamed(other, tmp_path / "two", **values)
    same = {name: (one / f"{name}.safetensors").read_bytes() == (two / f"{name}.safetensors").read_bytes()
            for name in ("fold-0", "fold-1", NAME)}  # fmt: skip
    assert same == {"fold-0": False, "fold-1": True, NAME: False}


def test_views_choose_what_is_fitted(make_clusters: MakeClusters, tmp_path: Path) -> None:
    both = make_clusters(counts=(90, 40), views=("center", "random0"))
    values = {**QUICK, "passes": 2}
    alone = tree(streamed(both, tmp_path / "one", **values, views=("random0",)))
    again = tree(streamed(both, tmp_path / "two", **values, views=("random0", "center")))
    assert alone["probe.safetensors"] != again["probe.safetensors"]
    with pytest.raises(UserError, match=r"no view 'blur'\. It has: center, random0"):
        streamed(both, tmp_path / "three", **values, views=("blur",))


def test_int8_is_read_as_what_it_stands_for(make_clusters: MakeClusters, tmp_path: Path) -> None:
    store, coarse = (make_clusters(dtype, counts=(150,), dtype=dtype) for dtype in ("float16", "int8"))
    for one in (store, coarse):
        streamed(one, tmp_path / one.layout.dtype, **{**QUICK, "min_steps": 60})
    rows = rows_in(store, 0, settings_of(**QUICK))
    found = [judged(load_probe(tmp_path / dtype, "fold-0"), *rows)[0] for dtype in ("float16", "int8")]
    assert found[0] == pytest.approx(found[1], abs=0.1)


def test_odd_classes_give_finite_losses(make_clusters: MakeClusters, tmp_path: Path) -> None:
    """Of 40 classes the rows have 6, and one of those in a single row."""
    single = "u0/3"
    store = make_clusters(counts=(60, 60), classes=40, relabel=lambda k, v: 39 if k == single else int(v) % 5)
    streamed(store, tmp_path, **QUICK)
    for name, record in (("fold-0", None), ("fold-1", None), (NAME, FITTED)):
        probe = load_probe(tmp_path, name, record=record)
        assert probe.weight_CD.isfinite().all()
        assert probe.bias_C.isfinite().all()
        assert np.isfinite(read_json(tmp_path / f"{record or name}.json")["loss"])
        loss_N = cross_entropy(
            linear(torch.from_numpy(store.representations()).flatten(0, 1), probe.weight_CD, probe.bias_C),
            torch.from_numpy(np.repeat(np.maximum(store.load("label"), 0), 2)).long(),
            reduction="none",
        )
        assert loss_N.isfinite().all()


def test_too_few_rows_and_divergence_are_said(make_clusters: MakeClusters, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"labelled rows in .* are too few to fit a probe for each of 2 folds"):
        streamed(make_clusters("few", counts=(2,)), tmp_path / "few", **QUICK)
    with pytest.raises(UserError, match=r"diverged by step 12: .* Lower probe\.lr"):
        streamed(make_clusters(counts=(90,)), tmp_path / "far", **QUICK, lr=1e38)


def test_means_do_not_change_a_byte(make_clusters: MakeClusters, tmp_path: Path) -> None:
    store = make_clusters(counts=(90, 40), chunk_rows=16)
    one = tree(streamed(store, tmp_path / "one", **QUICK))
    settings = settings_of(**QUICK, memory_gb=1)  # held in memory
    means = Means(device=CPU, threads=5, checkpoint_seconds=0)
    fit_stream(store, settings, folder=tmp_path / "two", means=means, progress=Silent())
    two = tree(tmp_path / "two")
    assert {name: data for name, data in one.items() if name.endswith("safetensors")} == {
        name: data for name, data in two.items() if name.endswith("safetensors")
    }


def test_killed_while_saving_it_ends_with_the_same_bytes(
    make_clusters: MakeClusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, settings = make_clusters(counts=(90, 40)), settings_of(**QUICK)
    means = Means(device=CPU, checkpoint_seconds=0)
    calm = tree(streamed(store, tmp_path / "calm", **QUICK))

    class KilledError(Exception):
        pass

    kills = 0
    for function in ("write_bytes", "write_sealed"):
        for module, before in (("state", 0), ("state", 5), ("saved", 0), ("saved", 2)):
            original, left = pkgutil.resolve_name(f"pipeline.probing.{module}.{function}"), [before]

            def killed(*args: Any, original: Any = original, left: list[int] = left) -> None:
                if not left[0]:
                    raise KilledError
                left[0] -= 1
                original(*args)

            with monkeypatch.context() as patch:
                patch.setattr(f"pipeline.probing.{module}.{function}", killed)
                try:
                    fit_stream(store, settings, folder=tmp_path / "shaken", means=means, progress=Silent())
                except KilledError:
                    kills += 1
    assert kills >= 5
    fit_stream(store, settings, folder=tmp_path / "shaken", means=means, progress=Silent())
    assert tree(tmp_path / "shaken") == calm


def _die_after(store: Path, folder: Path, saves: int) -> None:
    """In a process of its own: SIGKILL once so many states stand."""
    torch.set_num_threads(1)
    save, count = stream.save_state, 0

    def save_and_die(*args: object) -> None:
        nonlocal count
        save(*args)  # type: ignore[arg-type]
        count += 1
        if count == saves:
            os.kill(os.getpid(), signal.SIGKILL)

    stream.save_state = save_and_die  # type: ignore[assignment]
    means = Means(device=CPU, checkpoint_seconds=0)
    fit_stream(RepresentationStore.open(store), settings_of(**QUICK), folder=folder, means=means, progress=Silent())


def test_killed_by_the_system_it_ends_with_the_same_bytes(make_clusters: MakeClusters, tmp_path: Path) -> None:
    store = make_clusters(counts=(90, 40))
    calm = tree(streamed(store, tmp_path / "calm", **QUICK))
    process = multiprocessing.get_context("spawn").Process(
        target=_die_after, args=(store.path, tmp_path / "shaken", 17)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "shaken/state-fit/state.json").exists(), "it died within the second fit"
    streamed(store, tmp_path / "shaken", **QUICK)
    assert tree(tmp_path / "shaken") == calm


def test_asked_to_stop_at_any_step_it_saves_its_state_and_goes_on_to_the_same_bytes(
    make_clusters: MakeClusters, tmp_path: Path
) -> None:
    store = make_clusters(counts=(90, 40))
    calm = tree(streamed(store, tmp_path / "calm", **QUICK))
    call = {"settings": settings_of(**QUICK), "folder": tmp_path / "shaken", "means": Means(device=CPU)}
    for of, steps in (("choose l2", 5), ("choose l2", 12), ("fit all probes", 1), ("fit all probes", 7)):
        with pytest.raises(Interrupted):
            fit_stream(store, **call, progress=AskAfter(steps * 64, of))  # type: ignore[arg-type]
        kind = stream.CHOICE if of == "choose l2" else stream.FIT
        assert read_json(tmp_path / "shaken" / kind / "state.json")["step"] == steps
        forget()
    with pytest.raises(Interrupted):
        fit_stream(store, **call, progress=AskAfter(0, "mean and scale"))  # type: ignore[arg-type]
    forget()
    assert tree(streamed(store, tmp_path / "shaken", **QUICK)) == calm


class Listening(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        """One more line."""
        self.said.append(line)


def test_a_damaged_state_is_said_and_the_fit_begins_again(make_clusters: MakeClusters, tmp_path: Path) -> None:
    store = make_clusters(counts=(90, 40))
    calm = tree(streamed(store, tmp_path / "calm", **QUICK))
    call = {"settings": settings_of(**QUICK), "means": Means(device=CPU)}
    for place in range(4):  # three classifiers and the record
        folder = tmp_path / f"shaken-{place}"
        with pytest.raises(Interrupted):
            fit_stream(store, folder=folder, progress=AskAfter(7 * 64, "fit all probes"), **call)  # type: ignore[arg-type]
        forget()
        path = sorted((folder / stream.FIT).iterdir())[place]
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        progress = Listening()
        fit_stream(store, folder=folder, progress=progress, **call)  # type: ignore[arg-type]
        (line,) = progress.said
        assert f"{path}: the checkpoint is damaged" in line
        assert "begins again at step 0" in line
        assert tree(folder) == calm


def test_a_state_is_of_one_fit_alone(tmp_path: Path) -> None:
    scratch = Scratch(3, 2, CPU)
    ones = [SoftmaxClassifier(leave_out=None, l2=0.1, like=scratch) for _ in range(2)]
    save_state(tmp_path, ones, 7, "meaning")
    assert load_state(tmp_path, ones, "meaning", Silent()) == 7
    assert load_state(tmp_path, ones, "another", Silent()) == 0
    remove_state(tmp_path)
    assert not tmp_path.exists()


@pytest.mark.parametrize(
    ("solver", "memory_gb", "expected"),
    [("auto", 1.0, False), ("auto", 1e-6, True), ("exact", 1e-6, False), ("stream", 1.0, True)],
)
def test_what_does_not_fit_is_streamed(
    solver: str, memory_gb: float, expected: bool, make_clusters: MakeClusters
) -> None:
    settings = ProbeSettings(solver=solver, memory_gb=memory_gb)  # type: ignore[arg-type]
    assert is_streamed(make_clusters(counts=(40,)), settings) is expected


def test_the_estimate_of_memory_grows_with_rows_and_classes() -> None:
    assert exact_bytes(7494, 2, 1280, 83) < 4e9, "the demo is exact"
    assert exact_bytes(13_000_000, 7, 1024, 21_843) > 1e12
    assert exact_bytes(50_000, 7, 1024, 21_843) > 4e9, "few rows, but logits of many classes"
