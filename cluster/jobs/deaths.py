"""Which units ended the process that was at them: after three such deaths a unit is left alone.

``<jobs folder>/deaths/<unit>.json``, a list of what is known of each. Whoever holds the unit's claim writes it, and
takes it away when the unit is done.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from pipeline.files import read_json, sweep_partials, write_json

FOLDER = "deaths"
MOST = 3  # deaths at one unit, one after the other


def note_death(jobs: Path, unit: str, how: str) -> list[str]:
    """Add one; all of this unit."""
    known = [*deaths(jobs, unit), how]
    sweep_partials(jobs / FOLDER, f"{unit}.json")
    write_json(jobs / FOLDER / f"{unit}.json", known)
    return known


def deaths(jobs: Path, unit: str) -> list[str]:
    """What is known of each death at a unit, oldest first."""
    try:
        return [str(item) for item in read_json(jobs / FOLDER / f"{unit}.json")]
    except (FileNotFoundError, ValueError, TypeError):
        return []


def forget_deaths(jobs: Path, unit: str) -> None:
    """The unit is done, or is to be tried again."""
    with contextlib.suppress(FileNotFoundError):
        (jobs / FOLDER / f"{unit}.json").unlink()


def given_up(jobs: Path) -> dict[str, str]:
    """Units that are left alone, with the reason."""
    folder = jobs / FOLDER
    names = sorted(path.stem for path in folder.glob("*.json"))
    found = {name: deaths(jobs, name) for name in names}
    return {name: reason_of(known) for name, known in found.items() if len(known) >= MOST}


def reason_of(known: list[str]) -> str:
    """Why a unit is left alone."""
    return (
        f"{len(known)} processes died while they were at it, the last one: {known[-1]}. See its log (submit logs); "
        "`submit retry` has it tried again."
    )
