"""What several evaluations say of each method: one entry a backbone and method, its seeds put together.

Runs of the same method that differ in their seeds alone are one entry with all the seeds: what a head learnt from (the
store, the probe) and how its settings were looked for is a part of the method; what a run calls it is not. The same
seed in two runs (a baseline stands in every run) counts once where both say the same; where they do not, on one dataset
at least, all that the second run says of the method is an entry of its own, named after the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from pipeline.errors import UserError
from pipeline.leaderboard.runs import (
    METRICS,
    Found,
    Method,
    Numbers,
    backbone_name,
    methods,
    read_run,
    refuse_other_images,
)
from pipeline.metrics.aggregate import plain_numbers
from pipeline.metrics.undefined import Score, Undefined
from pipeline.places import Place


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """One method on one backbone.

    Attributes:
        backbone, name: as shown; no other entry has both.
        called: run → what it calls it.
        role: ``head``, ``compare`` or ``baseline``.
        values: dataset → metric → seed → value.
        runs: folders that it comes from.
    """

    backbone: str
    name: str
    called: Mapping[Place, str]
    role: str
    values: Mapping[str, Mapping[str, Mapping[int, Score]]]
    runs: Sequence[Place]

    @property
    def label(self) -> str:
        """Both names in one line."""
        return f"{self.name} · {self.backbone}"

    @property
    def seeds(self) -> list[int]:
        """All of them, ascending."""
        return sorted({seed for of in self.values.values() for seed in of["r_auroc"]})

    def numbers(self, dataset: str, metric: str) -> Numbers:
        """Over seeds: ``{median, distance, values, undefined}``."""
        if dataset not in self.values:
            return plain_numbers([Undefined(f"not evaluated on {dataset}")])
        return plain_numbers(list(self.values[dataset][metric].values()))

    def average(self, datasets: Sequence[str], metric: str) -> Numbers:
        """Mean over datasets, seed by seed, then over the seeds that all datasets have."""
        if missing := [name for name in datasets if name not in self.values]:
            return plain_numbers([Undefined(f"not evaluated on {', '.join(missing)}")])
        of = [self.values[name][metric] for name in datasets]
        seeds = [seed for seed in of[0] if all(seed in values for values in of)]
        if not seeds:
            return plain_numbers([Undefined("no seed was evaluated on all datasets")])
        return plain_numbers([_mean([values[seed] for values in of]) for seed in seeds])


@dataclass(frozen=True, kw_only=True)
class Board:
    """Entries, the best mean R-AUROC first, and the datasets that they are compared on.

    Attributes:
        entries: see above.
        datasets: in the order of the runs.
        rows: dataset → images that were judged, of the first run that has it.
    """

    entries: Sequence[Entry]
    datasets: Sequence[str]
    rows: Mapping[str, int]


@dataclass
class _Growing:
    backbone: str
    name: str
    role: str
    values: dict[str, dict[str, dict[int, Score]]] = field(default_factory=dict)
    runs: list[Place] = field(default_factory=list)
    called: dict[Place, str] = field(default_factory=dict)

    def contradicts(self, found: Found) -> bool:
        """Whether a seed that is there already has other values, on any dataset."""
        return any(
            seed in known.get(metric, {}) and known[metric][seed] != value
            for dataset, values in found.items()
            for known in [self.values.get(dataset, {})]
            for metric, of in values.items()
            for seed, value in of.items()
        )


def read_board(runs: Sequence[Place], *, upstream: bool = False) -> Board:
    """Gather run folders of ``stage=evaluate``.

    Args:
        runs: their folders.
        upstream: compare on the upstream datasets, and not on the downstream ones.

    Raises:
        UserError: a folder has no results, none of the runs has such a dataset, or runs have other images of one.
    """
    first: dict[str, tuple[Place, Mapping[str, Any]]] = {}
    growing: dict[tuple[str, ...], _Growing] = {}
    rows: dict[str, int] = {}
    backbones: dict[str, str] = {}
    for run in runs:
        together, meaning = read_run(run)
        backbone = backbone_name(meaning["backbone"], backbones)
        results = [result for result in together["results"] if (result["role"] == "upstream") == upstream]
        for result in results:
            refuse_other_images(result, *first.setdefault(result["dataset"], (run, result)), run)
            rows.setdefault(result["dataset"], result["counts"]["counted"])
        for method in methods(results, run, meaning):
            _add(growing, run, backbone, method)
    if not rows:
        kind, other = ("upstream", "downstream") if upstream else ("downstream", "upstream")
        raise UserError(f"leaderboard: none of the {len(runs)} runs has a {kind} dataset. Compare on the {other} ones.")
    entries = list(_named(growing.values()))
    datasets = list(rows)
    return Board(entries=sorted(entries, key=lambda one: _order(one, datasets)), datasets=datasets, rows=rows)


def _add(growing: dict[tuple[str, ...], _Growing], run: Place, backbone: str, method: Method) -> None:
    """Put all that a run says of a method to what others said of it, or, where it says otherwise, beside that."""
    key = (backbone, method.identity)
    new = _Growing(backbone=backbone, name=method.name, role=method.role)
    entry = growing.setdefault(key, new)
    if entry.contradicts(method.found):
        entry = growing.setdefault((*key, str(run)), new)
    for dataset, values in method.found.items():
        there = entry.values.setdefault(dataset, {metric: {} for metric in METRICS})
        for metric, of in values.items():
            there[metric].update(of)
    if run not in entry.runs:
        entry.runs.append(run)
        entry.called[run] = method.name


def _named(growing: Iterator[_Growing] | Any) -> Iterator[Entry]:
    """Entries; those of the same name are told apart by their runs."""
    found = list(growing)
    for one in found:
        alike = [other for other in found if (other.backbone, other.name) == (one.backbone, one.name)]
        run = one.runs[0]
        folder = run.name if [other.runs[0].name for other in alike].count(run.name) == 1 else str(run)
        name = one.name if len(alike) == 1 else f"{one.name} ({folder})"
        yield Entry(
            backbone=one.backbone, name=name, called=one.called, role=one.role, values=one.values, runs=one.runs
        )


def _order(entry: Entry, datasets: Sequence[str]) -> tuple[float, str]:
    median = entry.average(datasets, "r_auroc")["median"]
    return (-median if median is not None else 1.0, entry.label)


def _mean(values: Sequence[Score]) -> Score:
    bad = next((value for value in values if isinstance(value, Undefined)), None)
    return bad if bad is not None else mean(float(value) for value in values if not isinstance(value, Undefined))
