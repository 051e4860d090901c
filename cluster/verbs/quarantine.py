"""list the samples that were set aside: unit, tar, key, reason (--unit ID for one unit, --json for programs)"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from dataclasses import asdict

from cluster.verbs.base import DONE, Request
from stages.base import SetAside, Stage


def run(request: Request) -> int:
    """Print, for each chosen stage that sets samples aside, how many for which reason, and then each of them."""
    wanted = set(request.line.units)
    found = {
        link: [sample for sample in stage.set_aside() if not wanted or sample.unit in wanted]
        for link, stage in request.stages.items()
    }
    if request.line.json:
        stages = [
            {
                "stage": link,
                "folder": str(request.stages[link].folder),
                "reasons": dict(_reasons(samples)),
                "samples": [asdict(sample) for sample in samples],
            }
            for link, samples in found.items()
        ]
        print(json.dumps({"experiment": request.composed.experiment.name, "stages": stages}, indent=2))
        return DONE
    try:
        _print(found, request)
    except BrokenPipeError:  # piped into `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def _print(found: dict[str, list[SetAside]], request: Request) -> None:
    for link, samples in found.items():
        if samples:
            print(_heading(link, request.stages[link], samples))
            for reason, count in _reasons(samples):
                print(f"{count:>9,} × {reason}")
            for sample in samples:
                print(f"{sample.unit}\t{sample.tar}\t{sample.key}\t{sample.reason}")
    if not any(found.values()):
        where = f" in unit {', '.join(sorted(request.line.units))}" if request.line.units else ""
        print(f"nothing is set aside{where}")
    sys.stdout.flush()


def _heading(link: str, stage: Stage, samples: list[SetAside]) -> str:
    units = len({sample.unit for sample in samples})
    return f"{link}: {len(samples):,} samples of {units:,} units set aside, {stage.folder}"


def _reasons(samples: list[SetAside]) -> list[tuple[str, int]]:
    """How many for each kind of reason, most first: what is quoted or a number differs from sample to sample."""
    return Counter(re.sub(r"""b?'[^']*'|b?"[^"]*"|\d+""", "…", sample.reason) for sample in samples).most_common()
