"""Engines: how a batch becomes one update of every head, one file each, found by file name."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.discovery import implementation
from pipeline.errors import UserError
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.base import Engine
from pipeline.training.members import Member
from pipeline.world import World


def make_engine(members: Sequence[Member], config: TrainingConfig, world: World) -> Engine:
    """The engine that ``config.engine`` names; ``auto`` is the one that fits the number of processes.

    Raises:
        UserError: it cannot run in this number of processes, or not at all here; says what to set.
    """
    name = config.engine
    if name == "auto":
        name = "single" if world.size == 1 else "ddp"
    if name == "single" and world.size > 1:
        raise UserError(
            f"train_head.engine=single: there are {world.size} processes. Set train_head.engine=ddp (or auto), or "
            "start one (cluster.stages.train_head: {nodes: 1, tasks_per_node: 1})."
        )
    engine: Engine = implementation("pipeline.training.engines", name, "engine", Engine)(members, config, world)
    return engine
