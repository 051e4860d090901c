"""say what would run: units, samples, bytes, files, hours, free disk; runs nothing (--json for programs)"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cluster.verbs.base import DONE, Request, size, unfinished
from pipeline.config import config
from pipeline.errors import UserError
from stages.base import Stage, Unit


@config
class Options:
    """How closely to look."""

    # Batches that are worked here, from image to representation, to see how long they take; nothing of it is stored.
    timed: Annotated[int, Field(ge=0)] = 0


def run(request: Request) -> int:
    """Print some lines for each chosen stage."""
    options: Options = request.line.options
    plans = {link: _plan(stage, options.timed) for link, stage in request.stages.items()}
    root = request.composed.experiment.runs_root
    free = shutil.disk_usage(_existing(root)).free if isinstance(root, Path) else None
    if request.line.json:
        print(json.dumps({"free_bytes": free, "stages": plans}, indent=2))
        return DONE
    width = max(map(len, plans))
    for link, plan in plans.items():
        print(f"{link:<{width}}  {_line(plan)}")
        for name, problem in plan.get("sources", {}).items():
            print(f"{'':<{width}}  {problem or f'{name}: there'}")
        for line in _estimate_lines(plan.get("estimate")):
            print(f"{'':<{width}}  {line}")
    if free is not None:
        print(f"{'free disk':<{width}}  {size(free)} at {root}")
    return DONE


def _plan(stage: Stage, batches: int) -> dict[str, Any]:
    plan: dict[str, Any] = {"folder": str(stage.folder), "sources": dict(stage.sources())}
    if waiting := unfinished(stage):
        return {**plan, "waits_for": waiting}
    if absent := [name for name, problem in plan["sources"].items() if problem]:
        return {**plan, "problem": f"cannot read {', '.join(absent)}"}
    try:
        units = stage.plan()
        estimate = stage.estimate(batches) if units else None
    except UserError as error:
        return {**plan, "problem": str(error)}
    return {
        **plan,
        "units": len(units),
        "done": stage.status().done,
        "samples": _sum([unit.samples for unit in units]),
        "bytes": _sum([unit.bytes for unit in units]),
        "first": _what(units),
        "estimate": None if estimate is None else asdict(estimate),
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


def _estimate_lines(estimate: dict[str, Any] | None) -> list[str]:
    """Forward passes and what is written; then hours, each with where the number comes from."""
    if estimate is None:
        return []
    parts = []
    if estimate["views"] is not None:
        parts.append(f"{estimate['views']:,} forward passes")
    if estimate["bytes"] is not None:
        parts.append(f"writes about {size(estimate['bytes'])}")
    if estimate["files"]:
        parts.append(f"at most {estimate['files']:,} files ({estimate['inodes']:,} inodes)")
    lines = [", ".join(parts)] if parts else []
    for source, hours in estimate["hours"].items():
        lines.append(f"{_time(hours)} on one device, {source}")
    if not estimate["hours"]:
        lines.append("how long it takes is not known; timed=4 works four batches here to see")
    return lines


def _time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def _existing(folder: Path) -> Path:
    """The nearest folder above that is there."""
    folder = folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())
