"""Every benchmark that says something about a GPU, one after the other, into one JSON file.

    benchmarks/gpu.sh [--out docs/results/gpu.json] [--dry-run]

Needs one CUDA device, torch, and the packages that benchmarks/gpu.sh asks for; no network, no data, no installation of
Hedgerow itself. Each part runs in a process of its own, is stopped when it takes too long, and its failure is written
down and does not stop the others. ``--dry-run`` does everything in small on the CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

#: What is wanted of one H100.
TARGETS = {"cache_over_forward_vit_large": 0.9, "train_resident_samples_per_s": 1_000_000}

#: Part → seconds it may take, benchmark and arguments; what matters most comes first.
PARTS: dict[str, tuple[int, Sequence[str]]] = {
    "train_resident": (60, ("train_resident", "--gb", "0.5")),
    "cache_vit_large": (
        170,
        ("cache_throughput", "--models", "vit_large_patch16_224", "--seconds", "20", "--rounds", "1"),
    ),
    "cache_vit_small": (
        100,
        ("cache_throughput", "--models", "vit_small_patch16_224", "--seconds", "3", "--rounds", "1"),
    ),
    "forward_rates": (150, ("forward_rates", "--seconds", "1.5")),
}
DRY: dict[str, tuple[int, Sequence[str]]] = {
    "train_resident": (
        170,
        ("train_resident", "--gb", "0.0005", "--width", "16", "--steps", "2", "--rounds", "1", "--device", "cpu"),
    ),
    "cache_vit_large": (170, ("cache_throughput", "--models", "resnet10t", "--seconds", "0.2", "--rounds", "1")),
    "forward_rates": (170, ("forward_rates", "--models", "resnet10t", "--seconds", "0.1", "--device", "cpu")),
}


def run_part(limit: int, arguments: Sequence[str]) -> dict[str, Any]:
    """The JSON of a benchmark's last line, with the seconds it took; or what it said before it failed."""
    command = [sys.executable, "-m", f"benchmarks.{arguments[0]}", *arguments[1:]]
    start = time.perf_counter()
    print("$", " ".join(command[1:]), flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        lines, error = done.stdout.splitlines(), done.stderr[-2000:] if done.returncode else ""
    except subprocess.TimeoutExpired as stopped:
        lines, error = [], f"stopped after {limit} s: {(stopped.stdout or b'').decode()[-1000:]}"
    print("\n".join(lines[:-1]), error, flush=True)
    facts = {"command": " ".join(command[1:]), "seconds": round(time.perf_counter() - start, 1)}
    return {**facts, "error": error} if error else {**facts, **json.loads(lines[-1])}


def judged(results: dict[str, Any]) -> dict[str, bool | None]:
    """Which targets are met; None where the part failed or was not run."""
    found = {
        "cache_over_forward_vit_large": results.get("cache_vit_large", {}).get("ratio"),
        "train_resident_samples_per_s": results.get("train_resident", {}).get("ours"),
    }
    return {name: None if value is None else value >= TARGETS[name] for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/gpu.json"))
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--dry-run", action="store_true", help="in small, on the CPU")
    arguments = parser.parse_args()
    if not arguments.dry_run and not torch.cuda.is_available():
        sys.exit("no CUDA device here; --dry-run does everything in small on the CPU")
    parts = DRY if arguments.dry_run else {name: PARTS[name] for name in arguments.only}
    document: dict[str, Any] = {
        "date": date.today().isoformat(),
        "device": "cpu" if arguments.dry_run else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "targets": TARGETS,
        "met": {},
        "results": {},
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for name, (limit, part) in parts.items():  # written after each one: what is measured is not lost
        document["results"][name] = run_part(limit, part)
        document["met"] = judged(document["results"])
        arguments.out.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps({"out": str(arguments.out), "met": document["met"]}))


if __name__ == "__main__":
    main()
