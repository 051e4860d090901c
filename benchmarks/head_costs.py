"""What one training step of each head costs: CPU seconds and memory, relative to loss prediction in the same run.

    python -m benchmarks.head_costs [--heads elk,hib] [--batch 2048] [--classes 21843] [--accumulate 16] [--rounds 3]

Every set of settings in configs/head/ that trains is taken, or those that are named; ``loss_prediction`` always. In
each round each head has a fresh process: it makes the head, its optimiser and one batch of made-up rows as the head's
``needs`` say, takes a first step that is not timed (unless it took longer than ``LONG``), then steps until ``ENOUGH``
CPU seconds are spent. Rounds are interleaved and medians taken. Memory is the process's peak; what the process held
with everything imported, before the head was made, is in the table's title.

``--accumulate`` is that of training: the parts in which a batch is run. A head that compares all rows of a batch
compares those of a part (128 rows with the defaults, near to the 96 of URL); for the others it changes only what is
held at once.

Prints a table in Markdown, cheapest first; the last line is JSON. A head whose process fails has the reason in place of
numbers, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from cluster.compose import compose, options
from pipeline.heads import make_head
from pipeline.heads.base import LinearClassifier, Needs, RepresentationBatch, Summary
from pipeline.memory import keep_freed_memory
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.single import Single
from pipeline.training.members import Member
from pipeline.world import World

REFERENCE = "loss_prediction"
LONG, ENOUGH = 10.0, 2.0  # CPU seconds
Found = dict[str, float]


def settings_of(names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """name → what ``head=<name>`` is."""
    return dict(compose([f"evaluate.compare=[{','.join(names)}]"]).experiment.compare)


def trained_heads() -> list[str]:
    """The sets of settings that have something to train."""
    return [name for name, values in settings_of(options("head")).items() if make_head(values).needs.training]


def summary_of(needs: Needs, width: int, classes: int) -> Summary:
    """Of a store that is not there; with a classifier where the head wants one."""
    classifier = None
    if needs.classifier:
        classifier = LinearClassifier(weight_CD=torch.randn(classes, width) / width**0.5, bias_C=torch.zeros(classes))
    return Summary(
        width=width, rows=1 << 20, num_classes=classes, mean_D=torch.zeros(width), scale=1.0, classifier=classifier
    )


def batch_of(needs: Needs, rows: int, width: int, classes: int) -> RepresentationBatch:
    """At most so many rows, in whole groups of the head's sampling."""
    rows -= rows % needs.group
    label_B = torch.randint(classes, (rows // needs.group, 1)).expand(-1, needs.group).clone()
    if needs.sampling == "triplets":
        label_B[:, 2:] = (label_B[:, 2:] + torch.randint(1, classes, label_B[:, 2:].shape)) % classes
    base_B1D = torch.randn(rows, 1, width)
    return RepresentationBatch(
        representation_BVD=base_B1D + 0.5 * torch.randn(rows, needs.views, width),
        row_B=torch.randperm(1 << 20)[:rows],
        task_loss_BV=torch.rand(rows, needs.views) * 5 if needs.task_loss else None,
        label_B=label_B.flatten() if needs.labels else None,
        progress_B=torch.zeros(rows) if needs.progress else None,
    )


def measure(name: str, *, batch: int, width: int, classes: int, accumulate: int) -> Found:
    """CPU seconds of a step in this process, and its memory in MB; with the head's parameters, in millions."""
    keep_freed_memory()  # as training does
    torch.manual_seed(0)
    before = resident_mb("VmRSS")
    head = make_head(settings_of([name])[name])
    head.prepare(summary_of(head.needs, width, classes))
    config = TrainingConfig(batch_size=batch, accumulate=accumulate, device="cpu", steps=1000)
    engine = Single([Member(head, config, torch.device("cpu"))], config, World())
    batches = itertools.repeat(batch_of(head.needs, batch, width, classes))
    spent: list[float] = []
    for step in itertools.count():
        start = time.process_time()
        engine.run(batches, step=step, rates=[1e-5])
        engine.losses.take()
        spent.append(time.process_time() - start)
        if spent[0] > LONG or sum(spent[1:]) > ENOUGH:
            break
    return {
        "cpu_s": statistics.median(spent if len(spent) == 1 else spent[1:]),
        "peak_mb": resident_mb("VmHWM"),
        "before_mb": before,
        "parameters_m": sum(parameter.numel() for parameter in head.parameters()) / 1e6,
    }


def resident_mb(field: str) -> float:
    """Of /proc/self/status. ``ru_maxrss`` begins at what the parent held, if that was more."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def in_a_process(name: str, arguments: Sequence[str]) -> Found | str:
    """:func:`measure` in a fresh process; the last line of what it said where it failed."""
    command = [sys.executable, "-m", "benchmarks.head_costs", "--one", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if done.returncode > 0 and lines else f"ended by signal {-done.returncode}"
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def medians(rounds: Sequence[Mapping[str, Found | str]]) -> dict[str, Found | str]:
    """Of each head over the rounds; ``relative`` is to the reference of the same round."""
    result: dict[str, Found | str] = {}
    for name in rounds[0]:
        found, reasons = [], []
        for one in rounds:
            value, reference = one[name], one[REFERENCE]
            if isinstance(value, str) or isinstance(reference, str):
                reasons.append(value if isinstance(value, str) else f"{REFERENCE} failed")
            else:
                found.append({**value, "relative": value["cpu_s"] / reference["cpu_s"]})
        result[name] = reasons[0] if reasons else {key: statistics.median(x[key] for x in found) for key in found[0]}
    return result


def as_markdown(found: Mapping[str, Found | str]) -> list[str]:
    """Lines of a table, cheapest first, those that failed last."""
    good = {name: value for name, value in found.items() if not isinstance(value, str)}
    before = statistics.median(value["before_mb"] for value in good.values()) if good else 0.0
    lines = [
        f"| head | step, CPU s | relative | peak memory, MB (imports: {before:,.0f}) | parameters, millions |",
        "|:--|--:|--:|--:|--:|",
    ]
    for name, value in sorted(good.items(), key=lambda item: item[1]["cpu_s"]):
        numbers = f"{value['cpu_s']:.3f} | {value['relative']:.2f} | {value['peak_mb']:,.0f}"
        lines.append(f"| {name} | {numbers} | {value['parameters_m']:.2f} |")
    return [*lines, *(f"| {name} | {value} | | | |" for name, value in found.items() if isinstance(value, str))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", default="", help="names in configs/head/, with commas; all by default")
    parser.add_argument("--batch", type=int, default=2048, help="rows a step")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=21843)
    parser.add_argument("--accumulate", type=int, default=16, help="parts in which a batch is run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # measure this head here
    given = parser.parse_args()
    sizes = {key: getattr(given, key) for key in ("batch", "width", "classes", "accumulate")}
    if given.one:
        print(json.dumps(measure(given.one, **sizes)))
        return 0
    names = dict.fromkeys([REFERENCE, *(given.heads.split(",") if given.heads else trained_heads())])
    arguments = [part for key, value in sizes.items() for part in (f"--{key}", str(value))]
    rounds: list[dict[str, Found | str]] = []
    for turn in range(given.rounds):
        rounds.append({})
        for name in names:
            value = rounds[-1][name] = in_a_process(name, arguments)
            said = value if isinstance(value, str) else f"{value['cpu_s']:.3f} CPU s, {value['peak_mb']:,.0f} MB"
            print(f"round {turn}, {name}: {said}", file=sys.stderr, flush=True)
    found = medians(rounds)
    print("\n".join(as_markdown(found)))
    print(json.dumps({**sizes, "rounds": given.rounds, "threads": torch.get_num_threads(), "heads": found}))
    return 1 if any(isinstance(value, str) for value in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
