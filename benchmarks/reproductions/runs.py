"""What the reproductions share: runs with a result each, that are done once and are found again.

A run is a row of a table with one seed. Its result is a JSON file called after the digest of its settings, so a command
that was stopped, or asked for more, does what is missing only. Long runs save their state on the way.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn
from torch.optim import Optimizer

from cluster.progress import progress_on
from pipeline.config import meaning, parse, to_plain
from pipeline.digests import digest
from pipeline.errors import UserError
from pipeline.files import atomic_file, read_json, write_json
from pipeline.processes import end_with_parent
from pipeline.progress import Progress, Silent

CONFIGS = Path(__file__).parents[2] / "configs" / "reproduction"
SECONDS_A_SAVE = 30.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """One row of a table, one seed.

    Attributes:
        row: its name.
        settings: a config of the reproduction, ``seed`` included.
    """

    row: str
    settings: Any

    def result_in(self, folder: Path) -> Path:
        """Where its result is, or will be."""
        return folder / f"{self.row}-{self.settings.seed}-{digest(meaning(self.settings))[:12]}.json"


Work = Callable[[Any, Path, Progress], dict[str, Any]]  # settings, where the state may be saved, progress → result


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A file of ``configs/reproduction``: rows by name, which of them a table has, the paper's numbers, the bars."""

    rows: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    paper: Mapping[str, Any]
    bars: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, name: str) -> Plan:
        """``common`` settings are those of every row that does not say otherwise."""
        values = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
        rows = {row: {**values["common"], **(settings or {})} for row, settings in values["rows"].items()}
        return cls(
            rows=rows, tables=values["tables"], seeds=values["seeds"], paper=values["paper"], bars=values["bars"]
        )

    def runs(self, config: type[Any], tables: Iterable[str], overrides: Mapping[str, Any]) -> dict[str, list[Run]]:
        """The runs of some tables, by row, in the order of the tables.

        Raises:
            UserError: no such table, or settings that are out of range.
        """
        made: dict[str, list[Run]] = {}
        for table in tables:
            if table not in self.tables:
                raise UserError(f"no table {table}. There are: {', '.join(self.tables)}.")
            for row in self.tables[table]:
                values = {**self.rows[row], **overrides}
                made[row] = [Run(row=row, settings=parse(config, {**values, "seed": s}, row)) for s in self.seeds]
        return made


def overrides_of(pairs: Sequence[str]) -> dict[str, Any]:
    """``name=value`` as a mapping, values as YAML.

    Raises:
        UserError: no equals sign.
    """
    for pair in pairs:
        if "=" not in pair:
            raise UserError(f"'{pair}' is no setting; write name=value.")
    return {name: yaml.safe_load(value) for name, value in (pair.split("=", 1) for pair in pairs)}


def perform(work: Work, runs: Mapping[str, Sequence[Run]], folder: Path, workers: int) -> None:
    """Do the runs that have no result yet, ``workers`` at a time: the first seed of every row, then the second, …"""
    in_order = [run for of_seed in zip(*runs.values(), strict=True) for run in of_seed]
    missing = [run for run in in_order if not run.result_in(folder).exists()]
    progress = progress_on(sys.stderr)
    bar = progress.bar("runs", len(in_order), "run", initial=len(in_order) - len(missing))
    if workers == 1:
        for run in missing:
            _one(work, run, folder, progress)
            bar.advance(last=run.row)
    else:
        context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
        with ProcessPoolExecutor(workers, mp_context=context, initializer=end_with_parent) as pool:
            waiting = {pool.submit(_one, work, run, folder, Silent()): run for run in missing}
            try:
                for done in as_completed(waiting):
                    done.result()
                    bar.advance(last=waiting[done].row)
            except BaseException:  # what is computed beside it would go on for minutes; its state is saved
                for process in multiprocessing.active_children():
                    if process not in others:
                        process.terminate()
                raise
    bar.close()


def _one(work: Work, run: Run, folder: Path, progress: Progress) -> None:
    torch.set_num_threads(1)
    target = run.result_in(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    state = target.with_suffix(".state")
    result = work(run.settings, state, progress)
    write_json(target, {"row": run.row, "settings": to_plain(run.settings), **result})
    state.unlink(missing_ok=True)


class Saved:
    """The state of a training, saved every half minute.

    Attributes:
        step: how many steps are done.
        before: processor seconds that were spent on them by processes that were stopped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._memory: dict[str, Any] = torch.load(path, weights_only=True) if path.exists() else {}
        self.step: int = self._memory.get("step", 0)
        self.before: float = self._memory.get("seconds", 0.0)
        self._begun, self._last = time.process_time(), time.monotonic()

    @property
    def seconds(self) -> float:
        """Processor seconds of the training so far."""
        return self.before + time.process_time() - self._begun

    def restore(self, model: nn.Module, seed: int) -> None:
        """Give a model its parameters and the random numbers their place; at step 0 they begin at ``seed``."""
        torch.manual_seed(seed)
        if self._memory:
            model.load_state_dict(self._memory["model"])
            torch.set_rng_state(self._memory["random"])

    def restore_optimizer(self, optimizer: Optimizer) -> None:
        """Give an optimiser its state, where there is one."""
        if self._memory:
            optimizer.load_state_dict(self._memory["optimizer"])

    def keep(self, step: int, model: nn.Module, optimizer: Optimizer) -> None:
        """Save what is reached after ``step`` steps if it is time."""
        if time.monotonic() - self._last < SECONDS_A_SAVE:
            return
        state = {
            "step": step,
            "seconds": self.seconds,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        with atomic_file(self.path) as stream:
            torch.save(state, stream)
        self._last = time.monotonic()


def found(runs: Mapping[str, Sequence[Run]], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The results that are there, by row."""
    there = {row: [run.result_in(folder) for run in of_row] for row, of_row in runs.items()}
    return {row: [read_json(path) for path in paths if path.exists()] for row, paths in there.items()}
