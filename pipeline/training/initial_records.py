"""Where the head lies that training starts from. Nothing that computes is imported: the run's digest needs it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from pipeline.errors import UserError
from pipeline.places import Place
from pipeline.release.bundle import CONFIG
from pipeline.training.sweep import RECORD

KEY = "train_head.init_from"


def initial_content(place: Place, seeds: Sequence[int]) -> str:
    """Hex SHA-256 of the records that decide what training starts from; they hold the hashes of the weights.

    Raises:
        UserError: there is no head.
    """
    return sha256(b"".join(record.read_bytes() for record in initial_records(place, seeds))).hexdigest()


def initial_records(place: Place, seeds: Sequence[int]) -> list[Place]:
    """The one record (of a released model, of one head), or that of each seed of a run.

    Raises:
        UserError: there is none, or one of a seed is missing.
    """
    for name in (RECORD, CONFIG):
        if (place / name).is_file():
            return [place / name]
    if (place / "model" / CONFIG).is_file():  # the run folder of stage=release
        return [place / "model" / CONFIG]
    records = [place / f"seed-{seed}" / RECORD for seed in seeds]
    there = [record.is_file() for record in records]
    if all(there):
        return records
    if any(there):
        missing = ", ".join(str(seed) for seed, found in zip(seeds, there, strict=True) if not found)
        raise UserError(
            f"{KEY}: {place} has no head of seed {missing}. Set train_head.seeds to those it has, or name the folder "
            f"of one head ({place / f'seed-{seeds[there.index(True)]}'}), from which all seeds start then."
        )
    raise UserError(
        f"{KEY}: no head at {place}. Give the folder of a released model ({CONFIG}), that of one head ({RECORD}), or "
        f"a run folder of stage=train_head with {', '.join(f'seed-{seed}' for seed in seeds)}; of a run with a sweep, "
        "the folder of one of its points."
    )
