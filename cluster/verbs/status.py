"""say how far each stage is, from its commit records (--json for programs)"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from cluster.verbs.base import DONE, Request
from stages.base import Status


def run(request: Request) -> int:
    """Print a line for each chosen stage, and the reason of every unit that failed."""
    states = {link: stage.status() for link, stage in request.stages.items()}
    if request.line.json:
        stages = [
            {"stage": link, "folder": str(request.stages[link].folder), **_plain(state)}
            for link, state in states.items()
        ]
        print(json.dumps({"experiment": request.composed.experiment.name, "stages": stages}, indent=2))
        return DONE
    width = max(map(len, states))
    for link, state in states.items():
        print(f"{link:<{width}}  {_line(state)}  {request.stages[link].folder}")
        for unit, reason in state.failed.items():
            print(f"{'':<{width}}  unit {unit} failed: {reason}")
    return DONE


def _plain(state: Status) -> dict[str, Any]:
    facts = asdict(replace(state, failed=dict(state.failed)))
    del facts["done_ids"]
    return facts


def _line(state: Status) -> str:
    if not state.done and not state.failed:
        return "not started" if state.total is None else f"0 of {state.total} units"
    of = "" if state.total is None else f" of {state.total}"
    parts = [f"{state.done}{of} units"]
    if state.samples:
        parts.append(f"{state.samples:,} samples")
    if state.quarantined:
        parts.append(f"{state.quarantined:,} quarantined")
    if state.failed:
        parts.append(f"{len(state.failed)} failed")
    return ", ".join(parts)
