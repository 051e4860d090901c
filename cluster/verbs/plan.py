"""say what would run: units, samples, bytes, free disk; runs nothing"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from cluster.verbs.base import DONE, Request, size, unfinished
from pipeline.errors import UserError
from stages.base import Stage, Unit


def run(request: Request) -> int:
    """Print a line for each chosen stage."""
    plans = {link: _plan(stage) for link, stage in request.stages.items()}
    root = request.composed.experiment.runs_root
    free = shutil.disk_usage(_existing(root)).free if isinstance(root, Path) else None
    if request.line.json:
        print(json.dumps({"free_bytes": free, "stages": plans}, indent=2))
        return DONE
    width = max(map(len, plans))
    for link, plan in plans.items():
        print(f"{link:<{width}}  {_line(plan)}")
    if free is not None:
        print(f"{'free disk':<{width}}  {size(free)} at {root}")
    return DONE


def _plan(stage: Stage) -> dict[str, Any]:
    plan: dict[str, Any] = {"folder": str(stage.folder)}
    if waiting := unfinished(stage):
        return {**plan, "waits_for": waiting}
    try:
        units = stage.plan()
    except UserError as error:
        return {**plan, "problem": str(error)}
    return {
        **plan,
        "units": len(units),
        "done": stage.status().done,
        "samples": _sum([unit.samples for unit in units]),
        "bytes": _sum([unit.bytes for unit in units]),
        "first": _what(units),
    }


def _sum(counts: list[int | None]) -> int | None:
    """The total; None where a part is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _what(units: list[Unit]) -> list[str]:
    return [unit.what for unit in units[:3]]


def _line(plan: dict[str, Any]) -> str:
    if "waits_for" in plan:
        return f"waits for {', '.join(plan['waits_for'])}"
    if "problem" in plan:
        return f"cannot start: {plan['problem']}"
    if not plan["units"]:
        return f"nothing to do, all {plan['done']} units are done in {plan['folder']}"
    parts = [f"{plan['units']} units to do, {plan['done']} done"]
    if plan["samples"] is not None:
        parts.append(f"{plan['samples']:,} samples")
    if plan["bytes"] is not None:
        parts.append(f"reads {size(plan['bytes'])}")
    shown = ", ".join(plan["first"]) + (", …" if plan["units"] > len(plan["first"]) else "")
    return f"{', '.join(parts)}: {shown} → {plan['folder']}"


def _existing(folder: Path) -> Path:
    """The nearest folder above that is there."""
    folder = folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())
