"""Which heads a run trains: each seed at each point of its sweep."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

from pipeline.files import read_json
from pipeline.places import Place
from pipeline.training.config import Sweep, TrainingConfig

RECORD = "head.json"  # in the folder of a head, which exists once its record does


@dataclass(frozen=True, kw_only=True)
class Point:
    """One choice of the values that are swept.

    Attributes:
        values: key → value.
        config: of a run with these values alone; such a run gives the same heads.
    """

    values: dict[str, float]
    config: TrainingConfig

    @property
    def name(self) -> str:
        """``base_lr-0.003_weight_decay-0``; empty where nothing is swept."""
        return "_".join(f"{key}-{value}" for key, value in self.values.items())

    def folder(self, run: Place) -> Place:
        """Where its heads lie in the folder of a run."""
        return run / self.name if self.values else run


def points(config: TrainingConfig) -> list[Point]:
    """Each of the values with each of the others; one point where nothing is swept."""
    swept = {key: values for key, values in vars(config.sweep).items() if values}
    chosen = [dict(zip(swept, values, strict=True)) for values in product(*swept.values())]
    return [Point(values=values, config=replace(config, sweep=Sweep(), **values)) for values in chosen]


def seed_folder(folder: Place, seed: int) -> Place:
    """Where the head of a seed lies within the folder of its run, or of its point."""
    return folder / f"seed-{seed}"


def head_configs(config: TrainingConfig) -> list[TrainingConfig]:
    """The config of each head of a run, in the order in which they are trained."""
    return [point.config for point in points(config) for _ in config.seeds]


def head_folders(folder: Place, config: TrainingConfig) -> list[Place]:
    """Where the heads of a run lie, in the order in which they are trained: the seeds of a point after each other."""
    return [seed_folder(point.folder(folder), seed) for point in points(config) for seed in config.seeds]


def was_trained(folder: Place) -> bool:
    """Whether the head that lies there was trained, as its record says: some need no training."""
    with suppress(ValueError, LookupError, TypeError):
        return bool(read_json(folder / RECORD)["training"])
    return True  # the record is damaged, as `submit verify` says
