"""The streaming solver: the probes of all folds, and the one on all rows, in the same passes over the store.

First every key and label is read, then every representation for the mean and scale, and on the way the rows are kept on
which the penalty is chosen. All penalties are tried side by side on those; the best is brought to the size of the
store, so that penalty times rows (1 / C in scikit-learn's terms) stays what it was. Then all probes are fitted.

Shapes: N rows, V views, D width, C classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pipeline.config import meaning
from pipeline.digests import digest
from pipeline.errors import UserError
from pipeline.interruption import Interrupted, stop_asked
from pipeline.places import Place
from pipeline.probing.feeds import Feed, Held, Moments, Stored, reader_of, survey
from pipeline.probing.rows import Rows, rows_of
from pipeline.probing.saved import FITTED, NAME, Probe, fold_name, over_raw, save_probe
from pipeline.probing.settings import ProbeSettings, view_indices
from pipeline.probing.softmax import Scratch, SoftmaxClassifier, mean_loss, rate_at
from pipeline.probing.state import load_state, remove_state, save_state
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore
from pipeline.training.loop import store_digest

LOOK_EVERY = 20  # steps; a look at the loss makes a GPU wait
CHOICE, FIT = "state-choice", "state-fit"  # folders of the two fits' states


@dataclass(frozen=True, kw_only=True)
class Means:
    """With what means a fit is done; on one CPU with one number of threads they do not change a bit."""

    device: torch.device
    threads: int = 2  # that read the store
    checkpoint_seconds: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A fit that can be interrupted at any step.

    Attributes:
        what: it does, for the bar.
        settings, means: of the whole.
        folder: of its state.
        meaning: digest of everything that decides it.
        scratch: the memory it works in.
    """

    what: str
    settings: ProbeSettings
    means: Means
    folder: Place
    meaning: str
    scratch: Scratch

    def new(self, *, leave_out: int | None, l2: float) -> SoftmaxClassifier:
        """A classifier to be fitted."""
        return SoftmaxClassifier(leave_out=leave_out, l2=l2, like=self.scratch)

    def run(self, classifiers: list[SoftmaxClassifier], feed: Feed, steps: int, progress: Progress) -> None:
        """Train to the end, from the last state on; a state is left behind at the last step.

        Raises:
            UserError: a loss is not finite any more.
            Interrupted: somebody asked to stop; the state is saved.
        """
        start, size = load_state(self.folder, classifiers, self.meaning, progress), self.settings.batch_size
        peak = self.settings.lr / math.sqrt(self.scratch.weight_CD.shape[1])
        bar = progress.bar(self.what, steps * size, "rows", initial=start * size)
        saved = time.monotonic()
        with closing(bar), closing(feed.batches(start, steps)) as batches, tf32(self.means.device):
            for done, batch in enumerate(batches, start + 1):
                rate = peak * rate_at(done - 1, steps)
                for one in classifiers:
                    one.step(batch.features_BD, batch.label_B, batch.fold_B, rate, self.scratch)
                bar.advance(size)
                stop = stop_asked()
                if stop or done % LOOK_EVERY == 0 or done == steps:
                    bar.advance(0, loss=f"{_look(classifiers, done):.4f}")
                if stop or done == steps or time.monotonic() - saved >= self.means.checkpoint_seconds:
                    save_state(self.folder, classifiers, done, self.meaning)
                    saved = time.monotonic()
                if stop:
                    raise Interrupted


def fit_stream(
    store: RepresentationStore, settings: ProbeSettings, *, folder: Place, means: Means, progress: Progress
) -> None:
    """Fit and save ``fold-0`` … and the probe on all rows, with the record :data:`FITTED`; go on where it was cut off.

    Raises:
        UserError: an unknown view, too few rows, or a fit that diverges.
    """
    rows = rows_of(store, settings, progress)
    moments, drawn_NVD = survey(store, rows, settings, threads=means.threads, progress=progress)
    scratch = Scratch(len(store.class_names), store.layout.width, means.device)
    choice = Fit(
        what="choose l2",
        settings=settings,
        means=means,
        folder=folder / CHOICE,
        meaning=digest({"settings": meaning(settings), "store": store_digest(store)}),
        scratch=scratch,
    )
    l2, losses = _choose(choice, drawn_NVD, rows, moments, progress)
    del drawn_NVD
    fit = replace(choice, what="fit all probes", folder=folder / FIT)
    names: dict[int | None, str] = {None: NAME, **{fold: fold_name(fold) for fold in range(settings.folds)}}
    tried_on = int((rows.drawn_N & ~rows.held_N).sum())
    # a penalty that is not chosen but given is taken as it is
    l2_of = {fold: l2 * (tried_on / rows.fitted(fold) if losses else 1) for fold in names}
    classifiers = [fit.new(leave_out=fold, l2=l2_of[fold]) for fold in names]
    steps = _steps(settings, rows.fitted(None), settings.passes or len(view_indices(store, settings)))
    reader = reader_of(store, rows, settings, device=means.device, threads=means.threads, views=1)
    fit.run(classifiers, Stored(reader, rows, moments), steps, progress)
    for one in classifiers:
        facts = {
            "rows": rows.fitted(one.leave_out),
            "l2": one.l2,
            "held_out_loss": {f"{tried:g}": loss for tried, loss in losses.items()},
            "loss": float(one.loss),
            "steps": steps,
        }
        classifier = over_raw(one.weight_CD.detach(), one.bias_C.detach(), moments.mean_D, moments.scale)
        probe = Probe(classifier=classifier, facts=facts)
        record = FITTED if one.leave_out is None else None
        save_probe(folder, names[one.leave_out], probe, record=record, class_names=list(store.class_names))
    clear(folder)


def clear(folder: Place) -> None:
    """Remove the states: every probe is saved."""
    remove_state(folder / FIT)
    remove_state(folder / CHOICE)


def _choose(
    fit: Fit, drawn_NVD: Tensor, rows: Rows, moments: Moments, progress: Progress
) -> tuple[float, Mapping[float, float]]:
    """The penalty with the lowest loss on the rows that are held out of those drawn, and the losses of all."""
    grid, device = fit.settings.l2, fit.means.device
    if len(grid) == 1:
        return grid[0], {}
    features_ND = drawn_NVD.sub_(moments.mean_D).div_(moments.scale).flatten(0, 1).to(device)
    views = drawn_NVD.shape[1]
    label_N = torch.from_numpy(rows.label_N[rows.drawn_N]).long().repeat_interleave(views).to(device)
    held_N = np.repeat(rows.held_N[rows.drawn_N], views)
    fitted, held = np.flatnonzero(~held_N), torch.from_numpy(np.flatnonzero(held_N)).to(device)
    size, seed = fit.settings.batch_size, fit.settings.seed
    tried = [fit.new(leave_out=None, l2=l2) for l2 in grid]
    feed = Held(features_ND, label_N, rows=fitted, batch_size=size, seed=seed)
    fit.run(tried, feed, _steps(fit.settings, len(fitted), passes=1), progress)
    held_ND, label_N = features_ND[held], label_N[held]
    losses = {
        one.l2: mean_loss(held_ND, label_N, one.weight_CD.detach(), one.bias_C.detach(), fit.scratch) for one in tried
    }
    return min(losses, key=lambda l2: (losses[l2], -l2)), losses


def _steps(settings: ProbeSettings, rows: int, passes: int) -> int:
    return max(math.ceil(passes * rows / settings.batch_size), settings.min_steps)


def _look(classifiers: list[SoftmaxClassifier], step: int) -> float:
    losses = torch.stack([one.loss for one in classifiers]).tolist()
    for one, loss in zip(classifiers, losses, strict=True):
        if not math.isfinite(loss):
            raise UserError(
                f"probe: the fit diverged by step {step}: the loss of the probe with l2 {one.l2:g} "
                f"(fold left out: {one.leave_out}) is {loss:g}. Lower probe.lr; `submit verify stage=cache` checks "
                "the rows."
            )
    return float(losses[0])


@contextmanager
def tf32(device: torch.device) -> Iterator[None]:
    """Matrix products of a GPU in TF32: 10 bits of mantissa are far finer than the noise of a batch's gradient."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
